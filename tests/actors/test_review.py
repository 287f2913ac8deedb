"""What waits behind a commitment and cannot be met any more is withdrawn; all else stays."""

from __future__ import annotations

import gc
import math
from contextlib import suppress
from typing import final
from weakref import ref

import anyio
import pytest

from repertory.actors.context import ModelContext
from repertory.actors.intake import Intake
from repertory.actors.limits import Limits
from repertory.actors.policy import Commitment, ContextState, Entry, GroupState
from repertory.models.errors import DeadlineUnreachable
from repertory.models.program import Program
from repertory.transports.frame import Frame, Outcome
from repertory.transports.loop import current_loop
from repertory.transports.wheel import TICK, Wheel

from .books import NETWORK, frame_of

pytestmark = pytest.mark.virtual

SERVICE, SWAP = 0.01, 0.03


@final
class Group:
    """Holds another model, and serves nothing by itself."""

    def __init__(self) -> None:
        self.state = GroupState("group")

    def defer(self, until: float, now: float, /) -> None:
        """Nothing goes on here."""

    def ready(self, now: float, /) -> None:
        """Nothing is decided here."""

    def poke(self) -> None:
        """Nor here."""

    def abandon(self, frame: Frame, /) -> None:
        raise AssertionError(f"{frame!r} was never started")

    def serve(self, context: ModelContext) -> Entry:
        """Let the group serve a context whose costs it knows."""
        entry = Entry(context.state, Program("net", "net", (), footprint=1, scratch=0, image=None))
        for _ in range(2):  # a single one is not believed
            entry.service.add(SERVICE)
        entry.swap.add(SWAP)
        entry.served = current_loop().now()
        self.state.by_context[context.state] = entry
        context.attach(self)
        return entry

    def commit(self, seconds: float, *, priority: int = 0) -> None:
        """Serve another model first, for so many seconds from now."""
        now = current_loop().now()
        self.state.committed = Commitment(
            ContextState("other", 9), "other", priority, now, now + seconds, now + seconds, 0.0, seconds
        )


@final
class Stage:
    """A context that waits behind another one's turn on each of its groups."""

    def __init__(self, groups: int = 1) -> None:
        self.loop = current_loop()
        self.wheel = Wheel(self.loop)
        self.intake = Intake()
        self.context = ModelContext(
            "net", NETWORK, Limits(), loop=self.loop, wheel=self.wheel, intake=self.intake
        )
        self.groups = [Group() for _ in range(groups)]
        self.entries = [group.serve(self.context) for group in self.groups]

    def offer(self, timeout: float, *, priority: int = 0, scoped: bool = False) -> Frame:
        """Admit a frame; a scoped one is ended by its caller's scope alone."""
        deadline = self.loop.now() + timeout
        frame = frame_of(deadline=deadline, priority=priority, nbytes=7)
        frame.owner, frame.slot = self.context, self.loop.slot()
        self.context.offer(frame, expires=math.inf if scoped else deadline)
        return frame

    def review(self) -> None:
        self.context.review(self.loop.now())
        books, state = self.context.outcomes, self.context.state
        assert self.context.admitted == sum(books) + state.waiting + self.context.in_flight
        assert (self.intake.count, self.intake.nbytes) == (state.waiting, 7 * state.waiting)


async def test_what_cannot_be_met_ends_before_its_deadline_and_leaves_nothing() -> None:
    stage = Stage()
    frames = [stage.offer(timeout) for timeout in (0.5, 0.53, 0.539, 0.5401, 2.0)]
    endless = stage.offer(math.inf)
    stage.groups[0].commit(0.5)
    stage.review()
    assert [frame.outcome for frame in frames] == [Outcome.WITHDRAWN] * 3 + [None] * 2
    assert endless.outcome is None
    told = [str(frame.error) for frame in frames[:3]]
    assert told[0] == "net: an answer takes 0.54 s at least, and the deadline comes in 0.5 s"
    assert all(isinstance(frame.error, DeadlineUnreachable) for frame in frames[:3])
    assert stage.context.outcomes[Outcome.WITHDRAWN] == 3
    assert stage.context.state.waiting == 3
    assert len(stage.wheel) == 2, "nothing of theirs comes up later"
    assert frames[0].inputs == ()
    with anyio.fail_after(1):
        assert frames[0].slot is not None
        await frames[0].slot
    now = stage.loop.now()
    assert [stage.context.take(now) for _ in range(4)] == [frames[3], frames[4], endless, None]


