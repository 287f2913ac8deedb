"""What the DSP's loader takes, and what it refuses."""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repertory.models.dynmod import Dynmod
from repertory.models.elf_sections import with_sections
from repertory.models.onnx_model import OnnxExecutor
from repertory.models.twin import Twin, TwinNetwork, encode
from repertory.transports.rpmsg.simulator.elf import NotLoadable, read_elf
from repertory.transports.rpmsg.simulator.module import CallFailed, Shelf
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x

from .modules import double, many

SEGMENTS = 64


def test_a_packed_module_is_taken() -> None:
    elf = read_elf(double())
    assert {b"cg_main_dsp", b"_binary_weights_bin_start"} <= set(elf.symbols)
    assert {b".repertory_twin", b".repertory_io"} <= set(elf.sections)
    meta = elf.at(elf.symbols[b"_binary_tvm_dsp_io_meta_start"].value, 40)
    assert meta is not None
    assert struct.unpack_from("<4I", meta) == (0x4D4F4954, 1, 1, 1)


def test_both_readers_see_the_same() -> None:
    module = Shelf(SimulatedC7x()).module(many(3))
    told = Dynmod.read(many(3))
    assert told.network is not None
    assert told.io is not None
    assert module.network == told.network
    assert module.entry
    assert module.meta[2:4] == (told.io.inputs, told.io.outputs) == (1, 3)
    assert module.meta[:2] == (told.io.input_bytes, told.io.output_bytes)


def test_a_module_is_read_once() -> None:
    shelf = Shelf(SimulatedC7x())
    assert shelf.module(double()) is shelf.module(bytes(bytearray(double())))
    assert shelf.module(double()) is not shelf.module(many(3))


def patched(offset: int, form: str, value: int) -> bytes:
    data = bytearray(double())
    struct.pack_into(form, data, offset, value)
    return bytes(data)


def in_dynamic(tag: int, value: int | None) -> bytes:
    """Change the value of a tag in the dynamic segment, or (None) hide it."""
    data = bytearray(double())
    for at in range(SEGMENTS, SEGMENTS + 56 * struct.unpack_from("<H", data, 56)[0], 56):
        if struct.unpack_from("<I", data, at)[0] == 2:
            start, size = (
                struct.unpack_from("<Q", data, at + 8)[0],
                struct.unpack_from("<Q", data, at + 32)[0],
            )
            for place in range(start, start + size, 16):
                if struct.unpack_from("<Q", data, place)[0] == tag:
                    if value is None:
                        struct.pack_into("<Q", data, place, 0x6FFFFFFF)
                    else:
                        struct.pack_into("<Q", data, place + 8, value)
                    return bytes(data)
    raise LookupError(tag)


def renamed(name: bytes) -> bytes:
    return double().replace(name, name[:-1] + b"?")


BAD: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "beyond the end"),
    "text": (b"x" * 64, "no ELF file"),
    "32 bits": (patched(4, "<B", 1), "64 bits"),
    "big-endian": (patched(5, "<B", 2), "little-endian"),
    "another machine": (patched(18, "<H", 62), "machine 62"),
    "another system": (patched(7, "<B", 0), "OS/ABI 0"),
    "relocatable": (patched(16, "<H", 1), "type 1"),
    "core": (patched(16, "<H", 4), "type 4"),
    "odd program headers": (patched(54, "<H", 32), "program headers of 32"),
    "segments beyond": (patched(32, "<Q", 1 << 40), "beyond the end"),
    "sections beyond": (patched(40, "<Q", 1 << 40), "beyond the end"),
    "too many sections": (patched(60, "<H", 0xFFFF), "beyond the end"),
    "names beyond": (patched(62, "<H", 0xFFF0), "no names of sections"),
    "no dynamic segment": (patched(56, "<H", 0), "OS/ABI 64"),
    "a segment larger in the file": (patched(SEGMENTS + 40, "<Q", 1), "a segment lies beyond"),
    "a segment beyond": (patched(SEGMENTS + 8, "<Q", 1 << 30), "a segment lies beyond"),
    "no SONAME": (in_dynamic(14, None), "no SONAME"),
    "no symbol table": (in_dynamic(6, None), "no symbol table"),
    "no string table": (in_dynamic(5, None), "no string table"),
    "another library": (renamed(b"dsp_syms.out"), "a library is missing"),
    "no table of the firmware": (renamed(b".dsp_syms_out"), "a library is missing"),
    "name of a library beyond": (in_dynamic(1, 1 << 30), "beyond its table"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str) -> None:
    data, why = BAD[name]
    with pytest.raises(NotLoadable, match=why):
        read_elf(data)


def test_a_file_of_this_machine_is_refused() -> None:
    with pytest.raises(NotLoadable):
        read_elf(Path(sys.executable).read_bytes())


def test_any_bytes_are_taken_or_refused() -> None:
    draw, shelf = random.Random(7), Shelf(SimulatedC7x(answers="hash"))
    taken = 0
    for _ in range(600):
        data = bytearray(double())
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            shelf.module(bytes(data[: draw.choice([len(data), draw.randrange(len(data))])]))
            taken += 1
        except NotLoadable:
            pass
    assert 0 < taken < 600


def test_no_entry_is_no_reason_to_refuse() -> None:
    assert not Shelf(SimulatedC7x()).module(renamed(b"cg_main_dsp")).entry


@pytest.mark.parametrize("content", [b"no graph", b""])
def test_a_twin_that_nobody_can_read_is_refused(content: bytes) -> None:
    twin = encode(Twin(1, [TwinNetwork("net", content, ["x"], ["y"])]))
    with pytest.raises(NotLoadable, match="its twin cannot be read"):
        Shelf(SimulatedC7x()).module(with_sections(bare(), {".repertory_twin": twin}))


def test_a_module_of_which_nothing_is_told_is_loaded_and_fails_when_called() -> None:
    module = Shelf(SimulatedC7x()).module(bare())
    assert module.network is None
    with pytest.raises(CallFailed):
        module.call([])


def test_a_crash_of_a_twin_is_a_failed_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(OnnxExecutor, "run", crash)
    with pytest.raises(CallFailed) as caught:
        Shelf(SimulatedC7x()).module(double()).call([np.zeros((1, 4), np.float32)])
    assert isinstance(caught.value.__cause__, RuntimeError)


def bare() -> bytes:
    """A module without the sections that are for simulators."""
    return (
        double()
        .replace(b".repertory_twin\0", b".another_twin__\0")
        .replace(b".repertory_io\0", b".another_io__\0")
    )


def test_what_a_module_wants_from_elsewhere_is_no_symbol_of_its_own() -> None:
    assert b"memcpy" in double()
    assert b"memcpy" not in read_elf(double()).symbols


@pytest.mark.parametrize(
    "given", [np.zeros((1, 4), np.int32), np.zeros(4, np.float32), np.zeros((1, 5), np.float32)]
)
def test_a_hash_answers_only_what_fits(given: Any) -> None:
    module = Shelf(SimulatedC7x(answers="hash")).module(double())
    assert module.call([np.zeros((1, 4), np.float32)])[0].shape == (1, 4)
    with pytest.raises(CallFailed):
        module.call([given])
