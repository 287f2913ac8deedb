from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from typing import Any, final

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from repertory.actors.context import Drain, Limits, ModelContext, Overflow, Retune
from repertory.actors.policy import GroupState
from repertory.actors.supervisor import Supervisor
from repertory.models.errors import (
    ConfigError,
    DeadlineExceeded,
    DeadlineUnreachable,
    ModelClosed,
    QueueFull,
    RepertoryError,
    Superseded,
)
from repertory.transports.frame import Frame, Outcome
from repertory.transports.loop import current_loop
from repertory.transports.wheel import TICK, Wheel

from .books import NETWORK, frame_of

pytestmark = pytest.mark.virtual

WAIT = Overflow.WAIT


@final
class Group:
    """Serves contexts as a test tells it."""

    def __init__(self) -> None:
        self.state = GroupState("group")
        self.pokes = 0
        self.abandoned: list[Frame] = []

    def defer(self, until: float, now: float, /) -> None:
        """Nothing goes on here."""

    def ready(self, now: float, /) -> None:
        self.pokes += 1

    def poke(self) -> None:
        self.pokes += 1

    def abandon(self, frame: Frame, /) -> None:
        self.abandoned.append(frame)


@final
class Stage:
    """A context with a group, a wheel that runs, and callers."""

    def __init__(self, tasks: TaskGroup) -> None:
        self.loop = current_loop()
        self.wheel = Wheel(self.loop)
        self.tasks = tasks
        self.group = Group()
        self.seated: list[int] = []
        tasks.start_soon(self.wheel.run)

    def context(self, limits: Limits | None = None) -> ModelContext:
        context = ModelContext("net", NETWORK, limits or Limits(), loop=self.loop, wheel=self.wheel)
        context.attach(self.group)
        return context

    def offer(self, context: ModelContext, *, expires: float = math.inf, **fields: Any) -> Frame:
        frame = frame_of(**fields)
        frame.owner = context
        frame.slot = self.loop.slot()
        context.offer(frame, expires=expires)
        return frame

    async def queue(self, context: ModelContext, number: int, nbytes: int = 1) -> None:
        """Wait for room and take it, as a caller does; note it in `seated`."""
        await context.places.room(nbytes)
        self.offer(context, nbytes=nbytes)
        self.seated.append(number)

    async def line_up(self, context: ModelContext, *numbers: int, nbytes: int = 1) -> None:
        """Let callers queue, in this order on every backend."""
        for number in numbers:
            self.tasks.start_soon(self.queue, context, number, nbytes)
            await anyio.sleep(0.001)


@pytest.fixture
async def stage() -> AsyncGenerator[Stage, None]:
    async with anyio.create_task_group() as tasks:
        yield Stage(tasks)
        tasks.cancel_scope.cancel()


def _refusal() -> RepertoryError:
    return ModelClosed("closed")


# -- bounds ----------------------------------------------------------------------------------------


async def test_queue_admits_exactly_its_bound_of_frames(stage: Stage) -> None:
    context = stage.context(Limits(queue=3))
    frames = [stage.offer(context) for _ in range(3)]
    told = r"3 frames wait, 3 bytes in all; one of 1 bytes came; the bounds are 3 and"
    with pytest.raises(QueueFull, match=told):
        stage.offer(context)
    assert context.state.waiting == 3
    assert context.admitted == 3
    assert context.refused == {"full": 1}
    assert [context.take(0) for _ in range(4)] == [*frames, None]


async def test_queue_admits_exactly_its_bound_of_bytes(stage: Stage) -> None:
    context = stage.context(Limits(queue_bytes=10))
    stage.offer(context, nbytes=7)
    with pytest.raises(QueueFull):
        stage.offer(context, nbytes=4)
    stage.offer(context, nbytes=3)
    stage.offer(context, nbytes=0)
    assert context.places.full(1)
    assert not context.places.full(0)


