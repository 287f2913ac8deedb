"""Deadlines, priorities and cancellation, in every state that a request can be in."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from repertory.actors.context import Limits, Overflow
from repertory.models.errors import (
    DeadlineExceeded,
    DeadlineUnreachable,
    QueueFull,
    RepertoryError,
    Superseded,
)
from repertory.runtime.model import Model
from repertory.transports.wheel import TICK

from .support import SETTLED, Memory, Pending, open_virtual, outstanding, reconciles, sketched, tensor

pytestmark = pytest.mark.virtual


@pytest.fixture
async def tasks() -> AsyncGenerator[TaskGroup, None]:
    async with anyio.create_task_group() as group:
        yield group


async def _ask(tasks: TaskGroup, model: Model, *numbers: int, **options: float) -> list[Pending]:
    """Send requests, in this order on every backend."""
    requests: list[Pending] = []
    for number in numbers:
        requests.append(Pending(model, number, **options))
        tasks.start_soon(requests[-1])
        await anyio.sleep(0.0001)
    return requests


# -- deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [0.0, -1.0, -math.inf])
async def test_deadline_that_has_passed_is_refused_at_once(late: float) -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        with pytest.raises(DeadlineUnreachable, match="net: the deadline passed"):
            await model.infer(tensor(1), timeout=late)
        with pytest.raises(DeadlineUnreachable):
            await model.infer(tensor(1), deadline=anyio.current_time() + late)
        statistics = rt.statistics().models["net"]
        assert statistics.refused == {"deadline": 2}
        assert statistics.admitted == 0
    assert memory.ran == []


@pytest.mark.parametrize("by", ["timeout", "deadline", "default", "timeout of both", "deadline of both"])
async def test_request_on_a_slow_device_returns_on_time_while_the_frame_stays_there(by: str) -> None:
    memory = Memory(holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"), timeout=0.1 if by == "default" else 99)
        began = anyio.current_time()
        options: dict[str, Any] = {
            "timeout": {"timeout": 0.1},
            "deadline": {"deadline": began + 0.1},
            "default": {},
            "timeout of both": {"timeout": 0.1, "deadline": began + 50},
            "deadline of both": {"timeout": 50, "deadline": began + 0.1},
        }[by]
        with pytest.raises(DeadlineExceeded, match="net: no answer by the deadline"):
            await model.infer(tensor(1), **options)
        assert 0.1 <= anyio.current_time() - began <= 0.1 + TICK
        statistics = rt.statistics()
        assert statistics.models["net"].expired == 1
        assert outstanding(statistics.models["net"]) == 0
        assert statistics.groups["memory"].in_flight == 1, "its place on the device is not free yet"
        assert memory.device.abandoned == memory.ran
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert rt.statistics().groups["memory"].in_flight == 0
        assert rt.statistics().models["net"].answered == 0


async def test_request_that_expires_in_the_queue_costs_no_device_time(tasks: TaskGroup) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        (first,) = await _ask(tasks, model, 1)
        (second,) = await _ask(tasks, model, 2, timeout=0.1)
        await anyio.sleep(1)
        assert isinstance(second.error, DeadlineExceeded)
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert first.answered_by("net")
    assert [frame.seq for frame in memory.ran] == [1]


async def test_earlier_deadline_goes_first_and_priority_goes_before_it(tasks: TaskGroup) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        await _ask(tasks, model, 1)
        await _ask(tasks, model, 2, priority=-1)
        await _ask(tasks, model, 3)
        await _ask(tasks, model, 4, timeout=60)
        await _ask(tasks, model, 5, timeout=30)
        await _ask(tasks, model, 6, priority=1)
        memory.let_go()
        await anyio.sleep(SETTLED)
    assert [frame.seq for frame in memory.ran] == [1, 6, 5, 4, 3, 2]


async def test_default_priority_of_a_model(tasks: TaskGroup) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"), priority=5)
        await _ask(tasks, model, 1, 2)
        await _ask(tasks, model, 3, priority=6)
        memory.let_go()
        await anyio.sleep(SETTLED)
    assert [frame.seq for frame in memory.ran] == [1, 3, 2]


async def test_deadline_that_holds_leaves_the_answer_alone() -> None:
    async with open_virtual("sim://?service_ms=50") as rt:
        model = await rt.load(sketched("net"))
        request = Pending(model, 1, timeout=0.1)
        await request()
        assert request.answered_by("net")
        await anyio.sleep(1)
        assert rt.statistics().models["net"].expired == 0


# -- the caller's own scope ------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2])
async def test_callers_own_scope_ends_in_its_own_way(tasks: TaskGroup, window: int) -> None:
    """Queued behind another request (window 1), and on the device."""
    memory = Memory(window=window, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        await _ask(tasks, model, 1)
        with anyio.move_on_after(0.1) as scope:
            await model.infer(tensor(2))
        assert scope.cancelled_caught
        with pytest.raises(TimeoutError), anyio.fail_after(0.1):
            await model.infer(tensor(3))
        with anyio.move_on_after(0.1) as scope:
            await model.infer(tensor(4), timeout=5)
        assert scope.cancelled_caught
        with pytest.raises(DeadlineExceeded), anyio.fail_after(5):
            await model.infer(tensor(5), timeout=0.1)
        memory.let_go()
        await anyio.sleep(SETTLED)
        statistics = rt.statistics().models["net"]
        assert statistics.answered == 1
        assert statistics.cancelled + statistics.expired == 4
        assert reconciles(statistics)


async def test_scope_that_expires_while_a_device_looks_for_work_ends_in_its_own_way() -> None:
    """The group meets the expired frame before the scope's own timer has run."""
    async with open_virtual("sim://?service_ms=100&window=1") as rt:
        model = await rt.load(sketched("net"), warm=True)
        ends: list[str] = []

        async def caller(number: int) -> None:
            with anyio.move_on_after(0.1 * number) as scope:
                await model.infer(tensor(number))
                ends.append("answered")
            if scope.cancelled_caught:
                ends.append("moved on")

        async with anyio.create_task_group() as callers:
            for number in (1, 1, 2, 2, 3):
                callers.start_soon(caller, number)
        assert len(ends) == 5


