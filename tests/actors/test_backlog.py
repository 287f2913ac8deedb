from __future__ import annotations

import math
from typing import final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from repertory.actors.backlog import SLACK, Backlog
from repertory.transports.frame import Frame, Outcome

from .books import Owner, frame_of

DEADLINES = st.sampled_from([1.0, 2.0, 3.0, math.inf, math.inf])
PRIORITIES = st.integers(-2, 2)


def _urgency(frame: Frame) -> tuple[int, float, int]:
    return -frame.priority, frame.deadline, frame.seq


def _stored(backlog: Backlog) -> int:
    return sum(len(lane) for lane in backlog._lanes.values())  # pyright: ignore[reportPrivateUsage]


@final
class BacklogMachine(RuleBasedStateMachine):
    """The backlog beside a list that is sorted anew for each question."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog()
        self.waiting: list[Frame] = []
        self.taken: list[Frame] = []
        self.pushed = 0

    def _sorted(self) -> list[Frame]:
        return sorted(self.waiting, key=_urgency)

    @rule(deadline=DEADLINES, priority=PRIORITIES, nbytes=st.integers(0, 3))
    def push(self, deadline: float, priority: int, nbytes: int) -> None:
        self.pushed += 1
        frame = frame_of(
            seq=self.pushed,
            deadline=deadline,
            priority=priority,
            nbytes=nbytes,
            owner=Owner(self.backlog.forget),
        )
        frame.offered = float(self.pushed)
        self.backlog.push(frame)
        self.waiting.append(frame)

    @rule()
    def pop(self) -> None:
        expected = next(iter(self._sorted()), None)
        frame = self.backlog.pop()
        assert frame is expected
        if frame is not None:
            self.waiting.remove(frame)
            self.taken.append(frame)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def push_back(self, data: st.DataObject) -> None:
        frame = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        self.backlog.push_back(frame)
        self.waiting.append(frame)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        frame = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        frame.settle(Outcome.CANCELLED)

    @invariant()
    def it_holds_what_the_list_holds(self) -> None:
        assert self.backlog.frames() == self._sorted()
        assert self.backlog.count == len(self.waiting)
        assert self.backlog.nbytes == sum(frame.nbytes for frame in self.waiting)
        assert self.backlog.oldest() is min(self.waiting, key=lambda frame: frame.seq, default=None)
        came = sorted(frame.seq for frame in self.waiting)
        assert self.backlog.arrivals(3) == came[:3]  # in this machine, frames are offered at their numbers

    @invariant()
    def it_tells_what_is_due(self) -> None:
        for priority in range(-2, 3):
            due = [frame for frame in self._sorted() if frame.priority == priority and frame.deadline < 3.0]
            assert self.backlog.due(priority, 3.0) == due

    @invariant()
    def it_keeps_few_of_those_that_settled(self) -> None:
        assert _stored(self.backlog) <= 2 * self.backlog.count + SLACK


TestBacklog = BacklogMachine.TestCase
TestBacklog.settings = settings(max_examples=50, deadline=None)


@pytest.mark.parametrize("deadlines", [[math.inf], [1.0], [3.0, math.inf, 1.0]])
def test_settled_frames_never_pile_up(deadlines: list[float]) -> None:
    backlog = Backlog()
    owner = Owner(backlog.forget)
    for seq, deadline in enumerate(deadlines * 300):
        frame = frame_of(seq=seq, deadline=deadline, priority=seq % 3, owner=owner)
        backlog.push(frame)
        frame.settle(Outcome.CANCELLED)
        assert _stored(backlog) <= SLACK + 1
    assert backlog.pop() is None
    assert (backlog.count, backlog.nbytes) == (0, 0)


def test_what_is_due_has_a_deadline_before_the_moment() -> None:
    backlog = Backlog()
    assert backlog.due(0, math.inf) == []
    frames = [frame_of(seq=seq, deadline=deadline) for seq, deadline in enumerate((3.0, 1.0, 2.0, math.inf))]
    for frame in frames:
        backlog.push(frame)
    assert backlog.due(0, 2.0) == [frames[1]]
    assert backlog.due(0, math.inf) == [frames[1], frames[2], frames[0]]
    frames[1].settle(Outcome.CANCELLED)
    assert backlog.due(0, 2.5) == [frames[2]]
    assert backlog.due(1, math.inf) == []


def test_frames_that_come_back_keep_their_order() -> None:
    backlog = Backlog()
    frames = [frame_of(seq=seq) for seq in range(6)]
    for frame in frames:
        backlog.push(frame)
    for taken in [backlog.pop() for _ in range(4)]:
        assert taken is not None
        backlog.push_back(taken)
    assert backlog.frames() == frames
