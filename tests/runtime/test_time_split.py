"""What a group did with its time, to the last moment."""

from __future__ import annotations

from typing import final

import anyio
import pytest

from repertory.actors.limits import Limits
from repertory.actors.policy import Decision, GroupState, Policy, Wait
from repertory.runtime.policies.rotation import Rotation
from repertory.runtime.runtime import Runtime
from repertory.runtime.statistics import GroupStatistics

from .support import SETTLED, Memory, Pending, lost, open_virtual, sketched, tensor

pytestmark = pytest.mark.virtual


def parts(group: GroupStatistics) -> tuple[float, ...]:
    """Return compute, transfer, swap, idle with work, idle, out of service."""
    return (
        group.compute_seconds,
        group.transfer_seconds,
        group.swap_seconds,
        group.idle_with_work_seconds,
        group.idle_seconds,
        group.out_of_service_seconds,
    )


def split(rt: Runtime, name: str) -> list[float]:
    """Return the parts, rounded, once they add up to the whole."""
    group = rt.statistics().groups[name]
    assert sum(parts(group)) == pytest.approx(group.seconds, abs=1e-9)
    assert min(parts(group)) >= 0
    return [round(part, 3) for part in parts(group)]


async def test_frames_side_by_side_count_once_and_swaps_apart() -> None:
    address = "sim://?service_ms=100&swap_ms=500&window=4"
    async with open_virtual(address) as rt, anyio.create_task_group() as tasks:
        await anyio.sleep(1)
        assert split(rt, address) == [0, 0, 0, 0, 1, 0]
        one, two = [await rt.load(sketched(name)) for name in ("one", "two")]
        for number in range(8):
            tasks.start_soon(one.infer, tensor(number))
        await anyio.sleep(0.25)
        assert split(rt, address) == [0, 0, 0.25, 0, 1, 0]
        await anyio.sleep(0.3)
        assert split(rt, address) == [0.05, 0, 0.5, 0, 1, 0], "what has not completed counts"
        await anyio.sleep(1.45)
        assert split(rt, address) == [0.8, 0, 0.5, 0, 1.7, 0]
        await two.infer(tensor(1))
        assert split(rt, address) == [0.9, 0, 1, 0, 1.7, 0]
        busy = rt.statistics().groups[address].busy_seconds
        assert busy == pytest.approx(0.9)


async def test_time_without_device_time_in_it_is_transfer() -> None:
    memory = Memory(holding=True)
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"))
        tasks.start_soon(model.infer, tensor(1))
        await anyio.sleep(1)
        memory.let_go()
        await anyio.sleep(1)
        assert split(rt, "memory") == [0.001, 0.999, 0, 0, 1, 0], "it says that it computed for 1 ms"


async def test_a_group_that_may_not_start_what_waits_is_idle_with_work() -> None:
    first, second = Memory("first", holding=True), Memory("second", holding=True)
    async with open_virtual(first, second) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"), limits=Limits(max_in_flight=1))
        tasks.start_soon(model.infer, tensor(1))
        await anyio.sleep(1)
        taker, free = ("first", "second") if first.device.held else ("second", "first")
        assert split(rt, free) == [0, 0, 0, 0, 1, 0]
        waiting = [Pending(model, number) for number in range(2)]
        for request in waiting:
            tasks.start_soon(request)
        await anyio.sleep(1)
        assert split(rt, free) == [0, 0, 0, 1, 1, 0]
        waiting[0].scope.cancel()
        await anyio.sleep(1)
        assert split(rt, free) == [0, 0, 0, 2, 1, 0], "one waits still"
        waiting[1].scope.cancel()
        await anyio.sleep(1)
        assert split(rt, free) == [0, 0, 0, 2, 2, 0], "nobody waits any more"
        assert split(rt, taker)[3:] == [0, 0, 0]
        first.let_go()
        second.let_go()


@final
class OnlyFirst(Policy):
    """Lets the group of that name work, and no other."""

    def decide(self, state: GroupState, now: float) -> Decision:
        return Rotation().decide(state, now) if state.name == "first" else Wait("not here")


async def test_what_another_group_takes_is_no_work_any_more() -> None:
    first, second = Memory("first", window=1, holding=True), Memory("second")
    async with open_virtual(first, second, policy=OnlyFirst()) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"))
        for number in range(2):
            tasks.start_soon(model.infer, tensor(number))
        await anyio.sleep(1)
        assert split(rt, "second") == [0, 0, 0, 1, 0, 0]
        first.device.release(1)
        await anyio.sleep(1)
        assert split(rt, "second") == [0, 0, 0, 1, 1, 0]
        first.let_go()


async def test_a_swap_ends_where_nothing_is_asked_for() -> None:
    address = "sim://?swap_ms=500"
    async with open_virtual(address) as rt:
        await rt.load(sketched("net"), pin=True)
        await anyio.sleep(1)
        assert split(rt, address) == [0, 0, 0.5, 0, 1, 0]


async def test_a_device_that_is_away_is_out_of_service_and_comes_back() -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        await model.infer(tensor(1))
        await anyio.sleep(1)
        memory.open_errors = [lost()]
        memory.device.fail(lost("unplugged"))
        await anyio.sleep(SETTLED)
        before = split(rt, "memory")
        await anyio.sleep(0.01)
        assert split(rt, "memory")[5] > before[5]
        await anyio.sleep(10)
        back = split(rt, "memory")
        await anyio.sleep(1)
        now = split(rt, "memory")
        assert [round(b - a, 3) for a, b in zip(back, now, strict=True)] == [0, 0, 0, 0, 1, 0]
        assert rt.statistics().groups["memory"].incarnations == 2
        assert rt.statistics().models["net"].residency == {}
        await model.infer(tensor(1))
        await anyio.sleep(1)
        assert rt.statistics().models["net"].residency == {"memory": pytest.approx(1, abs=0.1)}


async def test_residency_has_an_age_and_waits_are_told() -> None:
    address = "sim://?service_ms=100&swap_ms=500&window=1"
    async with open_virtual(address) as rt, anyio.create_task_group() as tasks:
        one, two = [await rt.load(sketched(name)) for name in ("one", "two")]
        await one.infer(tensor(1))
        await anyio.sleep(1)
        models = rt.statistics().models
        assert models["one"].residency == {address: pytest.approx(1.1)}
        assert models["two"].residency == {}
        assert models["one"].longest_wait == pytest.approx(0.5)
        assert models["one"].p999 == models["one"].p50 == pytest.approx(0.6)
        tasks.start_soon(two.infer, tensor(1))
        await anyio.sleep(0.25)
        assert rt.statistics().models["two"].longest_wait == pytest.approx(0.25), "it waits still"
        await anyio.sleep(0.5)
        models = rt.statistics().models
        assert models["one"].residency == {}
        assert models["two"].residency == {address: pytest.approx(0.25)}
        assert models["two"].longest_wait == pytest.approx(0.5)
        await rt.unload("two")
        assert rt.statistics().models["one"].residency == {}
