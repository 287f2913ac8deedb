"""Statistics, events and explanations."""

from __future__ import annotations

import gc

import anyio
import msgspec
import pytest

from repertory.models.errors import ConfigError, DeviceError, DeviceLost, InvalidInput, RepertoryError
from repertory.models.program import Program
from repertory.runtime.statistics import Event, Statistics
from repertory.transports.device import Health

from .support import SETTLED, Memory, Pending, lost, open_virtual, reconciles, sketched, tensor

pytestmark = pytest.mark.virtual


async def test_statistics_reconcile_whatever_became_of_the_requests() -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"))
        requests = [Pending(model, number, timeout=1 if number == 4 else 60) for number in range(6)]
        for request in requests:
            tasks.start_soon(request)
            await anyio.sleep(0.001)
        assert reconciles(rt.statistics().models["net"])
        requests[3].scope.cancel()
        await anyio.sleep(2)
        assert reconciles(rt.statistics().models["net"])
        memory.device.release(1)
        await anyio.sleep(SETTLED)
        memory.undo()
        await anyio.sleep(SETTLED)
        memory.undo()
        await anyio.sleep(SETTLED)
        with pytest.raises(InvalidInput):
            await model.infer(None)
        statistics = rt.statistics().models["net"]
        assert reconciles(statistics)
        assert (statistics.answered, statistics.failed) == (1, 1)
        assert (statistics.cancelled, statistics.expired) == (1, 1)
        assert (statistics.in_flight, statistics.waiting) == (1, 1)
        assert statistics.refused == {"invalid": 1}
        memory.let_go()


async def test_statistics_of_a_group() -> None:
    address = "sim://?service_ms=5&swap_ms=20&window=1"
    async with open_virtual(address) as rt:
        models = [await rt.load(sketched(name)) for name in "ab"]
        began = anyio.current_time()
        for _ in range(2):
            for model in models:
                await model.infer(tensor(1))
        elapsed = anyio.current_time() - began
        statistics = rt.statistics()
        group = statistics.groups[address]
        assert (group.family, group.simulated, group.in_service, group.error) == ("sim", True, True, None)
        assert (group.completed, group.swaps, group.incarnations) == (4, 4, 1)
        assert group.busy_seconds == pytest.approx(4 * 0.005)
        assert group.swap_seconds == pytest.approx(4 * 0.020)
        assert elapsed == pytest.approx(group.busy_seconds + group.swap_seconds)
        assert group.residents == ["b"]
        assert statistics.models["a"].p50 == statistics.models["a"].p99 == pytest.approx(0.025)


async def test_statistics_of_a_model_without_answers_have_no_percentiles() -> None:
    async with open_virtual("sim://") as rt:
        await rt.load(sketched("net"))
        statistics = rt.statistics().models["net"]
        assert statistics.p50 is statistics.p99 is None


async def test_snapshots_are_frozen_and_go_to_json() -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(sketched("net"))
        before = rt.statistics()
        await model.infer(tensor(1))
        assert before.models["net"].admitted == 0
        with pytest.raises(AttributeError):
            before.models["net"].admitted = 3  # type: ignore[misc]
        now = rt.statistics()
        assert msgspec.json.decode(msgspec.json.encode(now), type=Statistics) == now
        assert msgspec.json.encode(rt.explain())


async def test_events_tell_what_happened_in_order() -> None:
    memory = Memory()
    seen: list[Event] = []
    async with open_virtual(memory) as rt:
        events = rt.events()
        model = await rt.load(sketched("v1"), name="net", warm=True)
        await rt.replace("net", sketched("v2"))
        await model.infer(tensor(1))
        memory.device.fail(lost("smoke"))
        await anyio.sleep(5)
        await rt.unload("net")
    seen = [event async for event in events]
    kinds = [event.kind for event in seen]
    assert kinds == ["swapped", "loaded", "replaced", "swapped", "failed", "opened", "unloaded"]
    assert [event.model for event in seen] == ["v1", "net", "net", "v2", "", "", "net"]
    assert (seen[4].group, seen[4].detail) == ("memory", "smoke")
    assert [event.time for event in seen] == sorted(event.time for event in seen)
    assert events.dropped == 0


