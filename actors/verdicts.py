"""Verdicts against requests: those that cannot be answered by their deadline any more, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias, final

from repertory.transports.frame import Frame

from .admission import LENIENCE, Admission
from .backlog import Backlog

__all__ = ["Verdict", "Verdicts"]

Verdict: TypeAlias = tuple[Frame, str]
"""A request that waits, and why it cannot be met any more."""


@final
class Verdicts:
    """Looks for requests of one model that are too late. It ends none: its owner acts on what it returns.

    Args:
        name: the model's, for messages.
        backlog: what waits.
        admission: tells when a request could be answered at the soonest.
    """

    __slots__ = ("_admission", "_backlog", "_name")

    def __init__(self, name: str, backlog: Backlog, admission: Admission) -> None:
        self._name = name
        self._backlog = backlog
        self._admission = admission

    def at_offer(self, frame: Frame, left: float, now: float) -> str | None:
        """Return why a request that has so many seconds is to be refused, whatever is decided from now on.

        None where it may be met.
        """
        backlog, admission = self._backlog, self._admission
        if admission.within(left, backlog.count, now, frame.priority):
            return None
        soonest, ahead = admission.soonest(backlog.before(frame), now, frame.priority)
        if soonest > left + LENIENCE and (ahead or not admission.doubts(left, now)):
            return (
                f"{self._name}: an answer takes {soonest:.3g} s at least, with {ahead} requests ahead,"
                f" and the deadline comes in {left:.3g} s"
            )
        return None

    def in_queue(self, now: float) -> Iterator[Verdict]:
        """Find what waits and cannot be met any more, one after the other, while the owner ends them.

        Those are left out whose caller ends them himself, by his scope's deadline.
        """
        admission = self._admission
        for priority, (earliest, *_) in self._backlog.outline(1):
            if earliest == math.inf or admission.within(earliest - now, 0, now, priority):
                continue
            soonest, _ = admission.soonest((), now, priority)
            if admission.believes(now):
                for frame in self._backlog.due(priority, now + soonest - LENIENCE):
                    if now < frame.deadline == frame.expires:
                        yield frame, self.late(frame, soonest, now)

    def late(self, frame: Frame, soonest: float, now: float) -> str:
        """Return what is told where an answer takes so many seconds at least, which is too long."""
        left = frame.deadline - now
        return (
            f"{self._name}: an answer takes {soonest:.3g} s at least, and the deadline comes in {left:.3g} s"
        )
