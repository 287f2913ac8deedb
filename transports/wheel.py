"""One timer for all deadlines: tickless, in buckets of 5 ms."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Protocol, final

from .loop import Loop, Slot

__all__ = ["FAR", "TICK", "Alarm", "Timed", "Wheel"]

TICK = 0.005
"""Seconds: what is due is told so at most this much late, and never early."""


FAR = 1e12
"""Seconds on the loop's clock beyond which a moment counts as never: some thirty thousand years."""


class Timed(Protocol):
    """What can be put on the wheel.

    Attributes:
        bucket: where it stands, for the wheel alone; None while it is not on the wheel.
    """

    bucket: dict[Timed, None] | None

    def due(self) -> None:
        """Its time has come; it is off the wheel. Must not raise."""


@final
class Alarm:
    """Calls a function when its time has come."""

    __slots__ = ("_callback", "bucket")

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self.bucket: dict[Timed, None] | None = None

    def due(self) -> None:
        self._callback()


@final
class Wheel:
    """Putting something on and taking it off cost a dict operation each, however many wait.

    Those of one bucket are told in the order in which they were put on.

    `run` is one task for the whole wheel. It sleeps until the earliest bucket that holds anything, and is
    woken only by an earlier one.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[Timed, None]] = {}
        self._order: list[int] = []
        self._sleeps_until: float = -math.inf
        self._slot: Slot | None = None

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def add(self, item: Timed, when: float) -> None:
        """Have `item` told at `when`, on the loop's clock; beyond `FAR` is never."""
        if when > FAR:
            return
        tick = math.ceil(when / TICK)
        if tick * TICK < when:  # the division was rounded down
            tick += 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heapq.heappush(self._order, tick)
            if tick < self._sleeps_until and self._slot is not None:
                self._loop.fill(self._slot)
        bucket[item] = None
        item.bucket = bucket

    @staticmethod
    def discard(item: Timed) -> None:
        """Take `item` off, if it is on."""
        if item.bucket is not None:
            item.bucket.pop(item, None)
            item.bucket = None

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            tick = self._next()
            if tick is not None and tick * TICK <= self._loop.now():
                self._tell(tick)
                continue
            self._slot = self._loop.slot()
            self._sleeps_until = math.inf if tick is None else tick
            await self._loop.wait_until(self._slot, self._sleeps_until * TICK)
            self._slot = None

    def _next(self) -> int | None:
        while self._order and not self._buckets[self._order[0]]:
            del self._buckets[heapq.heappop(self._order)]
        return self._order[0] if self._order else None

    def _tell(self, tick: int) -> None:
        heapq.heappop(self._order)
        bucket = self._buckets.pop(tick)
        for item in list(bucket):
            if item.bucket is bucket:  # else one that was told took it off
                item.bucket = None
                item.due()
