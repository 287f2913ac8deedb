"""Small shared libraries in ELF, written without a linker: addresses are offsets in the file."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from .elf_header import HEADER, SECTION, SEGMENT, SectionHeader
from .elf_sections import PROGRAM_DATA, STRINGS, Names, aligned

__all__ = ["Content", "write_library"]

_SYMBOL: Final = struct.Struct("<IBBHQQ")
_TAG: Final = struct.Struct("<qQ")

_ALLOCATED = 2
_HASH, _DYNAMIC, _DYNSYM = 5, 6, 11
_LOAD_SEGMENT, _DYNAMIC_SEGMENT, _READ = 1, 2, 4
_GLOBAL_OBJECT, _GLOBAL_UNTYPED = 0x11, 0x10
_NEEDED, _HASH_TAG, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME = 1, 4, 5, 6, 10, 11, 14
_SEGMENTS = 2


@final
@dataclass(frozen=True, slots=True)
class Content:
    """A section with constants.

    Attributes:
        data: its bytes.
        symbols: dynamic symbols by name: offset in `data`, and size.
    """

    data: bytes
    symbols: Mapping[str, tuple[int, int]]


def write_library(
    soname: str,
    contents: Mapping[str, Content],
    *,
    imports: Sequence[str],
    needed: str,
    machine: int,
    os_abi: int,
) -> bytes:
    """Write a library of constants: one segment to load, the dynamic one in it, and their sections.

    Args:
        soname: its name.
        contents: sections by name.
        imports: symbols wanted from elsewhere.
        needed: the library that has them.
        machine: e_machine.
        os_abi: EI_OSABI.
    """
    layout = _Layout()
    places = {name: layout.add(name, PROGRAM_DATA, content.data) for name, content in contents.items()}
    strings = Names()
    symbols = [_SYMBOL.pack(0, 0, 0, 0, 0, 0)]
    symbols += [_SYMBOL.pack(strings.add(name), _GLOBAL_UNTYPED, 0, 0, 0, 0) for name in imports]
    for section, content in contents.items():
        index, base = places[section]
        symbols += [
            _SYMBOL.pack(strings.add(name), _GLOBAL_OBJECT, 0, index, base + offset, size)
            for name, (offset, size) in content.symbols.items()
        ]
    tags = [(_NEEDED, strings.add(needed)), (_SONAME, strings.add(soname))]
    strtab, strings_at = layout.add(".dynstr", STRINGS, strings.content)
    symtab, symbols_at = layout.add(
        ".dynsym", _DYNSYM, b"".join(symbols), link=strtab, info=1, entsize=_SYMBOL.size
    )
    _, hash_at = layout.add(".hash", _HASH, _one_bucket(len(symbols)), link=symtab, entsize=4)
    tags += [(_HASH_TAG, hash_at), (_STRTAB, strings_at), (_SYMTAB, symbols_at)]
    tags += [(_STRSZ, len(strings.content)), (_SYMENT, _SYMBOL.size), (0, 0)]
    dynamic = b"".join(_TAG.pack(*tag) for tag in tags)
    _, dynamic_at = layout.add(".dynamic", _DYNAMIC, dynamic, link=strtab, entsize=_TAG.size)
    return layout.finish((dynamic_at, len(dynamic)), machine=machine, os_abi=os_abi)


@final
class _Layout:
    """The file as it grows: header, segment table, sections, their names, their table."""

    def __init__(self) -> None:
        self._out = bytearray(HEADER.size + _SEGMENTS * SEGMENT.size)
        self._names = Names()
        self._sections = [SectionHeader(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]

    def add(
        self, name: str, kind: int, content: bytes, *, link: int = 0, info: int = 0, entsize: int = 0
    ) -> tuple[int, int]:
        """Append a section that is loaded; return its index, and its offset, which is its address."""
        at = self._append(content)
        place = (at, at, len(content))
        self._sections.append(
            SectionHeader(self._names.add(name), kind, _ALLOCATED, *place, link, info, 8, entsize)
        )
        return len(self._sections) - 1, at

    def finish(self, dynamic: tuple[int, int], *, machine: int, os_abi: int) -> bytes:
        """Write names, tables and header."""
        loaded = len(self._out)
        name = self._names.add(".shstrtab")
        names = self._names.content
        self._sections.append(SectionHeader(name, STRINGS, 0, 0, self._append(names), len(names), 0, 0, 1, 0))
        shoff = self._append(b"".join(section.packed() for section in self._sections))
        count = len(self._sections)
        identity = (b"\x7fELF", 2, 1, 1, os_abi, 0, 3, machine, 1, 0)
        tables = (HEADER.size, shoff, 0, HEADER.size, SEGMENT.size, _SEGMENTS, SECTION.size, count, count - 1)
        at, size = dynamic
        self._out[: HEADER.size + _SEGMENTS * SEGMENT.size] = (
            HEADER.pack(*identity, *tables)
            + SEGMENT.pack(_LOAD_SEGMENT, _READ, 0, 0, 0, loaded, loaded, 8)
            + SEGMENT.pack(_DYNAMIC_SEGMENT, _READ, at, at, at, size, size, 8)
        )
        return bytes(self._out)

    def _append(self, content: bytes) -> int:
        self._out += bytes(aligned(len(self._out)) - len(self._out))
        at = len(self._out)
        self._out += content
        return at


def _one_bucket(symbols: int) -> bytes:
    """A hash table that is a list: all symbols in one chain."""
    chain = [0, *range(2, symbols), 0]
    return struct.pack(f"<{3 + len(chain)}I", 1, len(chain), 1, *chain)
