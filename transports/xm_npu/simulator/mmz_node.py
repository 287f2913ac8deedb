"""An open descriptor of /dev/mmz_userdev."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, final

from .block import Block
from .machine import NpuMachine
from .memory import refuse
from .wire import RANGE, Mmb, MmzCall, mmz_call

__all__ = ["MmzNode"]

_WRITE: Final = 2


@final
class MmzNode:
    """The descriptor; methods raise OSError with the errno of the driver.

    Args:
        machine: what stands behind it.
        process: that opens it, and the only one that may use it.
    """

    def __init__(self, machine: NpuMachine, process: int) -> None:
        self._machine = machine
        self._mmz = machine.mmz
        self._process = process
        self._owner = machine.owner()

    def release(self) -> None:
        """Close it; blocks that are left are leaks, and are freed."""
        self._machine.call(lambda _now: self._mmz.close(self._owner))

    def name(self, request: int) -> str:
        """Return a request's name."""
        try:
            return mmz_call(request).name
        except OSError:
            return f"{request:#x}"

    def map(self, size: int) -> memoryview:
        """Refuse: blocks are mapped by REMAP."""
        refuse(errno.EINVAL, f"a map of {size} bytes")

    async def ioctl(self, request: int, argument: bytearray | int, process: int) -> int:
        """Make a call."""
        if process != self._process:
            refuse(errno.EPERM, f"process {process} uses the descriptor of process {self._process}")
        call = mmz_call(request)
        self._machine.call(lambda _now: self._made(call, argument))
        return 0

    def _made(self, call: MmzCall, argument: bytearray | int) -> None:
        if isinstance(argument, int):
            self._with_number(call, argument)
        elif call is MmzCall.FLUSH:
            self._flush(argument)
        else:
            mmb = Mmb.read(argument)
            calls: dict[MmzCall, Callable[[Mmb], None]] = {
                MmzCall.ALLOC: self._alloc,
                MmzCall.ATTR: self._attr,
                MmzCall.FREE: lambda mmb: self._mmz.free(mmb.phys, self._owner),
                MmzCall.REMAP: lambda mmb: self._remap(mmb, cached=False),
                MmzCall.REMAP_CACHED: lambda mmb: self._remap(mmb, cached=True),
                MmzCall.UNMAP: self._unmap,
                MmzCall.VIRT_GET_PHYS: self._find,
            }
            if call not in calls:
                refuse(errno.EFAULT, f"{call.name} takes a number")
            calls[call](mmb)
            mmb.write(argument)

    def _with_number(self, call: MmzCall, number: int) -> None:
        if call in {MmzCall.ADD_REF, MmzCall.DEC_REF}:
            self._mmz.refer(number, 1 if call is MmzCall.ADD_REF else -1)
        elif call is not MmzCall.FLUSH_ALL:
            refuse(errno.EFAULT, f"{call.name} takes a pointer")
        elif number == 0:
            self._mmz.flush_all()
        elif (block := self._mmz.block(number, 1)) is None:
            refuse(errno.EPERM, f"FLUSH at {number:#x}, where no block is")
        else:
            self._mmz.flush(block.phys, block.size, offset=0)

    def _flush(self, argument: bytearray) -> None:
        if len(argument) < RANGE.size:
            refuse(errno.EFAULT, "bad pointer")
        phys, virt, size = RANGE.unpack_from(argument)
        found = self._mmz.mapped_at(virt, real=False)
        if found is None or found[0] is not self._mmz.block(phys, 1):
            refuse(errno.EFAULT, f"FLUSH: {virt:#x} is no mapping of {phys:#x}")
        self._mmz.flush(phys, size, offset=found[1])

    def _alloc(self, mmb: Mmb) -> None:
        block = self._mmz.alloc(mmb.zone, mmb.name, mmb.size, self._owner)
        block.writable = bool(mmb.prot & _WRITE)
        mmb.phys = block.phys

    def _attr(self, mmb: Mmb) -> None:
        _tell(mmb, self._block(mmb.phys))

    def _remap(self, mmb: Mmb, *, cached: bool) -> None:
        block = self._mmz.map(mmb.phys, mmb.size, cached=cached)
        block.writable = block.writable or bool(mmb.prot & _WRITE)
        mmb.mapped = block.virt

    def _unmap(self, mmb: Mmb) -> None:
        """Unmap by the address where it is mapped, or without one by the physical one."""
        found = self._mmz.mapped_at(mmb.mapped, real=False) if mmb.mapped else None
        if mmb.mapped and found is None:
            refuse(errno.ENOMEM, f"UNMAP of {mmb.mapped:#x}, where nothing is mapped")
        self._mmz.unmap(found[0] if found else self._block(mmb.phys))

    def _find(self, mmb: Mmb) -> None:
        found = self._mmz.mapped_at(mmb.mapped, real=False)
        if found is None:
            refuse(errno.ENOMEM, f"VIRT_GET_PHYS of {mmb.mapped:#x}, where nothing is mapped")
        mmb.phys, mmb.size = found[0].phys + found[1], found[0].size

    def _block(self, phys: int) -> Block:
        block = self._mmz.blocks.get(phys)
        if block is None:
            refuse(errno.EPERM, f"no block begins at {phys:#x}")
        return block


def _tell(mmb: Mmb, block: Block) -> None:
    mmb.size, mmb.mapped, mmb.name, mmb.zone = block.size, block.virt, block.name, block.zone