async def test_started_frames_do_not_count_towards_the_bound(stage: Stage) -> None:
    context = stage.context(Limits(queue=1))
    stage.offer(context)
    assert context.take(0) is not None
    stage.offer(context)
    assert (context.state.waiting, context.in_flight) == (1, 1)


@pytest.mark.parametrize(("queue", "queue_bytes"), [(0, 1), (1, 0), (-1, 1)])
def test_queue_that_could_hold_nothing_is_refused(queue: int, queue_bytes: int) -> None:
    with pytest.raises(ConfigError, match="whole number from 1 on"):
        Limits(queue, queue_bytes)


@pytest.mark.parametrize("overflow", Overflow)
async def test_frame_larger_than_the_whole_queue_is_refused_at_once(stage: Stage, overflow: Overflow) -> None:
    context = stage.context(Limits(queue_bytes=10, overflow=overflow))
    waiting = stage.offer(context, nbytes=1)
    with anyio.fail_after(1), pytest.raises(QueueFull):
        await stage.queue(context, 1, nbytes=11)
    assert waiting.outcome is None
    assert stage.seated == []


async def test_newest_frame_takes_the_place_of_the_oldest(stage: Stage) -> None:
    context = stage.context(Limits(queue=2, overflow=Overflow.DROP_OLDEST))
    urgent, plain, newest = (stage.offer(context, priority=priority) for priority in (5, 0, 0))
    assert isinstance(urgent.error, Superseded)
    assert [context.take(0), context.take(0)] == [plain, newest]
    assert context.outcomes[Outcome.SUPERSEDED] == 1


async def test_large_frame_takes_as_many_places_as_it_needs(stage: Stage) -> None:
    context = stage.context(Limits(queue_bytes=10, overflow=Overflow.DROP_OLDEST))
    old = [stage.offer(context, nbytes=3) for _ in range(3)]
    new = stage.offer(context, nbytes=5)
    assert [frame.outcome for frame in old] == [Outcome.SUPERSEDED, Outcome.SUPERSEDED, None]
    assert [context.take(0), context.take(0), context.take(0)] == [old[2], new, None]


# -- waiting for room ------------------------------------------------------------------------------


async def test_waiting_callers_are_admitted_in_the_order_they_came(stage: Stage) -> None:
    context = stage.context(Limits(queue=2, overflow=WAIT))
    await stage.line_up(context, *range(6))
    assert stage.seated == [0, 1]
    for _ in range(2):
        context.take(0)
        context.take(0)
        await anyio.sleep(0.001)
    assert stage.seated == [0, 1, 2, 3, 4, 5]
    assert context.state.waiting == 2


async def test_newcomer_does_not_overtake_a_caller_who_was_just_woken(stage: Stage) -> None:
    context = stage.context(Limits(queue=1, overflow=WAIT))
    await stage.line_up(context, 0, 1)

    async def come_in_the_same_step() -> None:
        context.take(0)  # wakes the second caller, who has not run yet
        await stage.queue(context, 2)

    stage.tasks.start_soon(come_in_the_same_step)
    await anyio.sleep(0.001)
    assert stage.seated == [0, 1]
    context.take(0)
    await anyio.sleep(0.001)
    assert stage.seated == [0, 1, 2]


async def test_one_large_frame_that_leaves_makes_room_for_many_small_ones(stage: Stage) -> None:
    context = stage.context(Limits(queue_bytes=10, overflow=WAIT))
    stage.offer(context, nbytes=10)
    await stage.line_up(context, 0, 1, 2)
    context.take(0)
    await anyio.sleep(0.001)
    assert stage.seated == [0, 1, 2]


async def test_small_frame_does_not_overtake_a_large_one(stage: Stage) -> None:
    context = stage.context(Limits(queue_bytes=10, overflow=WAIT))
    for _ in range(2):
        stage.offer(context, nbytes=5)
    await stage.line_up(context, 0, nbytes=10)
    await stage.line_up(context, 1, nbytes=1)
    context.take(0)
    await anyio.sleep(0.001)
    assert stage.seated == []
    context.take(0)
    await anyio.sleep(0.001)
    assert stage.seated == [0]


