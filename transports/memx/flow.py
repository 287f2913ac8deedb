"""One stream channel of the simulated library, as a call found it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from .rules import check_placed

if TYPE_CHECKING:
    from .board import Context, Load
    from .image import ChipPort
    from .lane import Inference, Lane

__all__ = ["Flow"]


@final
@dataclass(frozen=True, slots=True)
class Flow:
    """The way to one queue. Once its context loads anew or closes, nothing ever moves here again."""

    context: Context
    load: Load
    lane: Lane
    port: ChipPort

    def push(self, frame: bytes, now: float) -> bool:
        """Put a frame into an input queue, or return False where it is full."""
        if self._stale:
            return False
        if self.context.enabled:
            check_placed(self.context, "memx_stream_ifmap")
        self.context.advance(now)
        ring = self.lane.inputs[self.port.number]
        if ring.full:
            return False
        ring.push(frame)
        return True

    def take(self, now: float) -> Inference | None:
        """Take the oldest frame of an output queue.

        Returns:
            An inference with outputs: it was taken. One without: the caller is to compute them now, and to
            call again; everybody else waits for it. None: there is nothing to take yet.
        """
        if self._stale:
            return None
        self.context.advance(now)
        oldest = self.lane.oldest(self.port.number)
        if oldest is None or not oldest.claimed:
            if oldest is not None:
                oldest.claimed = True
            return oldest
        if oldest.failure is not None:
            raise oldest.failure
        ring = self.lane.outputs[self.port.number]
        return ring.pop() if oldest.outputs is not None and len(ring) else None

    def next_event(self) -> float:
        """Return when the channel's context changes by itself, after the last `push` or `take`."""
        return math.inf if self._stale else self.context.next_event()

    @property
    def _stale(self) -> bool:
        return self.context.load is not self.load
