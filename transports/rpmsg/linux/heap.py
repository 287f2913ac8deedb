"""Memory from a DSP's carveout: a dma-buf, mapped here and attached there."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, final

from repertory.models.errors import DeviceBusy, DeviceLost
from repertory.transports.rpmsg.memory import PAGE, Buffer, aligned

from .kernel import (
    ALLOCATION,
    ATTACHMENT,
    DMA_BUF_SYNC,
    DMA_HEAP_ALLOC,
    RPROC_DMA_BUF_ATTACH,
    SYNC,
    SYNC_END,
    SYNC_READ,
    SYNC_START,
    SYNC_WRITE,
    Kernel,
)
from .permission import forbidden

__all__ = ["PREFERRED", "DmaBuffer", "allocate", "find_heap", "heaps"]

PREFERRED: Final = "carveout_vision_apps_shared-memories"
"""The heap that TI's images for c7x_compute have."""

_TRIES: Final = 1000  # of a sync that a signal or a busy fence interrupts
_AGAIN: Final = frozenset({errno.EINTR, errno.EAGAIN})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})


@final
class DmaBuffer(Buffer):
    """A dma-buf with a descriptor of the remote processor of its own.

    An attachment lasts until the descriptor of the remote processor that made it is closed. Each buffer has
    one to itself, so that closing the buffer gives back its memory and no other's.

    Its memory goes back to the heap once the last view is gone as well.
    """

    def __init__(self, kernel: Kernel, fds: tuple[int, int], view: memoryview, address: int) -> None:
        self.size = len(view)
        self.address = address
        self.view = view
        self._kernel = kernel
        self._dma, self._processor = fds

    def flush(self) -> None:
        self._sync(SYNC_END | SYNC_WRITE)

    def invalidate(self) -> None:
        self._sync(SYNC_START | SYNC_READ)

    def close(self) -> None:
        fds, self._dma, self._processor = (self._processor, self._dma), -1, -1
        self.view = memoryview(bytearray())
        for fd in fds:
            if fd >= 0:
                with suppress(OSError):  # it is closed whatever close says
                    self._kernel.close(fd)

    def _sync(self, flags: int) -> None:
        for left in reversed(range(_TRIES)):
            try:
                self._kernel.ioctl(self._dma, DMA_BUF_SYNC, bytearray(SYNC.pack(flags)))
            except OSError as error:
                if not left or error.errno not in _AGAIN:
                    raise _lost("a shared buffer", "DMA_BUF_IOCTL_SYNC", error) from error
            else:
                return


def heaps(dev: Path) -> list[Path]:
    """Return the nodes of all carveout heaps."""
    return sorted((dev / "dma_heap").glob("carveout_*"))


def find_heap(dev: Path, wanted: str | None = None) -> Path:
    """Return the node of the heap to take memory from.

    Args:
        dev: where device nodes lie.
        wanted: a name below `dma_heap`, or a path; without it the preferred heap, or the only one.

    Raises:
        DeviceLost: it is not there, or there are several and none is the preferred one.
    """
    found = heaps(dev)
    names = ", ".join(path.name for path in found) or "none"
    if wanted is not None:
        heap = dev / "dma_heap" / wanted
        if not heap.exists():
            raise DeviceLost(f"{heap}: no such heap; of carveouts there are: {names}", family="c7x")
        return heap
    preferred = [path for path in found if path.name == PREFERRED] or found
    if len(preferred) == 1:
        return preferred[0]
    if not found:
        raise DeviceLost(f"{dev}/dma_heap: no carveout_* heap: this kernel has none for DSPs", family="c7x")
    raise DeviceLost(f"{dev}/dma_heap: several heaps: {names}; set heap= to one of them", family="c7x")


def allocate(kernel: Kernel, heap: Path, processor: Path, size: int) -> DmaBuffer:
    """Take memory from `heap` and attach it to the processor whose node is `processor`.

    Args:
        kernel: whom to ask.
        heap: node of the heap.
        processor: node of the remote processor.
        size: bytes, at least 1; rounded up to whole pages.

    Raises:
        DeviceBusy: the heap is full.
        DeviceLost: a node is not there or may not be used, or a call failed.
    """
    size = aligned(size, PAGE)
    with ExitStack() as failed:
        dma = _take(kernel, heap, size)
        failed.callback(kernel.close, dma)
        with _mapped(processor, "open"):
            attached = kernel.open(processor)
        failed.callback(kernel.close, attached)
        argument = bytearray(ATTACHMENT.pack(dma, 0))
        with _mapped(processor, "RPROC_IOC_DMA_BUF_ATTACH"):
            _ioctl(kernel, attached, RPROC_DMA_BUF_ATTACH, argument)
        with _mapped(heap, "mmap"):
            view = kernel.map(dma, size)  # last: the traceback of a later error would keep it
        failed.pop_all()
    address: int = ATTACHMENT.unpack(argument)[1]
    return DmaBuffer(kernel, (dma, attached), view, address)


def _take(kernel: Kernel, heap: Path, size: int) -> int:
    """Return the descriptor of a new dma-buf."""
    argument = bytearray(ALLOCATION.pack(size, 0, os.O_RDWR | os.O_CLOEXEC, 0))
    with _mapped(heap, "open"):
        fd = kernel.open(heap)
    try:
        with _mapped(heap, "DMA_HEAP_IOCTL_ALLOC", size):
            _ioctl(kernel, fd, DMA_HEAP_ALLOC, argument)
    finally:
        kernel.close(fd)
    dma: int = ALLOCATION.unpack(argument)[1]
    return dma


def _full(heap: Path, size: int) -> DeviceBusy:
    return DeviceBusy(
        f"{heap}: no {size} bytes are free in one piece; another client of the DSP may be running"
        " (one of wire version 2 takes all of it), or results of an earlier session are still held",
        family="c7x",
        call="DMA_HEAP_IOCTL_ALLOC",
    )


def _ioctl(kernel: Kernel, fd: int, request: int, argument: bytearray) -> None:
    while True:
        try:
            return kernel.ioctl(fd, request, argument)
        except InterruptedError:
            continue


@contextmanager
def _mapped(node: Path, call: str, wanted: int | None = None) -> Generator[None]:
    """Turn an OSError into ours; ENOMEM is a full heap where `wanted` bytes were asked for."""
    try:
        yield
    except OSError as error:
        if error.errno in _FORBIDDEN:
            raise forbidden(node, call=call) from error
        if error.errno == errno.ENOMEM and wanted is not None:
            raise _full(node, wanted) from error
        raise _lost(str(node), call, error) from error


def _lost(what: str, call: str, error: OSError) -> DeviceLost:
    return DeviceLost(f"{what}: {call}: {error.strerror or error}", family="c7x", call=call)
