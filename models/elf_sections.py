"""Sections put into an ELF file that is finished: what is loaded from it stays as and where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, final

from .elf_header import HEADER, ElfHeader, SectionHeader
from .errors import ArtifactError

__all__ = ["PROGRAM_DATA", "STRINGS", "Names", "aligned", "with_sections"]

PROGRAM_DATA: Final = 1
"""sh_type of bytes that no linker understands."""
STRINGS: Final = 3
"""sh_type of a table of names."""

_MAX_SECTIONS = 0xFEFF


def aligned(size: int, to: int = 8) -> int:
    """Round up."""
    return -(-size // to) * to


@final
class Names:
    """A table of names; each ends with a zero, and the first is empty."""

    def __init__(self, content: bytes = b"\0") -> None:
        self.content = content

    def add(self, name: str) -> int:
        """Append a name; return its offset."""
        offset = len(self.content)
        self.content += name.encode() + b"\0"
        return offset


def with_sections(data: bytes, contents: Mapping[str, bytes]) -> bytes:
    """Append sections, or exchange those of the same name; a new table of sections ends the file.

    What an exchanged section held stays in the file, unreferenced.

    Args:
        data: a whole file that `ElfHeader.read` takes.
        contents: by section name.

    Raises:
        ArtifactError: the file is malformed, or the names of its sections are.
    """
    header = ElfHeader.read(data)
    sections = list(header.sections(data))
    strings = sections[header.shstrndx]
    names = Names(data[strings.offset : strings.offset + strings.size])
    if not names.content.endswith(b"\0"):
        raise ArtifactError("ELF: the names of its sections have no end")
    known = {_name(names.content, section): index for index, section in reversed([*enumerate(sections)])}
    out = bytearray(data)
    for name, content in contents.items():
        placed = SectionHeader(0, PROGRAM_DATA, 0, 0, _append(out, content), len(content), 0, 0, 8, 0)
        if name.encode() in known:
            index = known[name.encode()]
            sections[index] = replace(placed, name=sections[index].name)
        else:
            sections.append(replace(placed, name=names.add(name)))
    moved = _append(out, names.content)
    sections[header.shstrndx] = replace(strings, offset=moved, size=len(names.content))
    return _finished(out, sections)


def _append(out: bytearray, content: bytes) -> int:
    out += bytes(aligned(len(out)) - len(out))
    offset = len(out)
    out += content
    return offset


def _name(names: bytes, section: SectionHeader) -> bytes:
    end = names.find(b"\0", section.name)
    return names[section.name : end] if end >= 0 else b""


def _finished(out: bytearray, sections: list[SectionHeader]) -> bytes:
    if len(sections) > _MAX_SECTIONS:
        raise ArtifactError(f"ELF: {len(sections)} sections, a file has {_MAX_SECTIONS}")
    offset = _append(out, b"".join(section.packed() for section in sections))
    fields = list(HEADER.unpack_from(out))
    fields[11], fields[17] = offset, len(sections)
    HEADER.pack_into(out, 0, *fields)
    return bytes(out)
