"""Frame buffers that belong to the library, and are lent to whoever fills or reads them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

import numpy as np

from repertory.models.formats import Bytes
from repertory.transports.memx.constants import Status
from repertory.transports.memx.library import FmapBuffer

from .rules import StatusError

if TYPE_CHECKING:
    from .image import ChipPort

__all__ = ["Buffers", "Lending"]


@final
class Buffers:
    """The buffers of one flow, each of a frame's size: free, lent, or with a frame in the flow's queue."""

    def __init__(self, count: int, size: int) -> None:
        self._memory = np.zeros((count, size), np.uint8)
        self._free = deque(range(count))
        self._lent: dict[int, Bytes] = {}
        self._queued: deque[tuple[int, int]] = deque()

    @property
    def any(self) -> bool:
        """Whether a buffer is free."""
        return bool(self._free)

    def lend(self) -> FmapBuffer | None:
        """Lend a free buffer, if there is one."""
        if not self._free:
            return None
        index = self._free.popleft()
        data = self._lent[index] = self._memory[index]
        return FmapBuffer(index, data)

    def take_back(self, buffer: FmapBuffer) -> None:
        """End a loan.

        Raises:
            StatusError: this is no buffer of the flow that is on loan.
        """
        if self._lent.get(buffer.idx) is not buffer.data:
            raise StatusError(Status.BAD_ENGINE)
        del self._lent[buffer.idx]

    def free(self, index: int) -> None:
        """Note that nothing lies in a buffer."""
        self._free.append(index)

    def queue(self, index: int, place: int) -> None:
        """Note that a buffer's frame is the `place`-th of all that ever came into the queue."""
        self._queued.append((index, place))

    def recover(self, popped: int) -> None:
        """Free what was in the queue, now that so many frames have left it."""
        while self._queued and self._queued[0][1] < popped:
            self.free(self._queued.popleft()[0])


@final
class Lending:
    """The buffers of a loaded model, made for a flow when its first one is asked for."""

    def __init__(self, slots: tuple[int, int]) -> None:
        self._slots = slots
        self._flows: dict[tuple[bool, int], Buffers] = {}

    def of(self, port: ChipPort, *, output: bool) -> Buffers:
        """Return a flow's buffers, as many as its queue has slots."""
        key = output, port.number
        if key not in self._flows:
            self._flows[key] = Buffers(self._slots[output], port.size)
        return self._flows[key]
