"""Several programs on a device: who is there, who goes, and who runs meanwhile."""

from __future__ import annotations

import random

import anyio
import pytest

from repertory.actors.binding import TRIES
from repertory.actors.budget import CRAMPED
from repertory.models.errors import ArtifactError, ConfigError
from repertory.runtime.policies.rotation import Rotation
from repertory.runtime.runtime import Runtime

from .support import SETTLED, Memory, Pending, open_virtual, sketched, tensor

pytestmark = pytest.mark.virtual

MB = 2**20
ADDRESS = "sim://?service_ms=1&swap_ms=20&window=2&residents=8&memory_mb=2"


def held(memory: Memory) -> str:
    """Return the names of the networks whose frames the device holds, sorted."""
    return "".join(sorted(frame.network.name for frame in memory.device.held))


def residents(rt: Runtime, group: str = "memory") -> str:
    """Return the names of the programs on a group, in the order of binding."""
    return "".join(rt.statistics().groups[group].residents)


def several(residents: int = 2, *, holding: bool = True) -> Memory:
    """Return a source of devices that bind beside frames in flight."""
    return Memory(window=2, residents=residents, bind_needs_idle=False, holding=holding)


async def test_every_resident_has_frames_in_flight_up_to_its_window() -> None:
    memory = several()
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        for name in "ab":
            model = await rt.load(sketched(name))
            for number in range(4):
                tasks.start_soon(Pending(model, number))
        await anyio.sleep(SETTLED)
        assert held(memory) == "aabb"
        memory.device.release(1)
        await anyio.sleep(SETTLED)
        assert held(memory) == "aabb"
        memory.let_go()


async def test_bind_waits_for_the_frames_of_what_it_evicts_and_for_no_others() -> None:
    memory = several()
    async with open_virtual(memory, policy=Rotation(2)) as rt, anyio.create_task_group() as tasks:
        models = {name: await rt.load(sketched(name)) for name in "abc"}
        for name, frames in (("a", 1), ("b", 3)):
            for number in range(frames):
                tasks.start_soon(Pending(models[name], number))
            await anyio.sleep(SETTLED)
        tasks.start_soon(Pending(models["c"], 1))
        await anyio.sleep(SETTLED)
        assert (held(memory), residents(rt)) == ("abb", "ab")
        memory.device.release(1)
        await anyio.sleep(SETTLED)
        assert (held(memory), residents(rt)) == ("bbc", "bc")
        memory.let_go()


async def test_nothing_is_bound_for_whoever_gave_up_while_the_bind_waited() -> None:
    memory = several()
    async with open_virtual(memory, policy=Rotation(2)) as rt, anyio.create_task_group() as tasks:
        models = {name: await rt.load(sketched(name)) for name in "abc"}
        requests = {name: Pending(models[name], 1) for name in "abc"}
        for request in requests.values():
            tasks.start_soon(request)
            await anyio.sleep(SETTLED)
        requests["c"].scope.cancel()
        memory.device.release(1)
        await anyio.sleep(SETTLED)
        assert residents(rt) == "ab"
        memory.let_go()


async def test_while_a_bind_waits_the_others_go_on() -> None:
    memory = several()
    async with open_virtual(memory, policy=Rotation(8)) as rt, anyio.create_task_group() as tasks:
        models = {name: await rt.load(sketched(name)) for name in "abc"}
        for name, frames in (("a", 1), ("b", 8), ("c", 1)):
            for number in range(frames):
                tasks.start_soon(Pending(models[name], number))
            await anyio.sleep(SETTLED)
        for _ in range(3):
            assert (held(memory), residents(rt)) == ("abb", "ab")
            memory.device.held.rotate(-1)  # a is behind b
            memory.device.release(1)
            memory.device.held.rotate(1)
            await anyio.sleep(SETTLED)
        memory.let_go()


