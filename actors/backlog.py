"""What waits for a device: by priority, then deadline, then order of arrival; bounded by its owner."""

from __future__ import annotations

import bisect
import math
from collections import deque
from itertools import islice, takewhile
from typing import final

from repertory.transports.frame import Frame

from .intake import Intake

__all__ = ["SLACK", "Backlog"]

SLACK = 64
"""Settled frames that may linger in a lane before it is swept."""


@final
class _Lane:
    """The frames of one priority: those with a deadline by deadline, then the others as they came."""

    __slots__ = ("plain", "timed")

    def __init__(self) -> None:
        self.timed: deque[tuple[float, int, Frame]] = deque()
        self.plain: deque[Frame] = deque()

    def push(self, frame: Frame) -> None:
        entry = (frame.deadline, frame.seq, frame)
        timed = self.timed
        if not timed or timed[-1] < entry:  # nearly always: one model's requests have one timeout
            timed.append(entry)
        else:
            bisect.insort(timed, entry)

    def push_back(self, frame: Frame) -> None:
        if frame.deadline == math.inf:
            bisect.insort(self.plain, frame, key=lambda waiting: waiting.seq)
        else:
            self.push(frame)

    def pop(self) -> Frame | None:
        timed = self.timed
        while timed:
            frame = timed.popleft()[2]
            if frame.outcome is None:
                return frame
        plain = self.plain
        while plain:
            frame = plain.popleft()
            if frame.outcome is None:
                return frame
        return None

    def live(self) -> list[Frame]:
        return [f for f in (*(entry[2] for entry in self.timed), *self.plain) if f.outcome is None]

    def up_to(self, deadline: float) -> list[float]:
        """Return the deadlines of those that come before one with that deadline, in their order."""
        due = [entry[0] for entry in self.timed if entry[0] <= deadline and entry[2].outcome is None]
        if deadline == math.inf:
            due += [math.inf for frame in self.plain if frame.outcome is None]
        return due

    def first(self) -> float | None:
        """Return the deadline of what comes first, `math.inf` without one, or None where nothing waits."""
        timed, plain = self.timed, self.plain
        while timed:
            entry = timed[0]
            if entry[2].outcome is None:
                return entry[0]
            timed.popleft()
        while plain:
            if plain[0].outcome is None:
                return math.inf
            plain.popleft()
        return None

    def deadlines(self, most: int) -> list[float]:
        """Return the deadlines of those that come first, `math.inf` without one."""
        self.first()
        timed = self.timed
        due = [entry[0] for entry in islice(timed, most) if entry[2].outcome is None]
        if len(due) < most:
            due += [math.inf for frame in islice(self.plain, most - len(due)) if frame.outcome is None]
        return due

    def oldest(self, most: int) -> list[Frame]:
        """Return the frames that came first: about so many, or all that have a deadline."""
        plain = self.plain
        while plain and plain[0].outcome is not None:
            plain.popleft()
        timed = [entry[2] for entry in self.timed if entry[2].outcome is None]
        return timed + list(islice((frame for frame in plain if frame.outcome is None), most))

    def due(self, limit: float) -> list[Frame]:
        """Return what waits with a deadline before a moment."""
        return [
            frame
            for *_, frame in takewhile(lambda entry: entry[0] < limit, self.timed)
            if frame.outcome is None
        ]

    def sweep(self) -> None:
        self.timed = deque(entry for entry in self.timed if entry[2].outcome is None)
        self.plain = deque(frame for frame in self.plain if frame.outcome is None)

    def __len__(self) -> int:
        return len(self.timed) + len(self.plain)


