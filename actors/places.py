"""The places in a model's queue: whether one is free, and who waits until one is."""

from __future__ import annotations

from collections import deque
from typing import final

from repertory.transports.loop import Loop, Slot

from .backlog import Backlog
from .intake import Intake
from .limits import Limits

__all__ = ["Places"]


@final
class Places:
    """A place is free within the model's bounds and within those of all models together.

    Attributes:
        limits: the model's.

    Args:
        name: the model's.
        backlog: what has a place.
        intake: what waits in all models together; None where nothing bounds that.
    """

    __slots__ = ("_backlog", "_closed", "_intake", "_loop", "_name", "_queuers", "limits")

    def __init__(
        self, name: str, backlog: Backlog, intake: Intake | None, loop: Loop, limits: Limits
    ) -> None:
        self.limits = limits
        self._name = name
        self._backlog = backlog
        self._intake = intake
        self._loop = loop
        self._queuers: deque[Slot] = deque()
        self._closed = False

    def full(self, nbytes: int) -> bool:
        """Whether one more frame of that many bytes would not be admitted now."""
        return self._full(nbytes) or (self._intake is not None and self._intake.full(nbytes))

    def _full(self, nbytes: int) -> bool:
        """Whether it would not be by the bounds of this model."""
        count, held = self._backlog.count, self._backlog.nbytes
        return count >= self.limits.queue or held + nbytes > self.limits.queue_bytes

    def full_without_own(self, nbytes: int) -> bool:
        """Whether it would not be even if nothing of this model waited."""
        own, intake = self._backlog, self._intake
        if intake is not None and intake.full_without(own.count, own.nbytes, nbytes):
            return True
        return nbytes > self.limits.queue_bytes

    def told(self, nbytes: int) -> str:
        """Say which bound keeps a frame of that many bytes out."""
        intake, own, limits = self._intake, self._backlog, self.limits
        if intake is None or self._full(nbytes):
            waiting = f"{own.count} frames wait, {own.nbytes} bytes"
            bounds = f"the bounds are {limits.queue} and {limits.queue_bytes}"
        else:
            waiting = f"{intake.count} frames of all models wait, {intake.nbytes} bytes"
            bounds = f"the bounds of the runtime are {intake.queue} and {intake.queue_bytes}"
        return f"{self._name}: {waiting} in all; one of {nbytes} bytes came; {bounds}"

    # -- the line of those who wait for one --------------------------------------------------------

    def __len__(self) -> int:
        """Callers that wait for a place."""
        return len(self._queuers)

    async def room(self, nbytes: int) -> None:
        """Wait until a frame of that many bytes would be admitted; first come, first served.

        Whoever returns offers in the same step: the next in line is woken, and looks again, only after it.
        A frame that these bounds never admit does not wait.
        """
        queuers = self._queuers
        slot = self._loop.slot()
        queuers.append(slot)
        if self._intake is not None and len(queuers) == 1:
            self._intake.line_up(self.move_up)
        try:
            while not self._closed and (queuers[0] is not slot or self._may_fit_later(nbytes)):
                await slot
                if queuers[0] is slot:
                    slot = queuers[0] = self._loop.slot()
        finally:
            queuers.remove(slot)
            self.move_up()
            if self._intake is not None:
                self._intake.leave(self.move_up)
                if queuers:
                    self._intake.line_up(self.move_up)

    def _may_fit_later(self, nbytes: int) -> bool:
        return self.full(nbytes) and not self._too_large(nbytes)

    def _too_large(self, nbytes: int) -> bool:
        """Whether no bound would ever let a frame of so many bytes wait."""
        return nbytes > self.limits.queue_bytes or (
            self._intake is not None and nbytes > self._intake.queue_bytes
        )

    def move_up(self) -> None:
        """A place may have become free: the first in line looks."""
        if self._queuers:
            self._loop.fill(self._queuers[0])

    def close(self) -> None:
        """Nobody waits any more: whoever asks is refused."""
        self._closed = True
        for slot in self._queuers:
            self._loop.fill(slot)
