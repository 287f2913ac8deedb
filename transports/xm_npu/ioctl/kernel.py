"""The seam of system calls: what Linux is asked for, and a double can answer.

Arguments of ioctls are bytes laid out for a 32-bit process, for there is no other driver: see
`generation.py`.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import final

__all__ = ["Kernel", "LinuxKernel"]


class Kernel(ABC):
    """System calls, async-coloured where they may wait; every method raises OSError as the call sets errno.

    Attributes:
        bits: of a pointer of this process: the driver of this family serves 32.
    """

    bits: int

    @abstractmethod
    def open(self, path: Path) -> int:
        """Open a node to read and write; closed on exec."""

    @abstractmethod
    def close(self, fd: int) -> None:
        """Close a descriptor."""

    @abstractmethod
    async def ioctl(self, fd: int, request: int, argument: bytearray | int = 0) -> int:
        """Make an ioctl and return its value; bytes are changed in place, a number passes by itself."""

    @abstractmethod
    def map(self, fd: int, size: int) -> memoryview:
        """Map a descriptor at offset 0, shared and writable; unmapped when the last view is gone."""

    @abstractmethod
    def memory(self, address: int, size: int) -> memoryview:
        """Return the bytes that a driver has mapped into this process at an address; writable."""

    @abstractmethod
    def nodes(self, directory: Path) -> Sequence[str]:
        """Return the names in a directory, sorted; none where it is not there."""

    @abstractmethod
    def process(self) -> int:
        """Return the number of this process."""


@final
class LinuxKernel(Kernel):
    """The kernel that runs this process."""

    bits = 8 * struct.calcsize("P")

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    async def ioctl(self, fd: int, request: int, argument: bytearray | int = 0) -> int:
        value: int = (
            fcntl.ioctl(fd, request, argument)
            if isinstance(argument, int)
            else fcntl.ioctl(fd, request, argument, True)
        )
        return value

    def map(self, fd: int, size: int) -> memoryview:
        return memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))

    def memory(self, address: int, size: int) -> memoryview:
        return memoryview((ctypes.c_uint8 * size).from_address(address)).cast("B")

    def nodes(self, directory: Path) -> Sequence[str]:
        try:
            return sorted(entry.name for entry in directory.iterdir())
        except FileNotFoundError:
            return []

    def process(self) -> int:
        return os.getpid()