@final
class Backlog:
    """Frames that settle while they wait stop counting at once and are swept later.

    Attributes:
        count: frames that wait.
        nbytes: bytes of their inputs.

    Args:
        intake: counts what waits in all backlogs; None where nobody bounds that.
    """

    __slots__ = ("_arrivals", "_intake", "_lanes", "count", "nbytes")

    def __init__(self, intake: Intake | None = None) -> None:
        self._intake = intake
        self._lanes: dict[int, _Lane] = {}
        self._arrivals: dict[Frame, None] | None = None
        self.count = 0
        self.nbytes = 0

    def push(self, frame: Frame) -> None:
        """Add a frame behind its equals."""
        lane = self._lanes.get(frame.priority)
        if lane is None:
            lane = self._lane(frame.priority)
        if self._arrivals is not None:
            self._arrivals[frame] = None
        if frame.deadline == math.inf:
            lane.plain.append(frame)
        else:
            lane.push(frame)
        self.count += 1
        self.nbytes += frame.nbytes
        if self._intake is not None:
            self._intake.add(frame.nbytes)

    def push_back(self, frame: Frame) -> None:
        """Return a frame that was popped to its place among its equals."""
        self._lane(frame.priority).push_back(frame)
        self.count += 1
        self.nbytes += frame.nbytes
        if self._intake is not None:
            self._intake.add(frame.nbytes)
        if self._arrivals is not None:
            self.track_arrivals(wanted=True)

    def pop(self) -> Frame | None:
        """Take the most urgent frame that waits, or None."""
        for lane in self._lanes.values():
            frame = lane.pop()
            if frame is not None:
                self.count -= 1
                self.nbytes -= frame.nbytes
                if self._intake is not None:
                    self._intake.remove(frame.nbytes)
                if self._arrivals is not None:
                    self._arrivals.pop(frame, None)
                return frame
        return None

    def forget(self, frame: Frame) -> None:
        """Stop counting a frame that settled while it waited."""
        self.count -= 1
        self.nbytes -= frame.nbytes
        if self._intake is not None:
            self._intake.remove(frame.nbytes)
        if self._arrivals is not None:
            self._arrivals.pop(frame, None)
        if sum(map(len, self._lanes.values())) > 2 * self.count + SLACK:
            for lane in self._lanes.values():
                lane.sweep()

    def track_arrivals(self, *, wanted: bool) -> None:
        """Keep what makes `oldest` cheap, or stop keeping it."""
        in_order = sorted(self.frames(), key=lambda frame: frame.seq)
        self._arrivals = dict.fromkeys(in_order) if wanted else None

    def oldest(self) -> Frame | None:
        """Return the waiting frame that was admitted first, or None."""
        if self._arrivals is not None:
            return next(iter(self._arrivals), None)
        return min(self.frames(), key=lambda frame: frame.seq, default=None)

    def arrivals(self, most: int) -> list[float]:
        """Return when the first so many of what waits were offered, oldest first."""
        first = [frame for lane in self._lanes.values() for frame in lane.oldest(most)]
        first.sort(key=lambda frame: frame.seq)
        return [frame.offered for frame in first[:most]]

    def before(self, frame: Frame) -> list[float]:
        """Return the deadlines of what waits and is taken before a frame that comes now, in that order."""
        due: list[float] = []
        for priority, lane in self._lanes.items():
            if priority >= frame.priority:
                due += lane.up_to(math.inf if priority > frame.priority else frame.deadline)
        return due

    def glance(self) -> tuple[int, float]:
        """Return priority and deadline of what is taken next; (0, `math.inf`) where nothing waits."""
        for priority, lane in self._lanes.items():
            timed = lane.timed
            if timed and timed[0][2].outcome is None:  # nearly always, and this is asked all the time
                return priority, timed[0][0]
            if (deadline := lane.first()) is not None:
                return priority, deadline
        return 0, math.inf

    def earliest(self) -> float:
        """Return the earliest deadline of what waits; `math.inf` without one."""
        firsts = [lane.first() for lane in self._lanes.values()]
        return min([first for first in firsts if first is not None], default=math.inf)

    def outline(self, most: int) -> list[tuple[int, list[float]]]:
        """Return deadlines in the order of taking, by priority: about the first `most` of each."""
        lanes: list[tuple[int, list[float]]] = []
        for priority, lane in self._lanes.items():
            if due := lane.deadlines(most):
                lanes.append((priority, due))
        return lanes

    def due(self, priority: int, limit: float) -> list[Frame]:
        """Return what waits of one priority with a deadline before a moment."""
        lane = self._lanes.get(priority)
        return [] if lane is None else lane.due(limit)

    def frames(self) -> list[Frame]:
        """Return what waits, in the order of taking."""
        return [frame for lane in self._lanes.values() for frame in lane.live()]

    def _lane(self, priority: int) -> _Lane:
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._lanes[priority] = _Lane()
            self._lanes = dict(sorted(self._lanes.items(), reverse=True))
        return lane
