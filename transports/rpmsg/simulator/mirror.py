"""Two views of one memory with a cache between: what a host writes, the DSP sees after a sync."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Iterator
from typing import Final, final

import numpy as np

__all__ = ["LINE", "Mirror"]

LINE: Final = 64
"""Bytes of a cache line: what a sync carries over, it carries over in whole ones."""


@final
class _Sheet:
    """Sparse memory that knows where it holds data."""

    def __init__(self, size: int) -> None:
        self._file = os.memfd_create("repertory-c7x", os.MFD_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        os.truncate(self._file, size)
        self._map = mmap.mmap(self._file, size)
        self.view = memoryview(self._map)
        self.lines = np.frombuffer(self._map, np.uint64).reshape(-1, LINE // 8)

    def clear(self, offset: int, size: int) -> None:
        self._map.madvise(mmap.MADV_REMOVE, offset, size)

    def extents(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """Return stretches of lines that were ever written, first and last + 1."""
        end = offset + size
        while offset < end:
            try:
                start = os.lseek(self._file, offset, os.SEEK_DATA)
            except OSError:  # ENXIO: nothing but a hole up to the end
                return
            if start >= end:
                return
            offset = min(os.lseek(self._file, start, os.SEEK_HOLE), end)
            yield start // LINE, offset // LINE


@final
class Mirror:
    """The host's view, the DSP's, and what the host's was at its last sync.

    The difference of the first and the last are the dirty lines of the host's cache.

    Args:
        size: bytes, a multiple of the page size.

    Attributes:
        host: what the host reads and writes.
        device: what the DSP reads and writes.
    """

    def __init__(self, size: int) -> None:
        self._host, self._device, self._synced = _Sheet(size), _Sheet(size), _Sheet(size)
        self.host = self._host.view
        self.device = self._device.view

    def flush(self, offset: int, size: int) -> None:
        """Write the host's dirty lines back."""
        for start, end in self._host.extents(offset, size):
            host, synced = self._host.lines[start:end], self._synced.lines[start:end]
            dirty = (host != synced).any(axis=1)
            self._device.lines[start:end][dirty] = host[dirty]
            synced[dirty] = host[dirty]

    def invalidate(self, offset: int, size: int) -> None:
        """Drop the host's lines, dirty ones too: it reads anew what the DSP sees."""
        for sheet in (self._host, self._device):
            for start, end in sheet.extents(offset, size):
                lines = self._device.lines[start:end]
                self._host.lines[start:end] = lines
                self._synced.lines[start:end] = lines

    def clear(self, offset: int, size: int) -> None:
        """Zero a stretch in every view."""
        for sheet in (self._host, self._device, self._synced):
            sheet.clear(offset, size)