async def test_scope_that_is_cancelled_already_admits_nothing() -> None:
    memory = Memory()
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await model.infer(tensor(1))
        assert scope.cancelled_caught
        assert rt.statistics().models["net"].admitted == 0
    assert memory.ran == []


async def test_deadline_of_an_outer_scope_orders_the_queue(tasks: TaskGroup) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        await _ask(tasks, model, 1, 2)

        async def urgent() -> None:
            with anyio.fail_after(10):
                await model.infer(tensor(3))

        tasks.start_soon(urgent)
        await anyio.sleep(SETTLED)
        memory.let_go()
        await anyio.sleep(SETTLED)
    assert [frame.seq for frame in memory.ran] == [1, 3, 2]


# -- cancellation ----------------------------------------------------------------------------------


async def test_cancel_in_the_queue_frees_the_place_at_once(tasks: TaskGroup) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"), limits=Limits(queue=1))
        first, second = await _ask(tasks, model, 1, 2)
        second.scope.cancel()
        await anyio.sleep(SETTLED)
        assert second.ended is not None
        (third,) = await _ask(tasks, model, 3)
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert first.answered_by("net")
        assert third.answered_by("net")
        assert rt.statistics().models["net"].cancelled == 1
    assert [frame.seq for frame in memory.ran] == [1, 3]


async def test_cancel_during_a_swap_costs_no_device_time(tasks: TaskGroup) -> None:
    memory = Memory()
    memory.bind_seconds = 1.0
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        first, second = await _ask(tasks, model, 1, 2)
        await anyio.sleep(0.5)
        first.scope.cancel()
        await anyio.sleep(SETTLED)
        assert first.ended is not None
        await anyio.sleep(1)
        assert second.answered_by("net")
    assert [frame.seq for frame in memory.ran] == [2]


