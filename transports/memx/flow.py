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
    output: bool

    def push(self, frame: bytes, now: float) -> bool:
        """Put a frame into an input queue, or return False where it is full."""
        if self._stale:
            return False
        if self.context.enabled:
            check_placed(self.context, "memx_stream_ifmap")
        self.context.advance(now)
        return self.lane.put(self.port.number, frame)

    def take(self, now: float) -> Inference | None:
        """Take the oldest frame of an output queue.

        Returns:
            An inference with outputs: it was taken. One without: the caller is to compute them now, and to
            call again; everybody else waits for it. None: there is nothing to take yet.
        """
        context = self.context
        if context.load is not self.load:
            return None
        context.advance(now)
        oldest = self.lane.oldest(self.port.number)
        if oldest is None or not oldest.claimed:
            if oldest is not None:
                oldest.claimed = True
            return oldest
        if oldest.failure is not None:
            raise oldest.failure
        return None if oldest.outputs is None else self.lane.get(self.port.number)

    def next_event(self) -> float:
        """Return when a `push` or `take` that came to nothing is worth another try, with nobody's help."""
        if self._stale or self.context.group.hung:
            return math.inf
        if self.output:
            return self.lane.next_output(self.context.activity)
        return self.context.next_event()

    @property
    def _stale(self) -> bool:
        return self.context.load is not self.load
