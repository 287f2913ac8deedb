"""The header of a 64-bit little-endian ELF file, checked against the file's size before all else."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from .errors import ArtifactError

__all__ = ["HEADER", "SECTION", "SEGMENT", "ElfHeader", "SectionHeader", "SegmentHeader", "is_elf"]

HEADER: Final = struct.Struct("<4sBBBBB7xHHIQQQIHHHHHH")
"""Of the file, 64 bytes."""
SEGMENT: Final = struct.Struct("<IIQQQQQQ")
"""Of a segment: type, flags, offset, vaddr, paddr, filesz, memsz, align; 56 bytes."""
SECTION: Final = struct.Struct("<IIQQQQIIQQ")
"""Of a section: name, type, flags, addr, offset, size, link, info, addralign, entsize; 64 bytes."""

_MAGIC = b"\x7fELF"
_CLASSES = {1: "32-bit", 2: "64-bit"}
_ORDERS = {1: "little-endian", 2: "big-endian"}


def is_elf(data: bytes) -> bool:
    """Whether a file claims to be ELF, of whatever kind."""
    return data[: len(_MAGIC)] == _MAGIC


@final
@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """One entry of the segment table, as the file has it."""

    type: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int


@final
@dataclass(frozen=True, slots=True)
class SectionHeader:
    """One entry of the section table, as the file has it."""

    name: int
    type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    info: int
    addralign: int
    entsize: int

    def packed(self) -> bytes:
        """As it lies in the file."""
        return SECTION.pack(
            self.name,
            self.type,
            self.flags,
            self.addr,
            self.offset,
            self.size,
            self.link,
            self.info,
            self.addralign,
            self.entsize,
        )


@final
@dataclass(frozen=True, slots=True)
class ElfHeader:
    """What the first 64 bytes say. Both tables that they name lie within the file.

    Attributes:
        os_abi: EI_OSABI.
        type: e_type, 3 for a shared library.
        machine: e_machine, as a number.
        phoff: offset of the segment table.
        phnum: its entries, 1 at least.
        shoff: offset of the section table.
        shnum: its entries, 1 at least.
        shstrndx: the section that holds the sections' names.
    """

    os_abi: int
    type: int
    machine: int
    phoff: int
    phnum: int
    shoff: int
    shnum: int
    shstrndx: int

    @classmethod
    def read(cls, data: bytes) -> ElfHeader:
        """Read a file's header.

        Raises:
            ArtifactError: it is no ELF file of 64 bits, little-endian, or its tables do not lie within it.
        """
        if not is_elf(data):
            raise ArtifactError("no ELF file: it does not begin with 7f 45 4c 46", offset=0)
        if len(data) < HEADER.size:
            raise ArtifactError("ELF: the file ends within its header", offset=len(data))
        _, bits, order, _, os_abi, _, kind, machine, _, _, phoff, shoff, *rest = HEADER.unpack_from(data)
        if (bits, order) != (2, 1):
            found = f"{_CLASSES.get(bits, f'class {bits}')}, {_ORDERS.get(order, f'order {order}')}"
            raise ArtifactError(f"ELF: the file is {found}; 64-bit, little-endian is wanted", offset=4)
        _, _, phentsize, phnum, shentsize, shnum, shstrndx = rest
        _check_table("segment", (phoff, phnum, phentsize), SEGMENT.size, len(data))
        _check_table("section", (shoff, shnum, shentsize), SECTION.size, len(data))
        if shstrndx >= shnum:
            raise ArtifactError(f"ELF: section {shstrndx} of {shnum} shall hold the names", offset=62)
        return cls(os_abi, kind, machine, phoff, phnum, shoff, shnum, shstrndx)

    def segments(self, data: bytes) -> Iterator[SegmentHeader]:
        """Iterate over the segment table, whose entries are not checked."""
        table = data[self.phoff : self.phoff + self.phnum * SEGMENT.size]
        return (SegmentHeader(*fields) for fields in SEGMENT.iter_unpack(table))

    def sections(self, data: bytes) -> Iterator[SectionHeader]:
        """Iterate over the section table, whose entries are not checked."""
        table = data[self.shoff : self.shoff + self.shnum * SECTION.size]
        return (SectionHeader(*fields) for fields in SECTION.iter_unpack(table))


def _check_table(what: str, told: tuple[int, int, int], entry: int, size: int) -> None:
    offset, count, entry_size = told
    if not count or not offset:
        raise ArtifactError(f"ELF: there is no {what} table")
    if entry_size != entry:
        raise ArtifactError(f"ELF: entries of the {what} table are {entry_size} bytes, {entry} are right")
    if offset + count * entry > size:
        raise ArtifactError(f"ELF: {count} entries of the {what} table do not lie within {size} bytes")