async def test_five_models_on_room_for_two_are_served_a_turn_a_bind() -> None:
    address = "sim://?service_ms=1&swap_ms=20&window=2&residents=2"
    async with open_virtual(address, policy=Rotation(10)) as rt:
        models = [await rt.load(sketched(name)) for name in "abcde"]
        began = anyio.current_time()
        requests = [Pending(model, number) for model in models for number in range(30)]
        async with anyio.create_task_group() as tasks:
            for request in requests:
                tasks.start_soon(request)
        assert all(request.answered_by(request.model.name) for request in requests)
        group = rt.statistics().groups[address]
        assert (group.swaps, group.evictions) == (15, 13)
        assert anyio.current_time() - began <= 15 * 0.020 + 150 * 0.001 + SETTLED


async def test_programs_share_the_memory_and_the_least_valuable_makes_room() -> None:
    async with open_virtual(ADDRESS) as rt:
        events = rt.events()
        sizes = {"a": 0.9, "b": 0.8, "c": 0.5}
        models = {
            name: await rt.load(sketched(name, footprint=int(size * MB))) for name, size in sizes.items()
        }
        await models["a"].infer(tensor(1))
        await models["b"].infer(tensor(1))
        assert rt.statistics().groups[ADDRESS].evictions == 0
        await models["a"].infer(tensor(2))
        await anyio.sleep(3.2)
        await models["c"].infer(tensor(1))
        group = rt.statistics().groups[ADDRESS]
        assert (group.residents, group.swaps, group.evictions) == (["a", "c"], 3, 1)
        assert (group.memory_used, group.memory) == (int(0.9 * MB) + int(0.5 * MB), 2 * MB)
        evictions = {name: model.evictions for name, model in rt.statistics().models.items()}
        assert evictions == {"a": 0, "b": 1, "c": 0}
        reason = "evicts b (0.8 MB, idle 3.2 s): 0.3 of 2.0 MB are free"
        assert any(decided.reason.endswith(reason) for decided in rt.explain())
        while (event := await events.__anext__()).kind != "evicted":
            pass
        assert (event.model, event.detail) == ("b", f"{int(0.8 * MB)} bytes, for c")


async def test_model_larger_than_the_memory_is_refused_when_it_is_loaded() -> None:
    async with open_virtual(ADDRESS) as rt:
        with pytest.raises(ArtifactError, match=f"takes {3 * MB} bytes, and there are {2 * MB}"):
            await rt.load(sketched("a", footprint=3 * MB))


