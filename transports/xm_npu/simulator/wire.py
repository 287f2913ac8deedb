"""The driver's calls as a 32-bit process makes them: numbers and layouts of generation V500, and of MMZ.

Written down a second time, on purpose: `ioctl/generation.py` has them for the driver's user, and an error
there shows here.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final, final

from .memory import refuse

__all__ = [
    "JOB",
    "MMB",
    "OPEN",
    "RANGE",
    "REGISTERS",
    "START",
    "WORD",
    "Mmb",
    "MmzCall",
    "NpuCall",
    "mmz_call",
]

OPEN: Final = Struct("<8I")
"""base, end, register base, four interrupt enables, low power."""
START: Final = Struct("<8I")
"""cmd address, cmd size, four mailboxes, base, end."""
JOB: Final = Struct("<4IQ")
"""id, state, abort value, padding; milliseconds to wait."""
WORD: Final = Struct("<I")
RANGE: Final = Struct("<3I")
"""Physical address, virtual address, size."""
MMB: Final = Struct("<6I16s32sI")
"""Physical address, align, size, order, mapped, protection and flags, block's name, zone's name, gfp."""

REGISTERS: Final = {"version": 0x00, "base": 0x04, "status": 0x18, "report": 0x3C, "end": 0x40}
"""Offsets in the page of registers."""

_MMB_ROOM: Final = 80


@final
class NpuCall(IntEnum):
    """Requests of /dev/npu.0."""

    OPEN = 0x40206E1E
    CREATE_QUEUE = 0xC0046E1F
    DESTROY_QUEUE = 0xC0046E20
    SUBMIT_JOB = 0xC0206E21
    WAIT_JOB = 0xC0186E22
    QUERY_JOB = 0xC0186E23
    CLOSE = 0x80046E24
    CLR_WFI = 0x40046E25
    RESET = 0xC0046E26
    SET_PROFILING = 0xC0206E27
    GET_CAPABILITY = 0xC0046E28
    GET_MEMSIZE = 0xC0046E29
    SET_MEMSIZE = 0xC0046E2A


@final
class MmzCall(IntEnum):
    """Type and number of requests of /dev/mmz_userdev; for those of type `m` any size up to 80 will do."""

    ALLOC = 0x6D0A
    ATTR = 0x6D0B
    FREE = 0x6D0C
    REMAP = 0x6D14
    REMAP_CACHED = 0x6D15
    UNMAP = 0x6D16
    VIRT_GET_PHYS = 0x6D17
    ADD_REF = 0x721E
    DEC_REF = 0x721F
    FLUSH_ALL = 0x6328
    FLUSH = 0x6432


_DIRECTIONS: Final = {
    MmzCall.ALLOC: 3,
    MmzCall.ATTR: 2,
    MmzCall.FREE: 1,
    MmzCall.REMAP: 3,
    MmzCall.REMAP_CACHED: 3,
    MmzCall.UNMAP: 3,
    MmzCall.VIRT_GET_PHYS: 3,
}
_EXACT: Final = {
    0x721E: MmzCall.ADD_REF,
    0x721F: MmzCall.DEC_REF,
    0x6328: MmzCall.FLUSH_ALL,
    0x400C6432: MmzCall.FLUSH,
}


def mmz_call(request: int) -> MmzCall:
    """Return which request of the memory's node this is.

    Raises:
        OSError: EINVAL, none.
    """
    if request in _EXACT:
        return _EXACT[request]
    direction, size, call = request >> 30, request >> 16 & 0x3FFF, request & 0xFFFF
    if size > _MMB_ROOM or (call, direction) not in _DIRECTIONS.items():
        refuse(errno.EINVAL, f"unknown request {request:#x}")
    return MmzCall(call)


@final
@dataclass(slots=True)
class Mmb:
    """A block as the memory's node is told of it and tells of it.

    Attributes:
        phys: physical address.
        size: bytes.
        mapped: where it is mapped.
        prot: protection of the mapping, as of mmap.
        name: of the block.
        zone: where it lies.
    """

    phys: int
    size: int
    mapped: int
    prot: int
    name: bytes
    zone: bytes

    @classmethod
    def read(cls, argument: bytearray) -> Mmb:
        """Read what a call passed."""
        phys, _, size, _, mapped, bits, name, zone, _ = _fields(argument)
        return cls(phys, size, mapped, bits & 0xFF, _text(name), _text(zone))

    def write(self, argument: bytearray) -> None:
        """Change what a call passed; fields that do not belong to a block stay."""
        _, align, _, order, _, bits, _, _, gfp = _fields(argument)
        new = (self.phys, align, self.size, order, self.mapped, bits, self.name, self.zone, gfp)
        argument[: MMB.size] = MMB.pack(*new)[: len(argument)]


def _fields(argument: bytearray) -> tuple[int, int, int, int, int, int, bytes, bytes, int]:
    """Return all fields; those that were not passed are zeros."""
    fields: tuple[int, int, int, int, int, int, bytes, bytes, int]
    fields = MMB.unpack(bytes(argument[: MMB.size]).ljust(MMB.size, b"\0"))
    return fields


def _text(field: bytes) -> bytes:
    return field.split(b"\0")[0]
