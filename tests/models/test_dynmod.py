from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from repertory.models import twin as twins
from repertory.models.dynmod import IO_SECTION, IO_SYMBOL, MAX_SIZE, PACKED_BY, TWIN_SECTION, Dynmod
from repertory.models.dynmod_io import DynmodIo
from repertory.models.elf_header import ElfHeader
from repertory.models.elf_sections import with_sections
from repertory.models.errors import ArtifactError, ConfigError
from repertory.models.extras import load_elftools
from repertory.models.sidecar import read_sidecar
from repertory.models.twin import Twin, TwinNetwork

from .modules import IO, SIDECAR, linked, linked_v2, module, patched, section_at, segment_at

LOAD = 1
DYNAMIC, DYNSYM = 6, 11


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def test_what_a_linker_made_is_read() -> None:
    found = Dynmod.read(linked())
    assert (found.size, found.machine, found.soname) == (len(linked()), 145, "lib0.out")
    assert "host_printf" in found.imports
    assert "cg_main_dsp" not in found.imports
    assert found.weights == 100
    assert found.io == DynmodIo(inputs=2, outputs=1, input_bytes=100, output_bytes=8, exact=False)
    assert (found.network, found.twin, found.is_twin) == (None, None, False)


def test_a_module_for_wire_version_2_tells_nothing_of_its_tensors() -> None:
    found = Dynmod.read(module(io=None))
    assert (found.io, found.network, found.weights, found.imports) == (None, None, None, ("memcpy",))


def test_weights_without_their_size_are_measured_and_strange_ones_not_told() -> None:
    ends = {"_binary_weights_bin_start": (2, 0), "_binary_weights_bin_end": (12, 0)}
    assert Dynmod.read(module(symbols=ends)).weights == 10
    assert Dynmod.read(module(symbols={**ends, "_binary_weights_bin_size": (1 << 30, 4)})).weights == 10
    assert Dynmod.read(module(symbols={"_binary_weights_bin_end": (12, 0)})).weights is None
    crossed = {"_binary_weights_bin_start": (12, 0), "_binary_weights_bin_end": (2, 0)}
    assert Dynmod.read(module(symbols=crossed)).weights is None