async def test_what_is_pinned_leaves_the_rest_of_the_memory_to_others() -> None:
    async with open_virtual(ADDRESS) as rt:
        await rt.load(sketched("a", footprint=MB), pin=True)
        with pytest.raises(ConfigError, match="beside what is pinned"):
            await rt.load(sketched("large", footprint=MB + 1))
        small = await rt.load(sketched("b", footprint=MB))
        with pytest.raises(ConfigError, match=f"8 programs of {2 * MB} bytes resident"):
            await rt.load(sketched("c", footprint=MB // 2), pin=True)
        await small.infer(tensor(1))
        assert residents(rt, ADDRESS) == "ab"


async def test_where_the_device_finds_no_room_the_next_program_goes() -> None:
    memory = several(3, holding=False)
    memory.crowded = 2
    async with open_virtual(memory) as rt:
        models = {name: await rt.load(sketched(name)) for name in "abc"}
        for name in "abcb":
            await models[name].infer(tensor(1))
            await anyio.sleep(SETTLED)
        assert (residents(rt), rt.statistics().groups["memory"].evictions) == ("bc", 1)
        binds = len(memory.device.binds)
        await models["a"].infer(tensor(1))  # the group knows now that there is room for two
        assert (residents(rt), len(memory.device.binds) - binds) == ("ba", 1)
        memory.device.crowded = None
        await anyio.sleep(CRAMPED)
        await models["c"].infer(tensor(1))
        assert residents(rt) == "bac"


async def test_no_room_waits_for_frames_in_flight_before_it_evicts() -> None:
    memory = several(3)
    memory.crowded = 1
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        models = {name: await rt.load(sketched(name)) for name in "ab"}
        tasks.start_soon(Pending(models["a"], 1))
        await anyio.sleep(SETTLED)
        second = Pending(models["b"], 1)
        tasks.start_soon(second)
        await anyio.sleep(SETTLED)
        assert (held(memory), residents(rt)) == ("a", "a")
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert second.answered_by("b")
        assert residents(rt) == "b"


async def test_program_that_finds_no_room_beside_what_is_pinned_is_refused_with_the_numbers() -> None:
    memory = several(3, holding=False)
    memory.crowded = 1
    async with open_virtual(memory) as rt:
        pinned = await rt.load(sketched("a"), pin=True)
        model = await rt.load(sketched("b"))
        began = anyio.current_time()
        with pytest.raises(
            ArtifactError, match="nothing is left to evict: b: wanted 80 bytes, and 79 are free"
        ):
            await model.infer(tensor(1))
        assert anyio.current_time() - began == pytest.approx((TRIES - 1) * CRAMPED, abs=SETTLED)
        await pinned.infer(tensor(1))
        assert residents(rt) == "a"


@pytest.mark.parametrize("alone", [False, True])
async def test_where_the_lack_passes_the_model_is_served_and_the_others_meanwhile(*, alone: bool) -> None:
    memory = several(3, holding=False)
    memory.crowded = 0 if alone else 1
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        pinned = None if alone else await rt.load(sketched("a"), pin=True)
        late = Pending(await rt.load(sketched("b")), 1)
        tasks.start_soon(late)
        for _ in range(TRIES - 1):
            await anyio.sleep(0.9 * CRAMPED)
            if pinned is not None:
                await pinned.infer(tensor(2))
        memory.device.crowded = None
        assert late.ended is None
        await anyio.sleep(CRAMPED)
        assert late.answered_by("b")


async def test_who_pins_what_finds_no_room_is_told_at_once_and_may_try_again() -> None:
    memory = several(3, holding=False)
    memory.crowded = 1
    async with open_virtual(memory) as rt:
        await rt.load(sketched("a"), pin=True)
        model = await rt.load(sketched("b"))
        began = anyio.current_time()
        for told in ("nothing is left to evict", *["finds no room on memory at the moment"] * TRIES):
            with pytest.raises(ArtifactError, match=told):
                await rt.pin("b")
        assert anyio.current_time() - began <= SETTLED
        memory.device.crowded = None
        await anyio.sleep(CRAMPED)
        await rt.pin("b")
        await model.infer(tensor(1))
        assert residents(rt) == "ab"


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_comes_the_device_is_never_asked_for_what_it_cannot_hold(seed: int) -> None:
    """The device breaks down where its memory is exceeded, or a program goes with frames in flight."""
    dice = random.Random(seed)
    async with open_virtual(ADDRESS, policy=Rotation(4)) as rt, anyio.create_task_group() as tasks:
        models = [await rt.load(sketched(name, footprint=dice.randint(MB // 4, MB))) for name in "abcdef"]
        await rt.pin("a")
        requests = [Pending(dice.choice(models), number, timeout=5) for number in range(100)]
        for request in requests:
            tasks.start_soon(request)
            await anyio.sleep(dice.choice([0, 0, 0.001, 0.01]))
            group = rt.statistics().groups[ADDRESS]
            assert group.memory_used <= 2 * MB
            assert "a" in group.residents
            if dice.random() < 0.1:
                request.scope.cancel()
        await anyio.sleep(20)
        assert all(request.answered_by(request.model.name) or request.error for request in requests)
        assert sum(request.value is not None for request in requests) > 60
        group = rt.statistics().groups[ADDRESS]
        assert group.evictions > 5
        assert group.incarnations == 1
