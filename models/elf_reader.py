"""Shared libraries in ELF, read through pyelftools: whatever the bytes are, the work is bounded."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, final

from .elf_header import ElfHeader
from .errors import ArtifactError, RepertoryError
from .extras import load_elftools

__all__ = ["ElfLibrary", "ElfSymbol", "read_library"]

_MAX_READS: Final = 500_000
"""Reads of one file: some 40 000 symbols, which takes seconds on a slow board; real modules have hundreds."""
_EXTRA_BYTES: Final = 64 << 20
"""Bytes that may be read, those of the file apart."""

_LOAD = "PT_LOAD"
_DYNAMIC = "PT_DYNAMIC"
_NO_BITS = "SHT_NOBITS"
_DYNSYM = "SHT_DYNSYM"
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

    Raises:
        ArtifactError: it is malformed, has no name or no dynamic symbols, or asks for too much work.
        ConfigError: pyelftools is not installed.
    """
    header = ElfHeader.read(data)
    elftools = load_elftools()
    with _one_error():
        elf = elftools.ELFFile(_Metered(data))
        segments = tuple(_loaded(elf, len(data)))
        sections = {name: place for name, _, place in _sections(elf, len(data))}
        symbols, imports = _symbols(elf)
        return ElfLibrary(header, _soname(elf, len(data)), symbols, imports, sections, segments)


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


def _loaded(elf: Any, size: int) -> Iterator[tuple[int, int, int]]:
    for number, segment in enumerate(elf.iter_segments(_LOAD)):
        offset, length = segment["p_offset"], segment["p_filesz"]
        if length > segment["p_memsz"]:
            raise ArtifactError(f"ELF: segment {number} has {length} bytes, {segment['p_memsz']} in memory")
        if offset + length >= size:  # the loader on the DSP refuses one that ends with the file, too
            raise ArtifactError(f"ELF: segment {number} of {length} bytes does not lie within the file")
        yield segment["p_vaddr"], offset, length


def _sections(elf: Any, size: int) -> Iterator[tuple[str, Any, tuple[int, int]]]:
    """Iterate over names, sections and places in the file."""
    for section in elf.iter_sections():
        if section["sh_type"] in (_NO_BITS, "SHT_NULL"):
            continue
        place = section["sh_offset"], section["sh_size"]
        if sum(place) > size:
            raise ArtifactError(f"ELF: section {section.name!r} does not lie within the file")
        yield section.name, section, place


def _symbols(elf: Any) -> tuple[dict[str, ElfSymbol], tuple[str, ...]]:
    table = next((section for section in elf.iter_sections() if section["sh_type"] == _DYNSYM), None)
    if table is None:
        raise ArtifactError("ELF: there is no table of dynamic symbols")
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


def _soname(elf: Any, size: int) -> str:
    segment = next(elf.iter_segments(_DYNAMIC), None)
    if segment is None:
        raise ArtifactError("ELF: there is no dynamic segment")
    if segment["p_offset"] + segment["p_filesz"] > size:
        raise ArtifactError("ELF: the dynamic segment does not lie within the file")
    soname = next((tag.soname for tag in segment.iter_tags() if tag["d_tag"] == "DT_SONAME"), "")
    if not soname:
        raise ArtifactError("ELF: it has no SONAME, without which the loader on the DSP takes no library")
    return str(soname)
