"""What the DSP's own loader makes of an ELF file, and what it refuses."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, final

__all__ = ["Elf", "NotLoadable", "Symbol", "check_magic", "read_elf"]

_HEADER: Final = Struct("<4s4B8xHHIQQQI6H")
_SEGMENT: Final = Struct("<IIQQQQQQ")
_SECTION: Final = Struct("<IIQQQQIIQQ")
_SYMBOL: Final = Struct("<IBBHQQ")
_DYNAMIC: Final = Struct("<QQ")

_MACHINE: Final = 145
_BARE_METAL: Final = 64
_EXEC, _DYN = 2, 3
_LOAD, _DYNAMIC_SEGMENT = 1, 2
_NULL, _NEEDED, _HASH, _STRTAB, _SYMTAB, _SONAME = 0, 1, 4, 5, 6, 14
_DYNSYM, _NOBITS = 11, 8
_FIRMWARE: Final = b"dsp_syms.out"


@final
class NotLoadable(Exception):
    """The loader refuses the file; on a real DSP only the firmware's trace says why."""


@final
@dataclass(frozen=True, slots=True)
class Symbol:
    """A defined symbol: its value (an address in the file's own space) and size in bytes."""

    value: int
    size: int


@final
@dataclass(frozen=True, slots=True)
class Elf:
    """A file that the loader accepts.

    Attributes:
        symbols: defined dynamic symbols by name.
        sections: contents by name.
        segments: address, offset in the file and bytes in it, of each segment that is loaded.
        data: all of it.
    """

    symbols: dict[bytes, Symbol]
    sections: dict[bytes, bytes]
    segments: list[tuple[int, int, int]]
    data: bytes

    def at(self, address: int, size: int) -> bytes | None:
        """Return loaded bytes; None where the file has none at that address."""
        for start, offset, length in self.segments:
            if start <= address and address + size <= start + length:
                return self.data[offset + address - start : offset + address - start + size]
        return None


def check_magic(begin: bytes) -> None:
    """Look at the first four bytes.

    Raises:
        NotLoadable: no ELF file begins so.
    """
    _check(begin == b"\x7fELF", "no ELF file")


def read_elf(data: bytes) -> Elf:
    """Read a module as the DSP does.

    Raises:
        NotLoadable: the loader would refuse it.
    """
    try:
        return _read(data)
    except struct.error as error:
        raise NotLoadable(f"a table lies beyond the end: {error}") from error


def _read(data: bytes) -> Elf:
    magic, width, order, _, abi, kind, machine, _, _, phoff, shoff, _, _, phsize, phnum, _, shnum, names = (
        _HEADER.unpack_from(data)
    )
    check_magic(magic)
    _check((width, order) == (2, 1), "no little-endian ELF of 64 bits")
    _check(machine == _MACHINE, f"machine {machine}")
    _check(kind in {_EXEC, _DYN}, f"type {kind}")
    _check(phsize == _SEGMENT.size, f"program headers of {phsize} bytes")
    headers = [_SEGMENT.unpack_from(data, phoff + place * phsize) for place in range(phnum)]
    sections = _sections(data, shoff, shnum, names)
    segments: list[tuple[int, int, int]] = []
    for segment, _, offset, address, _, filesz, memsz, _ in headers:
        if segment == _LOAD:
            _check(filesz <= memsz and offset + filesz < len(data), "a segment lies beyond the end")
            segments.append((address, offset, filesz))
    contents = {name: data[offset : offset + size] for name, (_, offset, size) in sections.items()}
    elf = Elf({}, contents, segments, data)
    dynamic = next((header for header in headers if header[0] == _DYNAMIC_SEGMENT), None)
    _check(abi == (_BARE_METAL if dynamic else 0), f"OS/ABI {abi}")
    if dynamic:
        elf.symbols.update(_dynamic(elf, sections, dynamic[2], dynamic[5]))
    _check(dynamic is not None or kind == _EXEC, "no symbol table")
    return elf


def _sections(data: bytes, offset: int, count: int, names: int) -> dict[bytes, tuple[int, int, int]]:
    """Return type, offset and size of each section by its name."""
    headers = [_SECTION.unpack_from(data, offset + place * _SECTION.size) for place in range(count)]
    found: dict[bytes, tuple[int, int, int]] = {}
    for name, kind, _, _, start, size, *_ in headers:
        _check(kind == _NOBITS or start + size <= len(data), "a section lies beyond the end")
        _check(names < count, "no names of sections")
        table, length = headers[names][4:6]
        found[_text(data[table : table + length], name)] = (kind, start, 0 if kind == _NOBITS else size)
    return found


def _dynamic(
    elf: Elf, sections: dict[bytes, tuple[int, int, int]], offset: int, size: int
) -> Iterator[tuple[bytes, Symbol]]:
    tags: dict[int, int] = {}
    needed: list[int] = []
    for place in range(offset, offset + size, _DYNAMIC.size):
        tag, value = _DYNAMIC.unpack_from(elf.data, place)
        if tag == _NULL:
            break
        tags[tag] = value
        if tag == _NEEDED:
            needed.append(value)
    strings = _from(elf, tags.get(_STRTAB), "string table")
    _check(_SONAME in tags and _text(strings, tags[_SONAME]) != b"", "no SONAME")
    provided = any(name.startswith(b".dsp_syms_out") for name in sections)
    _check(all(provided and _text(strings, name) == _FIRMWARE for name in needed), "a library is missing")
    symbols = _from(elf, tags.get(_SYMTAB), "symbol table")
    for place in range(_symbol_count(elf, sections, tags)):
        name, _, _, section, value, length = _SYMBOL.unpack_from(symbols, place * _SYMBOL.size)
        if section:
            yield _text(strings, name), Symbol(value, length)


def _symbol_count(elf: Elf, sections: dict[bytes, tuple[int, int, int]], tags: dict[int, int]) -> int:
    if _HASH in tags:
        _, count = Struct("<II").unpack_from(_from(elf, tags[_HASH], "hash table"))
        return int(count)
    return next((size // _SYMBOL.size for kind, _, size in sections.values() if kind == _DYNSYM), 0)


def _from(elf: Elf, address: int | None, what: str) -> bytes:
    """Return loaded bytes from an address up to its segment's end."""
    for start, offset, length in elf.segments:
        if address is not None and start <= address < start + length:
            return elf.data[offset + address - start : offset + length]
    raise NotLoadable(f"no {what}")


def _text(table: bytes, offset: int) -> bytes:
    end = table.find(b"\0", offset)
    _check(0 <= offset < len(table) and end >= 0, "a name lies beyond its table")
    return table[offset:end]


def _check(holds: bool, complaint: str) -> None:  # noqa: FBT001  (reads as an assertion)
    if not holds:
        raise NotLoadable(complaint)