@pytest.mark.parametrize("woken", [True, False])
async def test_cancelled_waiter_passes_its_place_on(stage: Stage, woken: bool) -> None:
    context = stage.context(Limits(queue=1, overflow=WAIT))
    stage.offer(context)
    async with anyio.create_task_group() as first:
        first.start_soon(stage.queue, context, 0)
        await anyio.sleep(0.001)
        await stage.line_up(context, 1)
        if woken:
            context.take(0)
        first.cancel_scope.cancel()
    if not woken:
        context.take(0)
    if 0 in stage.seated:  # its waking won over its cancellation
        context.take(0)
    await anyio.sleep(0.001)
    assert stage.seated[-1] == 1


async def test_waiter_cancelled_in_the_middle_of_the_line_holds_nobody_up(stage: Stage) -> None:
    context = stage.context(Limits(queue=1, overflow=WAIT))
    await stage.line_up(context, 0, 1)
    with anyio.move_on_after(0.001):
        await stage.queue(context, 2)
    await stage.line_up(context, 3)
    for _ in range(3):
        context.take(0)
        await anyio.sleep(0.001)
    assert stage.seated == [0, 1, 3]


async def test_frame_that_settles_while_it_waits_makes_room(stage: Stage) -> None:
    context = stage.context(Limits(queue=1, overflow=WAIT))
    frame = stage.offer(context)
    await stage.line_up(context, 1)
    context.cancel(frame)
    await anyio.sleep(0.001)
    assert stage.seated == [1]


async def test_closing_ends_every_wait_in_the_refusal(stage: Stage) -> None:
    context = stage.context(Limits(queue=1, overflow=WAIT))
    stage.offer(context)
    refused: list[int] = []

    async def queue(number: int) -> None:
        with pytest.raises(ModelClosed):
            await stage.queue(context, number)
        refused.append(number)

    async with anyio.create_task_group() as callers:
        for number in range(3):
            callers.start_soon(queue, number)
        await anyio.sleep(0.001)
        context.close(_refusal)
    assert sorted(refused) == [0, 1, 2]
    assert context.refused["closed"] == 3


async def test_retuned_queue_wakes_as_many_as_now_fit(stage: Stage) -> None:
    context = stage.context(Limits(queue=1, overflow=WAIT))
    async with Supervisor() as supervisor:
        ref = supervisor.start(lambda: context, name="net")
        await stage.line_up(context, *range(5))
        await ref.ask(Retune(Limits(queue=4, overflow=WAIT)))
        await anyio.sleep(0.001)
    assert stage.seated == [0, 1, 2, 3]


async def test_queue_retuned_below_what_waits_keeps_it_and_admits_no_more(stage: Stage) -> None:
    context = stage.context(Limits(queue=3))
    frames = [stage.offer(context) for _ in range(3)]
    async with Supervisor() as supervisor:
        await supervisor.start(lambda: context, name="net").ask(Retune(Limits(queue=1)))
    with pytest.raises(QueueFull):
        stage.offer(context)
    assert [context.take(0) for _ in range(3)] == frames


# -- service ---------------------------------------------------------------------------------------


async def test_group_is_told_of_a_backlog_that_was_empty_and_of_each_doubling(stage: Stage) -> None:
    context = stage.context()
    told: list[int] = []
    for _ in range(9):
        stage.offer(context)
        told.append(stage.group.pokes)
    assert told == [1, 2, 2, 3, 3, 3, 3, 4, 4]
    assert context.state.ready_since == anyio.current_time()
    late = Group()
    context.attach(late)
    assert late.pokes == 1


async def test_deadline_in_the_past_is_refused(stage: Stage) -> None:
    context = stage.context()
    with pytest.raises(DeadlineUnreachable, match="the deadline passed"):
        stage.offer(context, deadline=anyio.current_time())
    assert context.refused == {"deadline": 1}
    assert context.admitted == 0