def bad() -> Iterator[tuple[str, bytes, str]]:
    good = module()
    load, symbols, tags = segment_at(good, LOAD), section_at(good, DYNSYM), section_at(good, DYNAMIC)
    header = ElfHeader.read(good)
    yield "empty", b"", "no ELF file"
    yield "another format", b"\x05" + bytes(100), "no ELF file"
    yield "only a magic", b"\x7fELF", "ends within its header"
    yield "32 bit", patched(good, 4, b"\x01"), "the file is 32-bit, little-endian; 64-bit"
    yield "big endian", patched(good, 5, b"\x02"), "the file is 64-bit, big-endian; 64-bit, little-endian"
    yield "no class", patched(good, 4, b"\x07"), "the file is class 7"
    yield "another machine", patched(good, 18, b"\x3e\0"), r"machine 62, a C7x is 145; .*\?any_machine=true"
    yield "another system", patched(good, 7, b"\x03"), "OS/ABI is 3, 64 is wanted"
    yield "static", patched(good, 16, b"\x02\0"), r"ELF type 2, 3 \(a shared library\)"
    yield "no segments", patched(good, 56, b"\0\0"), "no segment table"
    yield "no sections", patched(good, 60, b"\0\0"), "no section table"
    yield "many sections", patched(good, 60, b"\xff\xfe"), "65279 entries of the section table do not lie"
    yield "many segments", patched(good, 56, b"\xff\xff"), "65535 entries of the segment table do not lie"
    yield "far sections", patched(good, 40, u64(2**63)), "section table do not lie within"
    yield "odd entries", patched(good, 58, b"\x28\0"), "section table are 40 bytes, 64 are right"
    yield "no names", patched(good, 62, b"\xff\0"), f"section 255 of {header.shnum} shall hold the names"
    yield "segment shrinks", patched(good, load + 40, u64(7)), "segment 0 has .* bytes, 7 in memory"
    yield "segment is far", patched(good, load + 8, u64(len(good))), "segment 0 does not lie within"
    whole = patched(good, load + 32, u64(len(good)), load + 40, u64(len(good)))
    yield "segment ends the file", whole, "segment 0 does not lie within"
    huge = patched(good, load + 32, u64(2**63), load + 40, u64(2**63))
    yield "segment is huge", huge, "segment 0 does not lie within"
    yield "not dynamic", patched(good, segment_at(good, 2), b"\x06\0\0\0"), "no dynamic segment"
    yield "other tags", patched(good, segment_at(good, 2) + 8, u64(64)), "no dynamic segment with the table"
    yield "no tags", patched(good, tags + 4, b"\x01\0\0\0"), "no table of dynamic tags"
    yield "tags without names", patched(good, tags + 40, b"\x63\0\0\0"), "cannot be read"
    yield "no section names", patched(good, tags, b"\xff\xff\xff\0"), r"section \d+ has no name"
    yield "section is far", patched(good, symbols + 24, u64(2**40)), r"'\.dynsym' does not lie within"
    yield "section is huge", patched(good, symbols + 32, u64(2**63)), r"'\.dynsym' does not lie within"
    yield "no symbols", patched(good, symbols + 4, b"\x01\0\0\0"), "no table of dynamic symbols"
    yield "no soname", module(soname=""), "no SONAME"
    yield "no firmware", module(sections={}), r"section \.dsp_syms_out is missing"
    yield "no entry", module(entry="main"), "no dynamic symbol cg_main_dsp"
    yield "open entry", module(entry="main", imports=("cg_main_dsp",)), "cg_main_dsp is not defined in it"
    yield "no record", module(symbols={IO_SYMBOL: (2**40, 40)}, io=None), "not lie within what is loaded"
    yield "foreign record", module(io=b"MOIT" + IO.write()[4:]), "begins with 0x54494f4d, 0x4d4f4954 is"
    yield "new record", module(io=patched(IO.write(), 4, b"\2")), "version 2, 1 is known"


BAD = list(bad())