async def test_a_second_review_withdraws_nobody_twice() -> None:
    stage = Stage()
    frame = stage.offer(0.1)
    stage.groups[0].commit(0.5)
    stage.review()
    stage.review()
    stage.context.cancel(frame)
    assert stage.context.outcomes[Outcome.WITHDRAWN] == sum(stage.context.outcomes) == 1
    assert stage.context.unsettled == 0
    assert stage.context.state.kept == 1 - 1 / 32


async def test_who_ends_by_a_scope_alone_stays() -> None:
    stage = Stage()
    scoped, own = stage.offer(0.1, scoped=True), stage.offer(0.2)
    stage.groups[0].commit(0.5)
    stage.review()
    assert (scoped.outcome, own.outcome) == (None, Outcome.WITHDRAWN)


async def test_a_higher_priority_is_not_delayed() -> None:
    stage = Stage()
    frames = [stage.offer(0.1, priority=priority) for priority in (-2, -1, 0, 1)]
    stage.groups[0].commit(0.5, priority=-1)
    stage.review()
    assert [frame.outcome for frame in frames] == [Outcome.WITHDRAWN] * 2 + [None] * 2


async def test_a_higher_priority_is_withdrawn_for_its_own_costs_alone() -> None:
    stage = Stage()
    tight, roomy = (stage.offer(timeout, priority=2) for timeout in (0.05, 0.2))
    await anyio.sleep(0.02)
    stage.groups[0].commit(0.5, priority=1)
    stage.review()
    assert str(tight.error) == "net: an answer takes 0.04 s at least, and the deadline comes in 0.03 s"
    assert roomy.outcome is None


async def test_what_came_after_the_decision_is_not_delayed() -> None:
    stage = Stage()
    stage.groups[0].commit(0.5)
    await anyio.sleep(0.01)
    frame = stage.offer(0.1)
    stage.review()
    assert frame.outcome is None
    stage.groups[0].commit(0.5)
    stage.review()
    assert frame.outcome is Outcome.WITHDRAWN, "that was decided against it"


async def test_another_group_may_still_do_it() -> None:
    stage = Stage(groups=2)
    frame = stage.offer(0.2)
    stage.groups[0].commit(0.5)
    stage.review()
    assert frame.outcome is None
    stage.groups[1].commit(0.3)
    stage.review()
    assert str(frame.error) == "net: an answer takes 0.34 s at least, and the deadline comes in 0.2 s"


async def test_nobody_is_withdrawn_by_what_is_unknown_or_old() -> None:
    stage = Stage()
    (entry,) = stage.entries
    frame = stage.offer(0.5)
    stage.groups[0].commit(1.0)
    stage.groups[0].state.in_service = False
    stage.review()
    stage.groups[0].state.in_service, entry.service.samples = True, 0
    stage.review()
    for samples, served in ((2, -math.inf), (1, stage.loop.now())):  # old; and a single one
        entry.service.samples, entry.served = samples, served
        stage.review()
    assert frame.outcome is None
    entry.service.samples = 2
    entry.served = stage.loop.now()
    stage.review()
    assert frame.outcome is Outcome.WITHDRAWN


async def test_a_request_that_comes_behind_others_is_refused_by_what_they_wait_for() -> None:
    stage = Stage()
    stage.offer(math.inf)
    stage.groups[0].commit(0.5)
    told = "net: an answer takes 0.54 s at least, with 0 requests ahead, and the deadline comes in 0.5 s"
    with pytest.raises(DeadlineUnreachable, match=told):
        stage.offer(0.5)
    assert stage.context.refused == {"deadline": 1}
    stage.offer(0.045, priority=1)


async def test_what_is_refused_is_freed_at_once() -> None:
    stage = Stage()
    stage.offer(math.inf)
    stage.groups[0].commit(0.5)
    deadline = stage.loop.now() + 0.1
    frame = frame_of(deadline=deadline)
    tensor = ref(frame.inputs[0])
    gc.disable()
    try:
        with suppress(DeadlineUnreachable):
            stage.context.offer(frame, expires=deadline)
        del frame
        assert tensor() is None, "and not when the collector comes by"
    finally:
        gc.enable()
    assert stage.context.refused == {"deadline": 1}


async def test_what_has_expired_already_was_not_told_before_its_deadline() -> None:
    stage = Stage()
    frame = stage.offer(0.05)
    await anyio.sleep(0.05 + TICK / 2)
    stage.groups[0].commit(0.5)
    stage.review()
    assert frame.outcome in {None, Outcome.EXPIRED}
