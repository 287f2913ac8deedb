"""Modules for DSPs, as a linker makes them and by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from repertory.models.dynmod import ENTRY, IO_SYMBOL, MACHINE, OS_ABI
from repertory.models.dynmod_io import DynmodIo
from repertory.models.elf_header import SECTION, SEGMENT, ElfHeader
from repertory.models.elf_sections import with_sections
from repertory.models.elf_writer import Content, write_library

__all__ = [
    "FIRMWARE",
    "IO",
    "SIDECAR",
    "linked",
    "linked_v2",
    "module",
    "patched",
    "section_at",
    "segment_at",
]

IO = DynmodIo(inputs=1, outputs=1, input_bytes=64, output_bytes=64, exact=True)
SIDECAR = b"""{"name": "net", "inputs": [{"name": "x", "shape": [4, 4], "dtype": "float32"}],
    "outputs": [{"name": "y", "shape": [16], "dtype": "float32"}]}"""
"""Describes a network that `IO` agrees with."""
FIRMWARE = {".dsp_syms_out": b"dsp_syms.out\0"}


@cache
def linked() -> bytes:
    """Compile and link a module with this machine's compiler; only the target is forged."""
    source = Path(__file__).with_name("module.c")
    with TemporaryDirectory() as folder:
        library = Path(folder) / "lib0.out"
        options = ("-shared", "-fPIC", "-nostdlib", "-Wl,-soname,lib0.out")
        subprocess.run(["cc", *options, "-Wall", "-Wextra", "-Werror", source, "-o", library], check=True)
        return patched(library.read_bytes(), 7, bytes([OS_ABI]), 18, MACHINE.to_bytes(2, "little"))


def linked_v2() -> bytes:
    """The linked module without the record of its tensors."""
    return linked().replace(b"_binary_tvm_dsp_io_meta_start", b"_binary_tvm_dsp_io_meta_other")


def module(
    *,
    soname: str = "lib0.out",
    entry: str = ENTRY,
    imports: tuple[str, ...] = ("memcpy",),
    io: DynmodIo | bytes | None = IO,
    sections: Mapping[str, bytes] = FIRMWARE,
    symbols: Mapping[str, tuple[int, int]] = {},
) -> bytes:
    """Write a small module; with `io=None` one for wire version 2."""
    contents = {".text": Content(bytes(16), {entry: (0, 16), **symbols})}
    if io is not None:
        record = io if isinstance(io, bytes) else io.write()
        contents[".io"] = Content(record, {IO_SYMBOL: (0, len(record))})
    bare = write_library(
        soname, contents, imports=imports, needed="dsp_syms.out", machine=MACHINE, os_abi=OS_ABI
    )
    return with_sections(bare, sections)


def patched(data: bytes, *changes: int | bytes) -> bytes:
    """Put bytes at offsets: `patched(data, 7, b"x", 9, b"y")`."""
    spoiled = bytearray(data)
    for at, new in zip(changes[::2], changes[1::2], strict=True):
        assert isinstance(at, int)
        assert isinstance(new, bytes)
        spoiled[at : at + len(new)] = new
    return bytes(spoiled)


def segment_at(data: bytes, kind: int) -> int:
    """Return where the header of the first segment of a kind lies."""
    header = ElfHeader.read(data)
    offsets = range(header.phoff, header.phoff + header.phnum * SEGMENT.size, SEGMENT.size)
    return next(at for at in offsets if SEGMENT.unpack_from(data, at)[0] == kind)


def section_at(data: bytes, kind: int) -> int:
    """Return where the header of the first section of a kind lies."""
    header = ElfHeader.read(data)
    offsets = range(header.shoff, header.shoff + header.shnum * SECTION.size, SECTION.size)
    return next(at for at in offsets if SECTION.unpack_from(data, at)[1] == kind)
