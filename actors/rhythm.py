"""The rhythm of arrivals: a camera's period and phase, learned as its frames come."""

from __future__ import annotations

import math
from typing import Final, final

__all__ = ["SILENCE", "Rhythm"]

SILENCE: Final = 4.0
"""Periods, or mean gaps, without an arrival: the source has stopped."""

_PATTERN: Final = 4  # gaps that must agree before there is a rhythm
_LIKE: Final = 0.25  # of a period: how far a gap, or an arrival, may be off
_MISSES: Final = 3  # arrivals in a row that are off: the rhythm is over
_PHASE_GAIN: Final = 0.15
_PERIOD_GAIN: Final = 0.02
_GAP_GAIN: Final = 0.1


@final
class Rhythm:
    """Follows arrivals that come at a steady pace, with jitter, slow drift, and frames that are left out.

    It knows no rhythm until four gaps agree within a quarter of their mean, and drops it after three
    arrivals in a row that lie further off than a quarter of a period.

    Attributes:
        period: seconds; 0 while there is no rhythm.
        phase: when the last arrival was due.
        jitter: seconds that arrivals are off, mean.
        last: when the last one came; -inf before the first.
        gap: seconds between arrivals, mean of the last ones; 0 before the second.
        allowance: seconds from arrival to deadline, of the last request; `math.inf` without one.
    """

    __slots__ = ("_count", "_gaps", "_misses", "allowance", "gap", "jitter", "last", "period", "phase")

    def __init__(self) -> None:
        self.period = 0.0
        self.phase = 0.0
        self.jitter = 0.0
        self.last = -math.inf
        self.allowance = math.inf
        self.gap = 0.0
        self._gaps: list[float] = []
        self._misses = 0
        self._count = 0

    def arrive(self, now: float, deadline: float) -> None:
        """Something arrived."""
        gap, self.last = now - self.last, now
        self.allowance = deadline - now
        if gap < math.inf:
            self.gap += (gap - self.gap) * _GAP_GAIN if self.gap else gap
        if self.period:
            self._follow(now)
        else:
            self._search(now, gap)

    def next(self, now: float) -> float:
        """When the next arrival is due, not before `now`; `math.inf` where nobody knows.

        One that is late by more than its jitter is taken for left out.
        """
        period = self.period
        if not period or now - self.last > SILENCE * period:
            return math.inf
        due = self.phase + period
        late = now - due - 4 * self.jitter - 0.02 * period
        if late > 0:
            due += math.ceil(late / period) * period
        return max(now, due)

    def foresee(self, now: float) -> tuple[float, float]:
        """Return when the next arrival is due, and how long after it the one after that.

        Without a rhythm that is by the mean gap; (`math.inf`, 0) where none came, or none for long.
        """
        if self.period:
            return self.next(now), self.period
        if self.gap and now - self.last <= SILENCE * self.gap:
            return now + self.gap, self.gap
        return math.inf, 0.0

    def _search(self, now: float, gap: float) -> None:
        gaps = self._gaps
        if gap == math.inf:
            return
        gaps.append(gap)
        if len(gaps) < _PATTERN:
            return
        mean = sum(gaps) / len(gaps)
        if mean > 0 and max(gaps) - mean <= _LIKE * mean and mean - min(gaps) <= _LIKE * mean:
            self.period, self.phase, self._misses, self._count = mean, now, 0, 0
            self.jitter = sum(abs(gap - mean) for gap in gaps) / len(gaps)
            gaps.clear()
        else:
            del gaps[0]

    def _follow(self, now: float) -> None:
        period = self.period
        steps = max(1, round((now - self.phase) / period))
        due = self.phase + steps * period
        off = now - due
        if abs(off) > _LIKE * period:
            self._misses += 1
            if self._misses >= _MISSES:
                self.period = 0.0
            return
        self._misses = 0
        self._count += 1
        early = 1 / (self._count + 1)  # while young it learns faster
        self.phase = due + off * max(_PHASE_GAIN, early)
        self.period = period + off / steps * max(_PERIOD_GAIN, 0.5 * early * early)
        self.jitter += 0.1 * (abs(off) - self.jitter)
