"""The seam of system calls: what Linux is asked for, and a double can answer.

Numbers and layouts are those of <linux/rpmsg.h>, <linux/dma-heap.h> and <linux/dma-buf.h>, and of TI's
kernels for the remoteproc call, which mainline does not have.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from abc import ABC, abstractmethod
from pathlib import Path
from struct import Struct
from typing import Final, final

__all__ = [
    "ADDR_ANY",
    "ALLOCATION",
    "ATTACHMENT",
    "DMA_BUF_SYNC",
    "DMA_HEAP_ALLOC",
    "ENDPOINT_INFO",
    "RPMSG_CREATE_EPT",
    "RPMSG_DESTROY_EPT",
    "RPROC_DMA_BUF_ATTACH",
    "SYNC",
    "SYNC_END",
    "SYNC_READ",
    "SYNC_START",
    "SYNC_WRITE",
    "Kernel",
    "LinuxKernel",
]

RPMSG_CREATE_EPT: Final = 0x4028B501
RPMSG_DESTROY_EPT: Final = 0x0000B502
DMA_HEAP_ALLOC: Final = 0xC0184800
DMA_BUF_SYNC: Final = 0x40086200
RPROC_DMA_BUF_ATTACH: Final = 0xC010B700

ENDPOINT_INFO: Final = Struct("<32sII")
"""Of RPMSG_CREATE_EPT: name, source, destination."""

ALLOCATION: Final = Struct("<QIIQ")
"""Of DMA_HEAP_ALLOC: bytes, descriptor (out; 0 on the way in), its flags, the heap's flags."""

SYNC: Final = Struct("<Q")
"""Of DMA_BUF_SYNC: flags."""

ATTACHMENT: Final = Struct("<I4xQ")
"""Of RPROC_DMA_BUF_ATTACH: descriptor, address for the DSP (out)."""

ADDR_ANY: Final = 0xFFFFFFFF
SYNC_START: Final = 0
SYNC_READ: Final = 1
SYNC_WRITE: Final = 2
SYNC_END: Final = 4


class Kernel(ABC):
    """System calls; every method raises OSError as the call sets errno."""

    @abstractmethod
    def open(self, path: Path) -> int:
        """Open a node to read and write; non-blocking, and closed on exec."""

    @abstractmethod
    def close(self, fd: int) -> None:
        """Close a descriptor."""

    @abstractmethod
    def ioctl(self, fd: int, request: int, argument: bytearray | None = None) -> None:
        """Make an ioctl; `argument` is changed in place."""

    @abstractmethod
    def map(self, fd: int, size: int) -> memoryview:
        """Map a descriptor shared and writable; unmapped when the last view is gone."""

    @abstractmethod
    def read(self, fd: int, size: int) -> bytes:
        """Read one message; what does not fit into `size` is lost."""

    @abstractmethod
    def write(self, fd: int, message: bytes) -> None:
        """Write one message, whole or not at all."""

    @abstractmethod
    def may_use(self, path: Path) -> bool:
        """Tell whether this process may read and write a node; False also where there is none."""

    @abstractmethod
    def changed(self, path: Path) -> float:
        """Return when a file or node was last changed, in seconds of the wall clock."""


@final
class LinuxKernel(Kernel):
    """The kernel that runs this process."""

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def ioctl(self, fd: int, request: int, argument: bytearray | None = None) -> None:
        if argument is None:
            fcntl.ioctl(fd, request)
        else:
            fcntl.ioctl(fd, request, argument, True)

    def map(self, fd: int, size: int) -> memoryview:
        return memoryview(mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))

    def read(self, fd: int, size: int) -> bytes:
        return os.read(fd, size)

    def write(self, fd: int, message: bytes) -> None:
        os.write(fd, message)

    def may_use(self, path: Path) -> bool:
        effective = os.access in os.supports_effective_ids
        return os.access(path, os.R_OK | os.W_OK, effective_ids=effective)

    def changed(self, path: Path) -> float:
        return path.stat().st_ctime
