"""How libmemx waits: it sleeps 10 us, looks, and counts its looks as if sleeping took no longer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar, final

__all__ = ["POLL", "Polls"]

T = TypeVar("T")

POLL: Final = 10e-6
"""Seconds that one sleep is meant to take; a millisecond of a time-out is a hundred of them."""

_SLACK: Final = 1e-4
"""Part of a step by which a clock may come before the moment that it was to wait for."""


@final
class Polls:
    """The looks of one waiting call, `step` seconds apart; what happens between two is seen at the later.

    Args:
        now: the world's clock.
        step: seconds between two looks.
    """

    def __init__(self, now: Callable[[], float], step: float) -> None:
        self._now = now
        self._step = step
        self._begin = self._next = now()
        self._told = False

    def gate(self, ready: Callable[[], T]) -> Callable[[], T | None]:
        """Let `ready` be asked at a look only; before it the answer is None."""

        def look() -> T | None:
            now = self._now()
            if now < self._next - _SLACK * self._step:  # somebody told of a change
                self._next = min(self._next, self._look_at(now))
                self._told = True
                return None
            self._told = False
            return ready()

        return look

    def delay(self, next_event: Callable[[], float]) -> Callable[[], float]:
        """Put what `next_event` tells off to the look that sees it."""

        def next_look() -> float:
            if not self._told:
                self._next = self._look_at(next_event())
            return self._next

        return next_look

    def _look_at(self, event: float) -> float:
        """Return when something is seen, after the present."""
        if event == math.inf:
            return event
        looks = max(math.ceil(self._steps(event) - _SLACK), math.floor(self._steps(self._now()) + _SLACK) + 1)
        return self._begin + looks * self._step

    def _steps(self, moment: float) -> float:
        return (moment - self._begin) / self._step