@pytest.mark.parametrize(("data", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_what_no_dsp_takes(data: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        Dynmod.read(data)


def test_the_good_one_is_good() -> None:
    assert Dynmod.read(module()).io == IO


def test_a_program_of_this_machine_is_no_module() -> None:
    with pytest.raises(ArtifactError, match=r"it is for machine \d+, a C7x is 145"):
        Dynmod.read(Path(sys.executable).resolve().read_bytes())


def test_the_machine_can_be_allowed_and_then_all_else_is_checked() -> None:
    other = patched(linked(), 18, b"\x3e\0")
    assert Dynmod.read(other, any_machine=True).machine == 62
    with pytest.raises(ArtifactError, match="OS/ABI is 0"):
        Dynmod.read(patched(other, 7, b"\0"), any_machine=True)


@pytest.mark.parametrize("whole", [module(), linked()], ids=["by hand", "linked"])
def test_no_truncated_file_is_good(whole: bytes) -> None:
    # the table of sections ends both files
    for end in (*range(0, len(whole), 1 + len(whole) // 1500), len(whole) - 1):
        with pytest.raises(ArtifactError):
            Dynmod.read(whole[:end])


def test_a_file_that_is_too_large_is_not_looked_into() -> None:
    with pytest.raises(ArtifactError, match=f"{MAX_SIZE + 1} bytes, a DSP takes {MAX_SIZE}"):
        Dynmod.read(bytes(MAX_SIZE + 1))


def test_pyelftools_is_asked_for_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "elftools.elf.elffile", None)
    load_elftools.cache_clear()
    try:
        with pytest.raises(ConfigError, match=r'pyelftools is missing: pip install "repertory\[c7x\]"'):
            Dynmod.read(module())
    finally:
        load_elftools.cache_clear()


# -- what this package puts into files


def twin(*names: str, inputs: int = 1) -> bytes:
    held = [TwinNetwork(name, b"onnx", ["x"] * inputs, ["y"]) for name in names]
    return twins.encode(Twin(twins.VERSION, held))


def test_embedded_sections_are_read() -> None:
    found = Dynmod.read(with_sections(linked_v2(), {TWIN_SECTION: twin("net"), IO_SECTION: SIDECAR}))
    assert found.network == read_sidecar(SIDECAR)
    assert found.twin is not None
    assert found.twin.networks[0].onnx == b"onnx"
    assert not found.is_twin


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({TWIN_SECTION: twin("net")}, "an embedded sidecar describes"),
        ({TWIN_SECTION: b"junk", IO_SECTION: SIDECAR}, "its mark is missing"),
        ({TWIN_SECTION: twin("a", "b"), IO_SECTION: SIDECAR}, "a twin is of one network"),
        ({TWIN_SECTION: twin("other"), IO_SECTION: SIDECAR}, "its twin is for 'other', it holds 'net'"),
        ({TWIN_SECTION: twin("net", inputs=2), IO_SECTION: SIDECAR}, "has other tensors"),
        ({IO_SECTION: b"{"}, "the sidecar cannot be read"),
        ({IO_SECTION: SIDECAR.replace(b"[16]", b"[17]")}, "outputs described are 68 bytes, .* tells 64"),
        ({".comment": PACKED_BY + b"\0"}, "packed for a simulator and its twin is missing"),
    ],
)
def test_embedded_sections_that_contradict(sections: dict[str, bytes], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        Dynmod.read(with_sections(module(), sections))


def test_sections_are_exchanged_and_what_is_loaded_stays() -> None:
    once = with_sections(linked_v2(), {IO_SECTION: SIDECAR, ".note": b"1"})
    twice = with_sections(once, {IO_SECTION: SIDECAR.replace(b"net", b"new")})
    network = Dynmod.read(twice).network
    assert network is not None
    assert network.name == "new"
    assert ElfHeader.read(twice).shnum == ElfHeader.read(linked_v2()).shnum + 2
    # but for the place and the length of the table of sections
    assert twice[64 : len(linked_v2())] == linked_v2()[64:]


def test_binutils_read_it_without_complaint(tmp_path: Path) -> None:
    changed = with_sections(linked(), {".note.mine": b"1"})
    for data in (module(), changed):
        (tmp_path / "lib0.out").write_bytes(data)
        done = subprocess.run(
            ["readelf", "--all", "--wide", tmp_path / "lib0.out"], capture_output=True, check=True
        )
        assert done.stderr == b""
        assert re.search(rb"SONAME.*\[lib0.out\]", done.stdout)


# -- the record of tensors


@pytest.mark.parametrize(
    ("io", "message"),
    [
        (DynmodIo(2, 1, 64, 64, exact=True), "1 inputs are described, the module tells 2"),
        (DynmodIo(1, 2, 64, 64, exact=True), "1 outputs are described, the module tells 2"),
        (DynmodIo(1, 1, 63, 64, exact=False), "inputs described are 64 bytes, the module tells 63"),
        (DynmodIo(1, 1, 64, 32, exact=True), "outputs described are 64 bytes, the module tells 32"),
        (DynmodIo(1, 1, 128, 64, exact=True), "inputs described are 64 bytes, the module tells 128"),
    ],
)
def test_a_record_contradicts(io: DynmodIo, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        io.check(read_sidecar(SIDECAR))


def test_a_record_agrees() -> None:
    network = read_sidecar(SIDECAR)
    for io in (IO, DynmodIo(1, 1, 1000, 64, exact=False), DynmodIo.of(network)):
        io.check(network)
        assert DynmodIo.read(io.write()) == io
    small = read_sidecar(SIDECAR.replace(b"[16]", b"[3]"))
    for output in (12, 64):
        DynmodIo(1, 1, 64, output, exact=True).check(small)
