"""The driver's tables: numbers and layouts of its calls, one table for each generation of its interface.

All of them are those of a 32-bit process, written out: computed for the process at hand they would come out
longer in a 64-bit one, and pass for right. Generation V500 is public in full; of the memory's table there are
two lengths.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from types import MappingProxyType
from typing import Final, final

__all__ = [
    "FLUSH_RANGE",
    "GENERATIONS",
    "KEEP",
    "MMZ_GK7206",
    "MMZ_LAYOUTS",
    "MMZ_V500",
    "V500",
    "Capability",
    "Generation",
    "JobState",
    "MmzLayout",
    "Register",
]

KEEP: Final = 0xFFFFFFFF
"""A mailbox of `start_params` that is left as it is; also the end of a window that spans all addresses."""


@final
class JobState(IntEnum):
    """States of a job."""

    PEND = 0
    PROCESS = 1
    SUCCESS = 2
    SYNC = 3
    """Stopped by its own code; it still owns the NPU."""
    TEMP = 4
    """Stopped at a breakpoint; likewise."""
    ABORT = 5
    UNKNOWN = 6
    """Collected before, or dropped."""


@final
class Capability(IntEnum):
    """What GET_CAPABILITY can be asked for; the answer is one byte."""

    PERF = 0
    PIX = 1
    PLATFORM = 2
    SUBVERSION = 3


@final
class Register(IntEnum):
    """Offsets in the page of registers, which can be mapped: exactly 4096 bytes at offset 0."""

    VERSION = 0x00
    DDR_BASE = 0x04
    COMMAND = 0x08
    COMMAND_SIZE = 0x0C
    INTERRUPT_ENABLE = 0x10
    INTERRUPT_CLEAR = 0x14
    INTERRUPT_STATUS = 0x18
    START = 0x20
    DEBUG = 0x24
    BREAK_PC = 0x28
    CYCLES = 0x2C
    STCT_ADDRESS = 0x34
    STCT_SIZE = 0x38
    DFX_REPORT = 0x3C
    DDR_END = 0x40
    MAILBOX_0 = 0x1A8
    MAILBOX_1 = 0x1AC
    MAILBOX_2 = 0x1C8
    MAILBOX_3 = 0x1CC


@final
@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of the NPU driver's calls: their numbers, and how their arguments lie.

    Attributes:
        name: of the generation.
        open_params: base, end, register base (ignored), enables of the interrupts done, SI, DFX and PC, low
            power.
        start_params: offset of the code from the base, its bytes, four mailboxes, base, end.
        job_status: job, state, DFX report, padding, delay in milliseconds (0 means for ever).
        profiling: address, size, six words that are reserved.
        word: the argument of GET_CAPABILITY and of the two of the memory's size.
    """

    name: str
    open: int
    create_queue: int
    destroy_queue: int
    submit: int
    wait: int
    query: int
    close: int
    clear_wfi: int
    reset: int
    set_profiling: int
    get_capability: int
    get_memsize: int
    set_memsize: int
    open_params: Struct
    start_params: Struct
    job_status: Struct
    profiling: Struct
    word: Struct


V500: Final = Generation(
    name="V500",
    open=0x40206E1E,
    create_queue=0xC0046E1F,
    destroy_queue=0xC0046E20,
    submit=0xC0206E21,
    wait=0xC0186E22,
    query=0xC0186E23,
    close=0x80046E24,
    clear_wfi=0x40046E25,
    reset=0xC0046E26,
    set_profiling=0xC0206E27,
    get_capability=0xC0046E28,
    get_memsize=0xC0046E29,
    set_memsize=0xC0046E2A,
    open_params=Struct("<8I"),
    start_params=Struct("<2I4I2I"),
    job_status=Struct("<4IQ"),
    profiling=Struct("<8I"),
    word=Struct("<I"),
)
"""GK7205V500 and its siblings."""

GENERATIONS: Final[Mapping[str, Generation]] = MappingProxyType({"v500": V500})
"""By the name that an address gives; GK7206's own is not public."""

FLUSH_RANGE: Final = Struct("<3I")
"""Of `flush_range`: physical address, address in this process, bytes."""


@final
@dataclass(frozen=True, slots=True)
class MmzLayout:
    """The memory's calls, all of which but the flushes take one table.

    Attributes:
        name: of the layout.
        info: physical address, alignment, bytes, order, address in this process, protection (8 bits) and
            flags (12 bits), name of the block, name of the zone, gfp.
        flush: writes back and invalidates a block by its physical address; 0 for all.
        flush_range: likewise, for a part of a mapped block: see `FLUSH_RANGE`.
    """

    name: str
    alloc: int
    attributes: int
    free: int
    remap: int
    remap_cached: int
    unmap: int
    physical: int
    info: Struct
    add_reference: int = 0x721E
    drop_reference: int = 0x721F
    flush: int = 0x6328
    flush_range: int = 0x400C6432


MMZ_V500: Final = MmzLayout(
    name="V500",
    alloc=0xC04C6D0A,
    attributes=0x804C6D0B,
    free=0x404C6D0C,
    remap=0xC04C6D14,
    remap_cached=0xC04C6D15,
    unmap=0xC04C6D16,
    physical=0xC04C6D17,
    info=Struct("<6I16s32sI"),
)
"""76 bytes; a kernel of 80 takes them too."""

MMZ_GK7206: Final = MmzLayout(
    name="GK7206",
    alloc=0xC0506D0A,
    attributes=0x80506D0B,
    free=0x40506D0C,
    remap=0xC0506D14,
    remap_cached=0xC0506D15,
    unmap=0xC0506D16,
    physical=0xC0506D17,
    info=Struct("<6I16s32sI4x"),
)
"""80 bytes."""

MMZ_LAYOUTS: Final[Mapping[str, MmzLayout]] = MappingProxyType({"v500": MMZ_V500, "gk7206": MMZ_GK7206})
"""By the name that an address gives."""