async def test_cancel_on_the_device_returns_at_once_and_harms_no_neighbour(tasks: TaskGroup) -> None:
    memory = Memory(window=2, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        first, second, third = await _ask(tasks, model, 1, 2, 3)
        first.scope.cancel()
        await anyio.sleep(SETTLED)
        assert first.ended is not None
        assert len(memory.ran) == 2, "its place on the device is free only at its completion"
        assert rt.statistics().groups["memory"].in_flight == 2
        assert memory.device.abandoned == memory.ran[:1]
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert second.answered_by("net")
        assert third.answered_by("net")
        assert rt.statistics().models["net"].cancelled == 1


async def test_cancel_after_the_answer_changes_no_outcome(tasks: TaskGroup) -> None:
    memory = Memory(holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        (request,) = await _ask(tasks, model, 1)
        memory.let_go()
        while not rt.statistics().models["net"].answered:
            await anyio.lowlevel.checkpoint()
        request.scope.cancel()
        await anyio.sleep(SETTLED)
        assert request.ended is not None
        statistics = rt.statistics().models["net"]
        assert (statistics.answered, statistics.cancelled) == (1, 0)
    assert memory.device.abandoned == []


async def test_scope_of_many_callers_cancels_them_all(tasks: TaskGroup) -> None:
    memory = Memory(window=2, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))
        async with anyio.create_task_group() as callers:
            for number in range(10):
                callers.start_soon(model.infer, tensor(number))
            await anyio.sleep(SETTLED)
            callers.cancel_scope.cancel()
        statistics = rt.statistics().models["net"]
        assert (statistics.cancelled, outstanding(statistics)) == (10, 0)
        memory.let_go()
        (request,) = await _ask(tasks, model, 99)
        await anyio.sleep(SETTLED)
        assert request.answered_by("net")
    assert len(memory.ran) == 3


# -- overflow --------------------------------------------------------------------------------------


def _kinds(requests: list[Pending]) -> list[type[BaseException] | None]:
    return [None if request.error is None else type(request.error) for request in requests]


@pytest.mark.parametrize(
    ("overflow", "kinds"),
    [
        (Overflow.REFUSE, [None, None, None, QueueFull, QueueFull]),
        (Overflow.DROP_OLDEST, [None, Superseded, Superseded, None, None]),
        (Overflow.WAIT, [None, None, None, None, None]),
    ],
)
async def test_full_queue(
    tasks: TaskGroup, overflow: Overflow, kinds: list[type[RepertoryError] | None]
) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"), limits=Limits(queue=2, overflow=overflow))
        requests = await _ask(tasks, model, 1, 2, 3, 4, 5)
        assert rt.statistics().models["net"].waiting == 2
        memory.let_go()
        await anyio.sleep(SETTLED)
        assert _kinds(requests) == kinds
        assert all(r.answered_by("net") for r in requests if r.error is None)
        assert reconciles(rt.statistics().models["net"])


async def test_wait_for_a_place_ends_with_the_deadline_or_the_scope(tasks: TaskGroup) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        limits = Limits(queue=1, overflow=Overflow.WAIT)
        model = await rt.load(sketched("net"), limits=limits)
        await _ask(tasks, model, 1, 2)
        began = anyio.current_time()
        with pytest.raises(QueueFull, match="no place became free by the deadline"):
            await model.infer(tensor(3), timeout=0.1)
        assert anyio.current_time() - began == pytest.approx(0.1, abs=TICK)
        with anyio.move_on_after(0.1) as scope:
            await model.infer(tensor(4))
        assert scope.cancelled_caught
        memory.let_go()
        await anyio.sleep(SETTLED)
        statistics = rt.statistics().models["net"]
        assert (statistics.admitted, statistics.refused) == (2, {"full": 1, "cancelled": 1})


async def test_queue_bound_in_bytes_holds(tasks: TaskGroup) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"), limits=Limits(queue_bytes=2 * tensor(0).nbytes))
        requests = await _ask(tasks, model, 1, 2, 3, 4)
        assert _kinds(requests) == [None, None, None, QueueFull]
        memory.let_go()
        await anyio.sleep(SETTLED)


async def test_queue_can_be_changed_in_service(tasks: TaskGroup) -> None:
    memory = Memory(window=1, holding=True)
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"), limits=Limits(queue=1))
        requests = await _ask(tasks, model, 1, 2, 3)
        await rt.retune("net", Limits(queue=2))
        requests += await _ask(tasks, model, 4, 5)
        assert _kinds(requests) == [None, None, QueueFull, None, QueueFull]
        memory.let_go()
        await anyio.sleep(SETTLED)
