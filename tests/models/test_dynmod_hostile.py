"""Modules that nobody should trust: an `ArtifactError` each, in bounded memory and time."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from itertools import chain

import pytest

from repertory.models import twin
from repertory.models.dynmod import IO_SECTION, TWIN_SECTION, Dynmod
from repertory.models.elf_header import HEADER, ElfHeader, SectionHeader
from repertory.models.elf_sections import with_sections
from repertory.models.errors import ArtifactError
from repertory.models.twin import Twin, TwinNetwork

from .limits import little_memory
from .modules import FIRMWARE, SIDECAR, module, patched, section_at
from .mutate import mutations

DYNAMIC, DYNSYM = 6, 11
FILES = 1000
SECONDS = 10.0
"""Of processor time, for a file made to be slow; half a second for all others."""


def good() -> list[bytes]:
    held = twin.encode(Twin(twin.VERSION, [TwinNetwork("net", b"onnx", ["x"], ["y"])]))
    packed = {**FIRMWARE, IO_SECTION: SIDECAR, TWIN_SECTION: held, ".comment": b"repertory-pack 1\0"}
    return [module(), module(sections=packed)]


def is_read(data: bytes, *, within: float = 0.5) -> bool:
    began = time.thread_time()
    try:
        return Dynmod.read(data).size == len(data)
    except ArtifactError:
        return False
    finally:
        assert time.thread_time() - began < within


def claims(data: bytes) -> Iterator[bytes]:
    """Put a huge number where a length, an offset or a count could stand."""
    for at in range(0, len(data), 4):
        yield patched(data, at, b"\xff\xff\xff\x7f")
    for at in range(0, len(data) - 8, 8):
        yield patched(data, at, struct.pack("<Q", len(data) - 1))


def test_bad_files_by_the_thousand() -> None:
    small, packed = good()
    assert is_read(small)
    assert is_read(packed)
    spoiled = chain.from_iterable(mutations(data, FILES, seed=seed) for seed, data in enumerate(good()))
    with little_memory():
        read = [is_read(data) for data in chain(claims(small), spoiled)]
    assert len(read) > 2 * FILES
    # a changed name or weight is no error: some must have been read to their end
    assert 0 < sum(read) < len(read) - FILES


def padded(data: bytes, size: int) -> bytes:
    """Move the table of sections to the end of a larger file, which has no zeros in what was added."""
    header = ElfHeader.read(data)
    table = data[header.shoff : header.shoff + header.shnum * 64]
    longer = data + b"x" * (size - len(data))
    return patched(longer, 40, struct.pack("<Q", size)) + table


def with_symbols(count: int, name: int) -> bytes:
    """A table of so many dynamic symbols, each with its name at the same place."""
    data = padded(module(), 1 << 20)
    offset = len(data)
    data += struct.pack("<IBBHQQ", name, 0x11, 0, 1, 0, 0) * count
    symbols = section_at(data, DYNSYM)
    return patched(data, symbols + 24, struct.pack("<QQ", offset, count * 24))


def without_end(size: int) -> bytes:
    """A dynamic segment whose tags go on and on, all of them names."""
    data = padded(module(), 1 << 20)
    offset = len(data)
    data += struct.pack("<qQ", 1, 1) * (size // 16)
    tags = section_at(data, DYNAMIC)
    return patched(data, tags + 24, struct.pack("<QQ", offset, size))


def many_sections(kind: int, count: int) -> bytes:
    """Sections that lie nowhere and are linked with each other."""
    data = with_sections(module(), {})
    header = ElfHeader.read(data)
    own = list(header.sections(data))
    own += [SectionHeader(1, kind, 0, 0, 64, 0, count - 1, 0, 1, 24)] * (count - len(own))
    fields = list(HEADER.unpack_from(data))
    fields[11], fields[17] = len(data), count
    return HEADER.pack(*fields) + data[64:] + b"".join(section.packed() for section in own)


SLOW: dict[str, Callable[[], bytes]] = {
    "symbols": lambda: with_symbols(1_000_000, 1),
    "long names": lambda: with_symbols(100_000, 2000),
    "tags": lambda: without_end(16 << 20),
}


@pytest.mark.parametrize("name", SLOW)
def test_files_made_to_be_slow(name: str) -> None:
    data = SLOW[name]()
    with little_memory():
        assert not is_read(data, within=SECONDS)


@pytest.mark.parametrize("kind", [1, 2, 3, 5, 6, 11])
def test_sections_that_no_loader_looks_at_cost_little(kind: int) -> None:
    with little_memory():
        assert is_read(many_sections(kind, 60_000), within=5.0)


def test_symbols_by_the_thousand_are_no_offence() -> None:
    data = with_symbols(10_000, 1)
    with pytest.raises(ArtifactError, match="no dynamic symbol cg_main_dsp"):
        Dynmod.read(data)