async def test_take_passes_over_what_has_expired(stage: Stage) -> None:
    context = stage.context()
    now = anyio.current_time()
    late = stage.offer(context, deadline=now + 1, expires=now + 1)
    in_time = stage.offer(context, deadline=now + 2)
    assert context.take(now + 1) is in_time
    assert isinstance(late.error, DeadlineExceeded)
    assert (context.state.waiting, context.in_flight) == (0, 1)


async def test_what_would_be_late_costs_no_device_time(stage: Stage) -> None:
    context = stage.context()
    now = anyio.current_time()
    late = stage.offer(context, deadline=now + 0.5, expires=now + 0.5)
    scoped = stage.offer(context, deadline=now + 0.6)
    in_time = stage.offer(context, deadline=now + 1, expires=now + 1)
    assert context.take(now, service=1.0) is in_time
    assert (late.outcome, scoped.outcome) == (Outcome.WITHDRAWN, Outcome.EXPIRED)
    assert isinstance(late.error, DeadlineUnreachable)
    assert str(late.error) == "net: an answer takes 1 s at least, and the deadline comes in 0.5 s"
    assert (context.state.waiting, context.in_flight, len(stage.wheel)) == (0, 1, 1)


async def test_wheel_ends_what_waits_and_what_is_started(stage: Stage) -> None:
    context = stage.context()
    deadline = anyio.current_time() + 1
    started, waiting = (stage.offer(context, deadline=deadline, expires=deadline) for _ in range(2))
    assert context.take(0) is started
    await anyio.sleep(1 + TICK)
    assert isinstance(waiting.error, DeadlineExceeded)
    assert isinstance(started.error, DeadlineExceeded)
    assert context.unsettled == 0
    assert context.take(0) is None
    assert stage.group.abandoned == [started], "nobody waits for it any more, and its device is told"


async def test_cancel_of_a_started_frame_tells_its_group(stage: Stage) -> None:
    context = stage.context()
    started, waiting = stage.offer(context), stage.offer(context)
    context.take(0)
    context.cancel(started)
    context.cancel(waiting)
    assert stage.group.abandoned == [started]
    assert context.outcomes[Outcome.CANCELLED] == 2
    assert len(stage.wheel) == 0


async def test_undone_frame_runs_again_once(stage: Stage) -> None:
    context = stage.context()
    first, second = stage.offer(context), stage.offer(context)
    assert context.take(0) is first
    assert context.undo(first)
    assert (context.state.waiting, context.in_flight) == (2, 0)
    assert [context.take(0), context.take(0)] == [first, second]
    assert not context.undo(first)


async def test_undone_frame_has_waited_since_it_came(stage: Stage) -> None:
    context = stage.context()
    frame = stage.offer(context)
    context.take(0)
    await anyio.sleep(1)
    stage.offer(context)
    context.take(0)
    pokes = stage.group.pokes
    assert context.undo(frame)
    assert context.state.ready_since == frame.offered == anyio.current_time() - 1
    assert stage.group.pokes > pokes


async def test_undone_frames_come_back_in_their_order(stage: Stage) -> None:
    context = stage.context()
    frames = [stage.offer(context) for _ in range(4)]
    for frame in [context.take(0) for _ in range(3)]:
        assert frame is not None
        assert context.undo(frame)
    assert [context.take(0) for _ in range(4)] == frames


async def test_undone_frame_whose_caller_left_does_not_run_again(stage: Stage) -> None:
    context = stage.context()
    frame = stage.offer(context)
    context.take(0)
    context.cancel(frame)
    assert context.undo(frame)
    assert context.take(0) is None
    assert context.unsettled == 0


async def test_undone_frame_has_its_second_chance_while_the_model_drains(stage: Stage) -> None:
    context = stage.context()
    frame = stage.offer(context)
    context.take(0)
    context.close(_refusal, drain=True)
    assert context.undo(frame)
    assert context.take(0) is frame


