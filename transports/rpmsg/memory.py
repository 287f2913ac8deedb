"""The lowest interface for memory: buffers that host and DSP share, and stretches of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, final

__all__ = ["ALIGNMENT", "PAGE", "Buffer", "Window", "aligned"]

ALIGNMENT: Final = 64
"""Bytes to which every tensor is aligned; a cache line of the DSP is 128, of the Arm cores 64."""

PAGE: Final = 4096
"""Bytes to which the kernel rounds a buffer up."""


def aligned(size: int, to: int = ALIGNMENT) -> int:
    """Round up."""
    return -(-size // to) * to


class Buffer(ABC):
    """One dma-buf, mapped here and attached to the DSP.

    Attributes:
        size: bytes, a multiple of `PAGE`.
        address: of the first byte, for the DSP.
        view: writable bytes. The memory stays mapped as long as anything refers to this view, also after
            `close`: whoever reads a stale view reads old bytes, and never unmapped memory.
    """

    size: int
    address: int
    view: memoryview

    @abstractmethod
    def flush(self) -> None:
        """Let the DSP see what was written here: sync END | WRITE, which costs by the buffer's size."""

    @abstractmethod
    def invalidate(self) -> None:
        """Let this process see what the DSP wrote: sync START | READ, likewise."""

    @abstractmethod
    def close(self) -> None:
        """Detach it from the DSP and give it back to the heap. Any number of times."""


@final
@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a buffer.

    Attributes:
        buffer: which.
        offset: of its first byte in it.
        size: bytes.
    """

    buffer: Buffer
    offset: int
    size: int

    @property
    def address(self) -> int:
        """Of its first byte, for the DSP."""
        return self.buffer.address + self.offset

    @property
    def view(self) -> memoryview:
        """Its bytes, writable."""
        return self.buffer.view[self.offset : self.offset + self.size]

    def part(self, offset: int, size: int) -> Window:
        """Return a stretch of this one.

        Raises:
            ValueError: it does not lie within.
        """
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ValueError(f"{size} bytes at {offset} do not lie within {self.size}")
        return Window(self.buffer, self.offset + offset, size)
