"""What callers see of devices that fail."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest
from anyio.abc import TaskGroup

from repertory.models.errors import (
    ArtifactError,
    DeviceError,
    DeviceHung,
    DeviceLost,
    RuntimeClosed,
)
from repertory.runtime.model import Model
from repertory.transports.frame import Fate

from .support import SETTLED, Memory, Pending, lost, open_virtual, outstanding, reconciles, sketched, tensor

pytestmark = pytest.mark.virtual

RECOVERY = 5.0
"""Seconds after which a device that can be opened again is in service again."""


@pytest.fixture
async def tasks() -> AsyncGenerator[TaskGroup, None]:
    async with anyio.create_task_group() as group:
        yield group


async def _ask(tasks: TaskGroup, model: Model, *numbers: int) -> list[Pending]:
    requests: list[Pending] = []
    for number in numbers:
        requests.append(Pending(model, number))
        tasks.start_soon(requests[-1])
        await anyio.sleep(0.0001)
    return requests


def _seqs(memory: Memory) -> list[int]:
    return [frame.seq for frame in memory.ran]


# -- single frames ---------------------------------------------------------------------------------


async def test_frame_that_fails_costs_its_caller_alone(tasks: TaskGroup) -> None:
    memory = Memory(window=2, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        first, second = await _ask(tasks, model, 1, 2)
        memory.device.release(1, Fate.FAILED, DeviceError("bad frame", family="memory", call="run", status=7))
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert isinstance(first.error, DeviceError)
        assert (str(first.error), first.error.call, first.error.status) == ("bad frame", "run", 7)
        assert second.answered_by("net")
        assert rt.statistics().groups["memory"].incarnations == 1
    assert _seqs(memory) == [1, 2]


async def test_undone_frame_runs_again_once_and_then_fails(tasks: TaskGroup) -> None:
    memory = Memory(holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        (request,) = await _ask(tasks, model, 1)
        memory.undo()
        await anyio.sleep(SETTLED)
        assert request.ended is None
        memory.undo()
        await anyio.sleep(SETTLED)
        assert isinstance(request.error, DeviceError)
        assert str(request.error) == "not run"
    assert _seqs(memory) == [1, 1]


async def test_undone_frames_run_again_in_their_order_and_before_later_ones(tasks: TaskGroup) -> None:
    memory = Memory(window=3, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        requests = await _ask(tasks, model, 1, 2, 3, 4, 5)
        memory.undo()
        await anyio.sleep(SETTLED)
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert all(request.answered_by("net") for request in requests)
    assert _seqs(memory) == [1, 2, 3, 1, 2, 3, 4, 5]


async def test_undone_frame_whose_caller_left_does_not_run_again(tasks: TaskGroup) -> None:
    memory = Memory(holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        (request,) = await _ask(tasks, model, 1)
        request.scope.cancel()
        await anyio.sleep(SETTLED)
        memory.undo()
        await anyio.sleep(SETTLED)
        assert outstanding(rt.statistics().models["net"]) == 0
    assert _seqs(memory) == [1]


# -- faults and restarts ---------------------------------------------------------------------------


async def test_fault_fails_what_is_to_blame_and_the_queue_survives_the_restart(tasks: TaskGroup) -> None:
    memory = Memory(window=2, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        requests = await _ask(tasks, model, 1, 2, 3, 4)
        memory.holding = False
        memory.device.fail(lost("smoke"))
        await anyio.sleep(RECOVERY)
        assert [str(request.error) for request in requests[:2]] == ["smoke", "smoke"]
        assert all(request.answered_by("net") for request in requests[2:])
        statistics = rt.statistics()
        assert statistics.groups["memory"].incarnations == 2
        assert statistics.groups["memory"].in_service
        assert reconciles(statistics.models["net"])
    assert memory.balanced
    assert len(memory.devices) == 2


async def test_frames_that_a_fault_left_without_effect_run_again_once(tasks: TaskGroup) -> None:
    memory = Memory(window=2, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        requests = await _ask(tasks, model, 1, 2, 3)
        memory.device.fail(lost(), Fate.UNDONE)
        await anyio.sleep(RECOVERY)
        assert _seqs(memory) == [1, 2, 1, 2]
        memory.holding = False
        memory.device.fail(lost("again"), Fate.UNDONE)
        await anyio.sleep(RECOVERY)
        assert [str(request.error) for request in requests[:2]] == ["again", "again"]
        assert requests[2].answered_by("net")
    assert _seqs(memory) == [1, 2, 1, 2, 3]


async def test_requests_that_come_while_the_device_is_away_are_answered_later(tasks: TaskGroup) -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"), warm=True)
        memory.device.fail(lost())
        await anyio.sleep(SETTLED)
        group = rt.statistics().groups["memory"]
        assert not group.in_service
        assert group.error == "unplugged"
        (request,) = await _ask(tasks, model, 1)
        await anyio.sleep(RECOVERY)
        assert request.answered_by("net")


async def test_caller_who_leaves_while_the_device_is_away(tasks: TaskGroup) -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"), warm=True)
        memory.device.fail(lost())
        await anyio.sleep(SETTLED)
        with anyio.move_on_after(0.01) as scope:
            await model.infer(tensor(1))
        assert scope.cancelled_caught
        await anyio.sleep(RECOVERY)
        assert len(memory.ran) == 1, "the warm-up's"


async def test_spent_budget_is_device_lost_for_all_and_for_later_requests(tasks: TaskGroup) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        events = rt.events()
        requests = await _ask(tasks, model, *range(8))
        for _ in range(4):
            memory.device.fail(lost("dead for good"))
            await anyio.sleep(RECOVERY)
        assert all(isinstance(request.error, DeviceError) for request in requests)
        assert all(isinstance(request.error, DeviceLost) for request in requests[4:])
        assert "dead for good" in str(requests[7].error)
        with pytest.raises(DeviceLost, match="dead for good"):
            await model.infer(tensor(9))
        statistics = rt.statistics()
        assert not statistics.groups["memory"].in_service
        assert outstanding(statistics.models["net"]) == 0
        assert reconciles(statistics.models["net"])
    assert "dead" in [event.kind async for event in events]
    assert memory.balanced
    assert len(memory.devices) == 4


async def test_model_loaded_on_a_dead_group_does_not_wait_for_ever() -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        await rt.load(sketched("net"))
        for _ in range(4):
            memory.device.fail(lost("dead for good"))
            await anyio.sleep(RECOVERY)

        async def load_and_infer() -> None:
            await (await rt.load(sketched("late"))).infer(tensor(1))

        with anyio.fail_after(60), pytest.raises(DeviceLost, match="dead for good"):
            await load_and_infer()


async def test_model_on_two_groups_outlives_one_of_them(tasks: TaskGroup) -> None:
    dying, living = Memory("dying", window=1, holding=True), Memory("living", window=1, holding=True)
    async with open_virtual(dying, living) as rt:
        model = await rt.load(sketched("net"))
        requests = await _ask(tasks, model, *range(6))
        for _ in range(4):
            dying.device.fail(lost(), Fate.UNDONE)
            await anyio.sleep(RECOVERY)
        assert rt.statistics().models["net"].groups == ["living"]
        living.let_go()
        await anyio.sleep(SETTLED)
        failed = [request for request in requests if request.error is not None]
        assert len(failed) <= 2, "only those that had their second chance on the dying device"
        assert all(request.answered_by("net") for request in requests if request not in failed)


async def test_fault_while_a_model_is_unloaded_costs_no_admitted_request(tasks: TaskGroup) -> None:
    memory = Memory(window=2, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        requests = await _ask(tasks, model, 1, 2, 3)
        tasks.start_soon(rt.unload, "net")
        await anyio.sleep(SETTLED)
        memory.holding = False
        memory.device.fail(lost(), Fate.UNDONE)
        await anyio.sleep(RECOVERY)
        assert all(request.answered_by("net") for request in requests)


# -- hanging ---------------------------------------------------------------------------------------


async def test_device_without_progress_is_hung_within_its_bound(tasks: TaskGroup) -> None:
    memory = Memory(window=2, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        stall = memory.device.capabilities.stall
        began = anyio.current_time()
        requests = await _ask(tasks, model, 1, 2, 3)
        await anyio.sleep(stall / 2)
        memory.device.release(1)
        await anyio.sleep(stall * 0.9)
        assert memory.devices[-1].closed == 0, "progress counts, not the age of a frame"
        memory.holding = False
        await anyio.sleep(stall * 0.2)
        assert len(memory.devices) == 2 or memory.devices[-1].closed == 1
        await anyio.sleep(RECOVERY)
        assert anyio.current_time() - began < 3 * stall
        assert all(request.answered_by("net") for request in requests)
        assert rt.statistics().groups["memory"].incarnations == 2


async def test_device_that_hangs_for_good_gives_its_callers_device_hung(tasks: TaskGroup) -> None:
    memory = Memory(holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        stall = memory.device.capabilities.stall
        (request,) = await _ask(tasks, model, 1)
        await anyio.sleep(2 * stall + RECOVERY)
        assert isinstance(request.error, DeviceHung)
        assert "no completion for" in str(request.error)
    assert _seqs(memory) == [1, 1]


async def test_frames_that_a_hung_device_forgets_run_again(tasks: TaskGroup) -> None:
    memory = Memory(window=2, holding=True)
    memory.forgetful = True
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        requests = await _ask(tasks, model, 1, 2, 3)
        memory.holding = False
        await anyio.sleep(memory.device.capabilities.stall + RECOVERY)
        assert all(request.answered_by("net") for request in requests)
        assert rt.statistics().groups["memory"].in_flight == 0
    assert _seqs(memory) == [1, 2, 1, 2, 3]


async def test_idle_device_is_not_hung(tasks: TaskGroup) -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        for number in range(3):
            await model.infer(tensor(number))
            await anyio.sleep(1000)
        memory.holding = memory.device.holding = True
        (request,) = await _ask(tasks, model, 9)
        await anyio.sleep(1)
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert request.answered_by("net")
        assert rt.statistics().groups["memory"].incarnations == 1


# -- binding ---------------------------------------------------------------------------------------


async def test_program_that_a_device_refuses_fails_its_models_alone(tasks: TaskGroup) -> None:
    memory = Memory()
    memory.refuse.add("bad")
    async with open_virtual(memory) as rt:
        good, bad = await rt.load(sketched("good")), await rt.load(sketched("bad"))
        twin = await rt.load(sketched("bad"), name="twin of bad")
        requests = await _ask(tasks, good, 1, 2) + await _ask(tasks, bad, 3) + await _ask(tasks, twin, 4)
        requests += await _ask(tasks, good, 5)
        await anyio.sleep(SETTLED)
        assert all(request.answered_by("good") for request in (*requests[:2], requests[4]))
        assert all(isinstance(request.error, ArtifactError) for request in requests[2:4])
        with pytest.raises(ArtifactError, match="bad is refused"):
            await bad.infer(tensor(6))
        assert rt.statistics().groups["memory"].incarnations == 1
        await rt.unload("bad")


@pytest.mark.parametrize("option", ["warm", "pin"])
async def test_refused_program_is_not_left_behind_by_its_load(option: str) -> None:
    memory = Memory()
    memory.refuse.add("bad")
    async with open_virtual(memory) as rt:
        with pytest.raises(ArtifactError, match="bad is refused"):
            await rt.load(sketched("bad"), warm=option == "warm", pin=option == "pin")
        assert rt.statistics().models == {}
        memory.refuse.clear()
        await rt.load(sketched("bad"), warm=True)


async def test_device_that_breaks_during_a_bind_is_opened_again(tasks: TaskGroup) -> None:
    memory = Memory()
    memory.bind_errors.append(DeviceLost("broke while binding", family="memory"))
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        requests = await _ask(tasks, model, 1, 2)
        await anyio.sleep(RECOVERY)
        assert all(request.answered_by("net") for request in requests)
        assert rt.statistics().groups["memory"].incarnations == 2
    assert memory.balanced


async def test_order_that_meets_a_fault_tells_its_caller() -> None:
    memory = Memory()
    memory.bind_errors.append(DeviceLost("broke while binding", family="memory"))
    async with open_virtual(memory) as rt:
        await rt.load(sketched("net"))
        with pytest.raises(DeviceLost, match="broke while binding"):
            await rt.pin("net")
        await anyio.sleep(RECOVERY)
        await rt.pin("net")
        assert rt.statistics().groups["memory"].residents == ["net"]


async def test_device_that_cannot_be_opened_again_spends_the_budget(tasks: TaskGroup) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        requests = await _ask(tasks, model, 1, 2)
        memory.open_errors.extend(DeviceLost("gone", family="memory") for _ in range(9))
        memory.device.fail(lost())
        await anyio.sleep(60)
        assert str(requests[0].error) == "unplugged"
        assert isinstance(requests[1].error, DeviceLost)
    assert memory.balanced


# -- closing ---------------------------------------------------------------------------------------


async def test_close_is_bounded_when_the_device_never_completes(tasks: TaskGroup) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        requests = await _ask(tasks, model, 1, 2)
        began = anyio.current_time()
    assert anyio.current_time() - began <= 10
    await anyio.sleep(SETTLED)
    assert isinstance(requests[0].error, DeviceError | RuntimeClosed)
    assert isinstance(requests[1].error, RuntimeClosed)
    assert memory.balanced


async def test_close_lands_what_is_in_flight(tasks: TaskGroup) -> None:
    async with open_virtual("sim://?service_ms=100&window=2") as rt:
        model = await rt.load(sketched("net"))
        requests = await _ask(tasks, model, 1, 2, 3)
        await anyio.sleep(0.05)
    await anyio.sleep(SETTLED)
    assert [request.answered_by("net") for request in requests] == [True, True, False]
    assert isinstance(requests[2].error, RuntimeClosed)


async def test_close_while_the_device_is_away(tasks: TaskGroup) -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        memory.open_errors.extend([lost(), lost(), lost()])
        memory.device.fail(lost())
        await anyio.sleep(SETTLED)
        (request,) = await _ask(tasks, model, 1)
        began = anyio.current_time()
    assert anyio.current_time() - began <= 5
    await anyio.sleep(SETTLED)
    assert isinstance(request.error, RuntimeClosed)
    assert memory.balanced


async def test_close_during_a_bind(tasks: TaskGroup) -> None:
    memory = Memory()
    memory.bind_seconds = 2.0
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        (request,) = await _ask(tasks, model, 1)
        began = anyio.current_time()
    assert anyio.current_time() - began <= 10
    assert isinstance(request.error, RuntimeClosed)
    assert memory.ran == []


@pytest.mark.parametrize("kind", [DeviceLost, DeviceHung])
async def test_frames_that_come_back_before_the_fault_wait_for_the_next_incarnation(
    tasks: TaskGroup, kind: type[DeviceLost | DeviceHung]
) -> None:
    """A device that is going down may tell of its frames first, in a message of its own."""
    memory = Memory(window=2, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        requests = await _ask(tasks, model, 1, 2, 3)
        memory.holding = False
        memory.device.release(2, Fate.UNDONE, kind("unplugged", family="memory"))
        await anyio.sleep(0.001)
        assert [len(device.ran) for device in memory.devices] == [2]  # nothing more went to that one
        await anyio.sleep(RECOVERY)
        assert [request.error for request in requests] == [None] * 3
        assert len(memory.devices) == 2


async def test_a_device_that_was_given_nothing_owes_no_progress() -> None:
    """Who comes second could only be late when its turn comes: it ends there, and nothing is started."""
    async with open_virtual("sim://?window=1") as rt:
        model = await rt.load(sketched("net", service=0.1))
        requests = [Pending(model, number, timeout=0.15) for number in range(2)]
        async with anyio.create_task_group() as tasks:
            for request in requests:
                tasks.start_soon(request)
        assert sorted(request.error is None for request in requests) == [False, True]
        await anyio.sleep(60)
        (group,) = rt.statistics().groups.values()
        assert (group.incarnations, group.in_service) == (1, True)