async def test_events_are_waited_for_and_every_subscriber_gets_them() -> None:
    async with open_virtual("sim://") as rt:
        got: list[str] = []

        async def listen() -> None:
            events = rt.events()
            while True:
                got.append((await events.__anext__()).kind)

        async with anyio.create_task_group() as listeners:
            for _ in range(2):
                listeners.start_soon(listen)
            await anyio.sleep(1)
            await rt.load(sketched("net"))
            await anyio.sleep(1)
            assert got == ["loaded", "loaded"]
            listeners.cancel_scope.cancel()


async def test_slow_reader_of_events_loses_the_oldest_and_is_told() -> None:
    async with open_virtual("sim://?swap_ms=0&service_ms=0") as rt:
        events = rt.events()
        models = [await rt.load(sketched(name)) for name in "ab"]
        for number in range(560):
            await models[number % 2].infer(tensor(1))
        first = await events.__anext__()
        assert events.dropped == 2 + 560 + 559 - 1024
        assert first.kind == "evicted"


async def test_explain_gives_decisions_with_their_reasons() -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(sketched("net"))
        await model.infer(tensor(1))
        decisions = rt.explain()
        told = [(decided.decision, decided.model) for decided in decisions]
        assert told[-3:] == [("bind", "net"), ("grant", "net"), ("wait", "")]
        assert all(decided.reason and decided.group == "sim://" for decided in decisions)
        for _ in range(300):
            await model.infer(tensor(1))
        assert len(rt.explain()) == 256


async def test_probe_reads_a_groups_health() -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        with anyio.fail_after(1):
            assert await rt.probe("memory") == Health(well=True)
        with pytest.raises(ConfigError, match="no group 'nowhere'"):
            await rt.probe("nowhere")


async def test_more_orders_than_a_group_holds_end_in_an_error_of_ours() -> None:
    memory = Memory(holding=True)
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"))
        tasks.start_soon(model.infer, tensor(1))
        ends: list[str] = []

        async def probe() -> None:
            try:
                ends.append(type(await rt.probe("memory")).__name__)
            except RepertoryError as error:
                ends.append(type(error).__name__)

        for _ in range(1100):
            tasks.start_soon(probe)
        await anyio.sleep(SETTLED)
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert len(ends) == 1100
        assert set(ends) == {"Health", "MailboxFull"}


async def test_probe_waits_until_the_device_is_idle() -> None:
    memory = Memory(holding=True, probe_needs_idle=True)
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"))
        request = Pending(model, 1)
        tasks.start_soon(request)
        await anyio.sleep(SETTLED)
        health: list[Health] = []

        async def probe() -> None:
            health.append(await rt.probe("memory"))

        tasks.start_soon(probe)
        await anyio.sleep(1)
        assert health == []
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert health == [Health(well=True)]
        assert request.answered_by("net")


async def test_explain_holds_no_file_of_a_model_that_is_gone() -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(sketched("gone"))
        await model.infer(tensor(1))
        await (await rt.load(sketched("next"))).infer(tensor(1))
        del model
        assert _programs("gone", "next") == 2
        await rt.unload("gone")
        await rt.unload("next")
        gc.collect()
        assert _programs("gone", "next") == 0
        assert {decision.model for decision in rt.explain()} >= {"gone", "next"}


def _programs(*names: str) -> int:
    """Count the programs of these names that anybody holds."""
    return sum(isinstance(thing, Program) and thing.name in names for thing in gc.get_objects())


async def test_probe_of_a_group_that_dies_meanwhile_is_a_devices_error() -> None:
    memory = Memory()
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        memory.open_errors = [lost("dead for good") for _ in range(4)]
        memory.device.fail(lost())
        await anyio.sleep(SETTLED)
        errors: list[Exception] = []

        async def probe() -> None:
            try:
                await rt.probe("memory")
            except RepertoryError as error:
                errors.append(error)

        tasks.start_soon(probe)
        await anyio.sleep(10)
        assert [type(error) for error in errors] == [DeviceLost]


async def test_probe_goes_beside_frames_where_the_device_allows_it() -> None:
    memory = Memory(holding=True)
    async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
        request = Pending(await rt.load(sketched("net")), 1)
        tasks.start_soon(request)
        await anyio.sleep(SETTLED)
        assert await rt.probe("memory") == Health(well=True)
        memory.let_go()


async def test_probe_of_a_group_that_is_dead_raises_its_error() -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        for _ in range(4):
            memory.device.fail(lost("dead for good"))
            await anyio.sleep(5)
        with pytest.raises(DeviceError, match="dead for good"):
            await rt.probe("memory")
