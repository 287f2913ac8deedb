"""The carveout: memory that host and DSP share, or that each sees through its own cache."""

from __future__ import annotations

import mmap
import os
from typing import Final, final

from repertory.models.errors import DeviceBusy, DeviceLost
from repertory.transports.rpmsg.memory import PAGE, Buffer, aligned

from .memorymap import BASE
from .mirror import Mirror

__all__ = ["Carveout", "SimulatedBuffer"]

_MIB: Final = 1 << 20


@final
class SimulatedBuffer(Buffer):
    """A stretch of the carveout, as its owner on the host holds it.

    Attributes:
        offset: of its first byte in the carveout.
        attached: whether the DSP that runs now was told of it.
        flushes: syncs so far, likewise `invalidates`.
        synced: bytes that all of them went over.
    """

    def __init__(self, carveout: Carveout, offset: int, size: int) -> None:
        self.size = size
        self.address = BASE + offset
        self.offset = offset
        self.view = carveout.host[offset : offset + size]
        self.attached = True
        self.flushes = 0
        self.invalidates = 0
        self.synced = 0
        self._carveout = carveout

    def __repr__(self) -> str:
        return f"<{self.size} bytes at {self.address:#x}>"

    def flush(self) -> None:
        self.flushes += 1
        self.synced += self.size
        if self._carveout.mirror is not None:
            self._carveout.mirror.flush(self.offset, self.size)

    def invalidate(self) -> None:
        self.invalidates += 1
        self.synced += self.size
        if self._carveout.mirror is not None:
            self._carveout.mirror.invalidate(self.offset, self.size)

    def close(self) -> None:
        self.attached = False
        self._carveout.free(self)


@final
class Carveout:
    """Memory in whole pages; zero until written, and sparse.

    Args:
        size: bytes.
        coherent: whether host and DSP see the same bytes at once.
        first_fit: whether the lowest free stretch is given, else the highest.
        file: a memfd of that size, where another process shares a coherent carveout; else one is made.

    Attributes:
        host: what the host sees, all of it.
        mirror: keeps the two views apart; None where there is one.
        buffers: those that are not closed, by their place; a new list for each change, so that another thread
            may read it meanwhile.

    Raises:
        DeviceLost: this process has no descriptors or no memory left.
    """

    def __init__(self, size: int, *, coherent: bool, first_fit: bool, file: int | None = None) -> None:
        self.size = size
        self.buffers: list[SimulatedBuffer] = []
        self._first_fit = first_fit
        self.mirror: Mirror | None = None
        try:
            if coherent:
                self._only = _memory(size) if file is None else mmap.mmap(file, size)
                self.host = self.device = memoryview(self._only)
            else:
                self.mirror = Mirror(size)
                self.host, self.device = self.mirror.host, self.mirror.device
        except OSError as error:
            raise DeviceLost(
                f"no {size} bytes for a simulated carveout: {error.strerror}",
                family="c7x",
                call="memfd_create",
            ) from error

    def allocate(self, size: int) -> SimulatedBuffer:
        """Give a free stretch, zeroed.

        Raises:
            DeviceBusy: none is large enough.
        """
        if size <= 0:
            raise ValueError(f"a buffer of {size} bytes")
        rounded = aligned(size, PAGE)
        fitting = [(start, end) for start, end in self._gaps() if end - start >= rounded]
        if not fitting:
            free = sum(end - start for start, end in self._gaps())
            raise DeviceBusy(
                f"the carveout has no {rounded} bytes in one piece; {free} of {self.size} are free",
                family="c7x",
                call="DMA_HEAP_IOCTL_ALLOC",
                status=-12,
            )
        offset = fitting[0][0] if self._first_fit else fitting[-1][1] - rounded
        self._clear(offset, rounded)
        buffer = SimulatedBuffer(self, offset, rounded)
        self.buffers = sorted([*self.buffers, buffer], key=lambda held: held.offset)
        return buffer

    def free(self, buffer: SimulatedBuffer) -> None:
        """Take a stretch back; its bytes stay until somebody else gets it."""
        self.buffers = [held for held in self.buffers if held is not buffer]

    def detach(self) -> None:
        """Forget what the DSP was told: it has restarted."""
        for buffer in self.buffers:
            buffer.attached = False

    def holds(self, address: int, size: int) -> bool:
        """Whether these bytes are memory at all."""
        return address >= BASE and address + size <= BASE + self.size

    def attached(self, address: int, size: int) -> bool:
        """Whether first and last byte lie in buffers that the DSP was told of."""
        end = address + size
        for buffer in self.buffers:
            if buffer.attached and buffer.address <= address and end <= buffer.address + buffer.size:
                return True
        return size > 1 and self._covers(address) and self._covers(end - 1)

    def read(self, address: int, size: int) -> bytes:
        """Return what the DSP sees; `holds` must have been asked."""
        return bytes(self.device[address - BASE : address - BASE + size])

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Let the DSP write; `holds` must have been asked."""
        self.device[address - BASE : address - BASE + len(data)] = data

    def _covers(self, address: int) -> bool:
        return any(
            buffer.attached and buffer.address <= address < buffer.address + buffer.size
            for buffer in self.buffers
        )

    def _gaps(self) -> list[tuple[int, int]]:
        edges = [
            0,
            *(edge for held in self.buffers for edge in (held.offset, held.offset + held.size)),
            self.size,
        ]
        return [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if end > start]

    def _clear(self, offset: int, size: int) -> None:
        if self.mirror is not None:
            self.mirror.clear(offset, size)
        else:
            self._only.madvise(mmap.MADV_REMOVE, offset, size)


def _memory(size: int) -> mmap.mmap:
    file = os.memfd_create("repertory-c7x", os.MFD_CLOEXEC)
    try:
        os.truncate(file, size)
        return mmap.mmap(file, size)
    finally:
        os.close(file)
