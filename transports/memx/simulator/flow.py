"""One stream channel of the simulated library, as a call found it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from repertory.transports.memx.constants import Status

from .rules import StatusError, check_placed

if TYPE_CHECKING:
    from repertory.transports.memx.library import FmapBuffer

    from .board import Context, Load
    from .image import ChipPort
    from .lane import Inference, Lane
    from .lending import Buffers

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
        if self._stale():
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
        if self._stale():
            return None
        self.context.advance(now)
        oldest = self.lane.oldest(self.port.number)
        if oldest is None or not oldest.claimed:
            if oldest is not None:
                oldest.claimed = True
            return oldest
        if oldest.failure is not None:
            raise oldest.failure
        return None if oldest.outputs is None else self.lane.get(self.port.number)

    def lend_empty(self, now: float) -> FmapBuffer | None:
        """Lend a buffer of an input queue, or return None where all are lent or hold frames."""
        if self._stale():
            return None
        self.context.advance(now)
        self.buffers.recover(self.lane.inputs[self.port.number].popped)
        return self.buffers.lend()

    def send(self, buffer: FmapBuffer, now: float) -> None:
        """Take back a filled buffer, and put its frame into the input queue."""
        self.buffers.take_back(buffer)
        if self.context.enabled:
            check_placed(self.context, "memx_enqueue_ifmap_buf")
        self.context.advance(now)
        ring = self.lane.inputs[self.port.number]
        self.buffers.queue(buffer.idx, ring.popped + len(ring))
        self.lane.give(self.port.number, buffer.data.tobytes())

    def lend_full(self, frame: bytes) -> FmapBuffer:
        """Lend a buffer of an output queue with a frame that was taken; there is one, see `Buffers.any`."""
        buffer = self.buffers.lend()
        assert buffer is not None, "nobody asks without a look at it"
        buffer.data[:] = np.frombuffer(frame, np.uint8)
        self.lane.narrow(self.port.number, 1)
        return buffer

    def give_back(self, buffer: FmapBuffer, now: float) -> None:
        """Take back a buffer that was read."""
        self.buffers.take_back(buffer)
        self.context.advance(now)
        self.buffers.free(buffer.idx)
        self.lane.narrow(self.port.number, -1)

    @property
    def buffers(self) -> Buffers:
        """The flow's buffers."""
        return self.load.lending.of(self.port, output=self.output)

    def next_event(self) -> float:
        """Return when a `push` or `take` that came to nothing is worth another try, with nobody's help."""
        context = self.context
        if context.load is not self.load or context.aborted or context.group.halts:
            return math.inf
        return self.lane.next_output(context.activity) if self.output else context.next_event()

    def _stale(self) -> bool:
        if self.context.closed:
            raise StatusError(Status.CONTEXT_NOT_OPEN)
        return self.context.load is not self.load
