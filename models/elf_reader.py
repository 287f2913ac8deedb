"""Shared libraries in ELF, read through pyelftools: whatever the bytes are, the work is bounded."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, final

from .elf_header import ElfHeader, SectionHeader, SegmentHeader
from .errors import ArtifactError, RepertoryError
from .extras import load_elftools

__all__ = ["ElfLibrary", "ElfSymbol", "read_library"]

_MAX_READS: Final = 200_000
"""Reads of one file: some 20 000 symbols, which take seconds; real modules have hundreds."""
_EXTRA_BYTES: Final = 64 << 20
"""Bytes that may be read, those of the file apart."""

_MAX_NAME = 4096

_LOAD, _DYNAMIC_SEGMENT = 1, 2
_NULL, _DYNAMIC, _NO_BITS, _DYNSYM = 0, 6, 8, 11
_UNDEFINED = "SHN_UNDEF"


@final
@dataclass(frozen=True, slots=True)
class ElfSymbol:
    """A dynamic symbol that the library defines.

    Attributes:
        value: its address.
        size: bytes of what it names, 0 where unknown.
    """

    value: int
    size: int


@final
@dataclass(frozen=True, slots=True)
class ElfLibrary:
    """What a loader needs of a library, read and checked.

    Attributes:
        header: of the file.
        soname: never empty.
        symbols: dynamic symbols that it defines; the first of a name counts.
        imports: names of those that it wants from elsewhere, in the file's order.
        sections: offset and size in the file by name, those without content left out.
        segments: address, offset and size in the file of what is loaded.
    """

    header: ElfHeader
    soname: str
    symbols: dict[str, ElfSymbol]
    imports: tuple[str, ...]
    sections: dict[str, tuple[int, int]]
    segments: tuple[tuple[int, int, int], ...]

    def offset(self, address: int, size: int) -> int | None:
        """Find loaded bytes in the file; None where there are none."""
        for base, offset, length in self.segments:
            if base <= address and address + size <= base + length:
                return offset + address - base
        return None


def read_library(data: bytes) -> ElfLibrary:
    """Read a library.

    The tables of segments and sections are read here, and what lies in sections that no loader looks at is
    of no interest; pyelftools reads the dynamic tags and symbols.

    Raises:
        ArtifactError: it is malformed, has no name or no dynamic symbols, or asks for too much work.
        ConfigError: pyelftools is not installed.
    """
    header = ElfHeader.read(data)
    elftools = load_elftools()
    segments = tuple(_loaded(header, data))
    sections = list(header.sections(data))
    places = {
        name: (section.offset, section.size)
        for name, section in zip(_names(header, sections, data), sections, strict=True)
        if section.type not in (_NULL, _NO_BITS)
    }
    tags = _index(sections, _DYNAMIC, "table of dynamic tags")
    if not any(_holds(segment, sections[tags]) for segment in header.segments(data)):
        raise ArtifactError("ELF: there is no dynamic segment with the table of dynamic tags")
    with _one_error():
        elf = elftools.ELFFile(_Metered(data))
        symbols, imports = _symbols(elf.get_section(_index(sections, _DYNSYM, "table of dynamic symbols")))
        return ElfLibrary(header, _soname(elf.get_section(tags)), symbols, imports, places, segments)


@final
class _Metered(BytesIO):
    """A file that refuses to be read without end."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._reads = _MAX_READS
        self._bytes = len(data) + _EXTRA_BYTES

    def read(self, size: int | None = -1, /) -> bytes:
        got = super().read(size)
        self._reads -= 1
        self._bytes -= len(got)
        if self._reads < 0 or self._bytes < 0:
            raise ArtifactError("ELF: the file has more sections, symbols or text than any module")
        return got


@contextmanager
def _one_error() -> Generator[None]:
    """Turn whatever pyelftools raises on bad bytes into an ArtifactError."""
    try:
        yield
    except RepertoryError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ArtifactError(f"ELF: the file cannot be read: {reason}") from error


def _loaded(header: ElfHeader, data: bytes) -> Iterator[tuple[int, int, int]]:
    for number, segment in enumerate(header.segments(data)):
        if segment.type != _LOAD:
            continue
        if segment.filesz > segment.memsz:
            raise ArtifactError(
                f"ELF: segment {number} has {segment.filesz} bytes, {segment.memsz} in memory"
            )
        # the loader on the DSP also refuses a segment that ends with the file
        if segment.offset + segment.filesz >= len(data):
            raise ArtifactError(f"ELF: segment {number} does not lie within the file of {len(data)} bytes")
        yield segment.vaddr, segment.offset, segment.filesz


def _names(header: ElfHeader, sections: Sequence[SectionHeader], data: bytes) -> Iterator[str]:
    """Iterate over the sections' names; each section lies within the file."""
    strings = sections[header.shstrndx]
    for number, section in enumerate(sections):
        start = strings.offset + section.name
        end = data.find(b"\0", start, start + _MAX_NAME)
        if end < 0:
            raise ArtifactError(f"ELF: section {number} has no name")
        name = data[start:end].decode(errors="replace")
        if section.type not in (_NULL, _NO_BITS) and section.offset + section.size > len(data):
            raise ArtifactError(f"ELF: section {name!r} does not lie within the file of {len(data)} bytes")
        yield name


def _index(sections: Sequence[SectionHeader], kind: int, what: str) -> int:
    for index, section in enumerate(sections):
        if section.type == kind:
            return index
    raise ArtifactError(f"ELF: there is no {what}")


def _holds(segment: SegmentHeader, tags: SectionHeader) -> bool:
    return (segment.type, segment.offset) == (_DYNAMIC_SEGMENT, tags.offset)


def _symbols(table: Any) -> tuple[dict[str, ElfSymbol], tuple[str, ...]]:
    defined: dict[str, ElfSymbol] = {}
    imports: dict[str, None] = {}
    for symbol in table.iter_symbols():
        if not symbol.name:
            continue
        if symbol["st_shndx"] == _UNDEFINED:
            imports[symbol.name] = None
        else:
            defined.setdefault(symbol.name, ElfSymbol(symbol["st_value"], symbol["st_size"]))
    return defined, tuple(imports)


def _soname(tags: Any) -> str:
    soname = next((tag.soname for tag in tags.iter_tags("DT_SONAME")), "")
    if not soname:
        raise ArtifactError("ELF: it has no SONAME, without which the loader on the DSP takes no library")
    return str(soname)