async def test_no_second_chance_once_the_model_is_closed(stage: Stage) -> None:
    context = stage.context()
    frame = stage.offer(context)
    context.take(0)
    context.close(_refusal)
    assert not context.undo(frame)


async def test_last_group_that_leaves_ends_what_waits(stage: Stage) -> None:
    context = stage.context()
    other = Group()
    context.attach(other)
    frame = stage.offer(context)
    context.detach(stage.group, _refusal)
    assert frame.outcome is None
    context.detach(other, _refusal)
    assert isinstance(frame.error, ModelClosed)
    with pytest.raises(ModelClosed):
        stage.offer(context)


# -- the books -------------------------------------------------------------------------------------


def _reconciles(context: ModelContext) -> bool:
    settled = sum(context.outcomes[outcome] for outcome in Outcome)
    return context.admitted == settled + context.state.waiting + context.in_flight


async def test_each_outcome_is_counted_once(stage: Stage) -> None:
    context = stage.context(Limits(queue=2, overflow=Overflow.DROP_OLDEST))
    answered, failed = stage.offer(context), stage.offer(context)
    context.take(0)
    context.take(0)
    await anyio.sleep(0.25)
    for settle in range(2):
        assert answered.settle(Outcome.ANSWERED, ()) == (settle == 0)
        assert failed.settle(Outcome.FAILED, error=QueueFull()) == (settle == 0)
        answered.due()
    superseded, cancelled = stage.offer(context), stage.offer(context)
    deadline = anyio.current_time() + 1
    expired = stage.offer(context, deadline=deadline, expires=deadline)
    assert _reconciles(context)
    context.cancel(cancelled)
    await anyio.sleep(2)
    hopeless = anyio.current_time() + 1
    withdrawn = stage.offer(context, deadline=hopeless, expires=hopeless)
    assert context.take(anyio.current_time(), service=2.0) is None
    frames = [answered, failed, superseded, cancelled, expired, withdrawn]
    assert [frame.outcome for frame in frames] == [
        Outcome.ANSWERED,
        Outcome.FAILED,
        Outcome.SUPERSEDED,
        Outcome.CANCELLED,
        Outcome.EXPIRED,
        Outcome.WITHDRAWN,
    ]
    assert [context.outcomes[outcome] for outcome in Outcome] == [1] * 6
    assert context.unsettled == 0
    assert _reconciles(context)
    assert list(context.latencies) == pytest.approx([0.25])


async def test_drain_refuses_newcomers_and_ends_with_the_last_outcome(stage: Stage) -> None:
    context = stage.context()
    started, waiting = stage.offer(context), stage.offer(context)
    context.take(0)
    async with Supervisor() as supervisor:
        ref = supervisor.start(lambda: context, name="net")
        done = anyio.Event()

        async def drain() -> None:
            await ref.ask(Drain(_refusal))
            done.set()

        stage.tasks.start_soon(drain)
        await anyio.sleep(1)
        with pytest.raises(ModelClosed):
            stage.offer(context)
        assert waiting.outcome is None
        started.settle(Outcome.ANSWERED, ())
        await anyio.sleep(1)
        assert not done.is_set()
        assert context.take(0) is waiting
        waiting.settle(Outcome.ANSWERED, ())
        with anyio.fail_after(1):
            await done.wait()


async def test_first_refusal_stands(stage: Stage) -> None:
    context = stage.context()
    context.close(_refusal)
    context.close(lambda: QueueFull("another"))
    with pytest.raises(ModelClosed):
        stage.offer(context)


async def test_settled_frame_wakes_its_caller(stage: Stage) -> None:
    context = stage.context()
    frame = stage.offer(context)
    woken = anyio.Event()

    async def wait() -> None:
        assert frame.slot is not None
        await frame.slot
        woken.set()

    stage.tasks.start_soon(wait)
    await checkpoint()
    frame.settle(Outcome.FAILED, error=QueueFull())
    with anyio.fail_after(1):
        await woken.wait()
