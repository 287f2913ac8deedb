"""Shared memory: files that live in no folder, handed over by descriptor.

Not /dev/shm, which containers keep small, and nothing that has a name to leave behind: the kernel frees
such a file with the last process that holds it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Generator
from contextlib import contextmanager
from itertools import accumulate
from typing import Final, final

__all__ = ["NAME", "Arena", "content", "sealed"]

NAME: Final = "repertory"
"""What the files are called in /proc/<pid>/fd."""


@final
class Arena:
    """Memory of one size for each frame in flight, mapped in both processes.

    Pages cost nothing until they are written. The slot that was freed last is taken first, so that a few
    frames in flight touch few pages, whatever the window.

    Attributes:
        slot_size: bytes of a slot.
        memory: all of them.
    """

    def __init__(self, file: int, slot_size: int) -> None:
        self.slot_size = slot_size
        self.memory = mmap.mmap(file, 0)
        self._free = list(range(len(self.memory) // slot_size - 1, -1, -1))

    @staticmethod
    @contextmanager
    def file(slots: int, slot_size: int) -> Generator[int]:
        """Make the file of an arena, which cannot shrink: a lost page would be a SIGBUS."""
        with _memfd() as file:
            os.ftruncate(file, slots * slot_size)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            yield file

    def take(self) -> int:
        """Return a free slot; the owner keeps the window, so there is one."""
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        """A slot is free; from any thread."""
        self._free.append(slot)


@contextmanager
def sealed(*parts: bytes) -> Generator[int]:
    """Make a file with this content, which nobody can change."""
    with _memfd() as file:
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[os.write(file, view) :]
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
        yield file


def content(file: int, *sizes: int) -> list[bytes]:
    """Read parts of these sizes from the beginning of a file on."""
    ends = [*accumulate(sizes)]
    with mmap.mmap(file, 0, prot=mmap.PROT_READ) as memory:
        return [memory[end - size : end] for size, end in zip(sizes, ends, strict=True)]


@contextmanager
def _memfd() -> Generator[int]:
    file = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        yield file
    finally:
        os.close(file)
