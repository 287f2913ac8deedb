"""How busy a device was of late, and what came of it."""

from __future__ import annotations

import math
from typing import Final, final

__all__ = ["MEMORY", "Load"]

MEMORY: Final = 1.0
"""Seconds after which what a device did counts for 1/e."""


@final
class Load:
    """Sums that fade.

    Attributes:
        since: up to when they are told.
    """

    __slots__ = ("_busy", "_worth", "since")

    def __init__(self) -> None:
        self._busy = 0.0
        self._worth = 0.0
        self.since = 0.0

    def add(self, now: float, busy: float, worth: float) -> None:
        """The device was busy for so many seconds until now, and what it completed was worth so much."""
        fade = self._fade(now)
        self._busy = self._busy * fade + busy
        self._worth = self._worth * fade + worth
        self.since = now

    def share(self, now: float) -> float:
        """Return the share of its time that it was busy, 0 to 1."""
        return min(1.0, self._busy * self._fade(now) / MEMORY)

    def rate(self, now: float) -> float:
        """Return what it completed was worth, a second."""
        return self._worth * self._fade(now) / MEMORY

    def _fade(self, now: float) -> float:
        return math.exp((self.since - now) / MEMORY) if now > self.since else 1.0
