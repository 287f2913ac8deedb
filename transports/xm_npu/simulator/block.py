"""A block of physical memory: pages, their content, and how the host has mapped them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final
from weakref import ReferenceType, ref

import numpy as np

from repertory.models.spec import Array

from .cache import Cached, Flushed
from .parameters import PAGE

__all__ = ["Block", "pages"]

_PATTERN: Final = np.frombuffer(bytes(range(0xA1, 0xC0)) * 132 + b"\xd5\xd6\xd7\xd8", np.uint8)
"""Of 4096 bytes; no zeros, so that a host's zeros are told from it."""


def pages(size: int) -> int:
    """Return the bytes of the pages that hold `size`."""
    return -(-size // PAGE) * PAGE


def _aligned(size: int) -> Array:
    """Return uint8[size] that begins at a page of this process."""
    room: Array = np.empty(size + PAGE, np.uint8)
    at = -room.ctypes.data % PAGE
    return room[at : at + size]


@final
class Block:
    """What one ALLOC gives; its bytes exist from their first use on, and begin as garbage.

    Args:
        phys: address of its first page.
        size: bytes, whole pages.
        name: at most 15 characters.
        zone: name of the zone that it lies in.
        owner: who allocated it.
        serial: counts blocks; no two have the same.

    Attributes:
        mappings: how often it is mapped.
        refs: other uses that keep it from going.
        writable: whether the host may write into its mapping.
        virt: the address where it is mapped, or 0.
        address: where the host's view lies in this very process, or 0.
        doomed: whether it was freed while mapped, and goes with the last mapping.
    """

    def __init__(self, phys: int, size: int, *, name: bytes, zone: bytes, owner: int, serial: int) -> None:
        self.phys = phys
        self.size = size
        self.name = name
        self.zone = zone
        self.owner = owner
        self.serial = serial
        self.mappings = 0
        self.refs = 0
        self.writable = True
        self.virt = 0
        self.address = 0
        self.doomed = False
        self._memory: Array | None = None
        self._view: Array | None = None
        self._given: list[ReferenceType[Array]] = []
        self._cache: Cached | None = None

    def __repr__(self) -> str:
        return f"<{self.name.decode(errors='replace')}: {self.size} bytes at {self.phys:#x}>"

    @property
    def memory(self) -> Array:
        """What the NPU sees, uint8[size]."""
        if self._memory is None:
            self._memory = _aligned(self.size)
            self._memory.reshape(-1, PAGE)[:] = np.roll(_PATTERN, self.serial)
        return self._memory

    @property
    def cached(self) -> bool:
        """Whether it is mapped through the cache."""
        return self._cache is not None

    def map(self, *, cached: bool) -> None:
        """Map it, or count one mapping more; of the same kind."""
        if not self.mappings:
            self._view = _aligned(self.size) if cached else self.memory
            self._cache = Cached(self.memory, self._view) if cached else None
            self.address = self._view.ctypes.data
        self.mappings += 1

    def unmap(self) -> None:
        """Count one mapping less, and clean and invalidate its lines."""
        self.flush(0, self.size)
        self.mappings -= 1
        if not self.mappings:
            self._view = self._cache = None
            self.virt = self.address = 0

    @property
    def looked_at(self) -> bool:
        """Whether the host still has views of it, which must not be used once it is unmapped."""
        return any(each() is not None for each in self._given)

    def view(self, start: int, size: int) -> memoryview:
        """Return what the host sees; it is mapped."""
        part = self._seen()[start : start + size]
        self._given = [*(each for each in self._given if each() is not None), ref(part)]
        view = part.data
        return view if self.writable else view.toreadonly()

    def flush(self, start: int, size: int) -> Flushed:
        """Clean and invalidate lines; nothing where it is not cached."""
        return Flushed() if self._cache is None else self._cache.flush(start, size)

    def run_begins(self, start: int, size: int) -> None:
        """Note that the NPU is about to write there."""
        if self._cache is not None:
            self._cache.run_begins(start, size)

    def write(self, start: int, data: Array) -> None:
        """Let the NPU write uint8[n]."""
        self.memory[start : start + data.size] = data
        if self._cache is not None:
            self._cache.device_wrote(start, data.size)

    def write_results(self, parts: Sequence[tuple[int, Array]]) -> None:
        """Let the NPU write what a host is to read, by offset; nobody looks before all of it is there."""
        for start, data in parts:
            self.memory[start : start + data.size] = data
        first = min(start for start, _ in parts)
        size = max(start + data.size for start, data in parts) - first
        if self._cache is not None:
            self._cache.device_wrote(first, size, results=True)

    def _seen(self) -> Array:
        if self._view is None:
            raise ValueError(f"{self!r} is not mapped")
        return self._view
