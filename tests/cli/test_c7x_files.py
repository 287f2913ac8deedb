"""Modules for a DSP, packed and looked into from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.models.modules import SIDECAR, linked, module, patched

from .conftest import Repertory

Onnx = Callable[[str], Path]


@pytest.fixture
def lib0(tmp_path: Path) -> Path:
    """Write a compiled module to a file."""
    path = tmp_path / "lib0.out"
    path.write_bytes(module())
    return path


def test_what_was_packed_is_what_is_inspected(repertory: Repertory, onnx: Onnx, tmp_path: Path) -> None:
    path = tmp_path / "lib0.out"
    packed = repertory("pack", onnx("rnet"), "--family", "c7x", "-o", path, "--latency-ms", 2, "--json")
    assert packed.code == 0
    facts = packed.json
    assert facts == repertory("inspect", path, "--json").json
    (network,) = facts.pop("networks")
    assert facts == {
        "file": str(path),
        "format": "dynmod",
        "bytes": path.stat().st_size,
        "soname": "lib0.out",
        "machine": 145,
        "imports": 2,
        "weight_bytes": 64,
        "io": {"inputs": 1, "outputs": 2, "input_bytes": 6912, "output_bytes": 128, "exact": True},
        "twin": True,
        "simulation_twin": True,
    }
    assert network["name"] == "rnet"
    assert network["inputs"] == [
        {"name": "input_2", "shape": [1, 24, 24, 3], "dtype": "float32", "layout": ""}
    ]


def test_a_person_reads_what_it_is(repertory: Repertory, onnx: Onnx, lib0: Path) -> None:
    text = repertory("inspect", lib0).out
    assert "machine 145; compiled\n" in text
    assert "inputs 1, 64 bytes; outputs 1, 64 bytes (wire version 3)" in text
    assert "a sidecar must tell them" in text
    packed = repertory("pack", onnx("rnet"), "--family", "c7x", "-o", lib0).out
    assert "simulation twin: no hardware runs it" in packed
    assert "input_2: float32[1, 24, 24, 3]" in packed


def test_a_module_of_wire_version_2_and_of_another_machine(repertory: Repertory, lib0: Path) -> None:
    lib0.write_bytes(patched(module(io=None), 18, b"\x3e\0"))
    text = repertory("inspect", lib0).out
    assert "machine 62 (a C7x is 145)" in text
    assert "it tells none (wire version 2)" in text


def test_a_sidecar_to_fill_in_and_then_to_use(repertory: Repertory, lib0: Path) -> None:
    lib0.write_bytes(linked())
    blank = repertory("inspect", "--sidecar", lib0)
    assert blank.code == 0
    assert [tensor["name"] for tensor in blank.json["inputs"]] == ["input_0", "input_1"]
    beside = lib0.with_name("lib0.out.json")
    beside.write_text(blank.out)
    refused = repertory("inspect", lib0)
    assert refused.code == 1
    assert "'input_0' is float32[1, 0]: its extents are to be fixed" in refused.err
    beside.write_text(blank.out.replace("0\n", "2\n"))
    (network,) = repertory("inspect", lib0, "--json").json["networks"]
    assert [tensor["shape"] for tensor in network["inputs"]] == [[1, 2], [1, 2]]
    assert repertory("inspect", "--sidecar", lib0).json["name"] == "lib0"


def test_a_sidecar_that_contradicts_is_found(repertory: Repertory, lib0: Path) -> None:
    lib0.write_bytes(linked())
    lib0.with_name("lib0.out.json").write_bytes(SIDECAR)
    done = repertory("inspect", lib0)
    assert done.code == 1
    assert f"{lib0}: {lib0}.json: net: 1 inputs are described, the module tells 2" in done.err


def test_the_sidecar_of_a_packed_file_is_inside(repertory: Repertory, onnx: Onnx, lib0: Path) -> None:
    repertory("pack", onnx("rnet"), "--family", "c7x", "-o", lib0)
    assert [tensor["name"] for tensor in repertory("inspect", "--sidecar", lib0).json["outputs"]] == [
        "dense_2",
        "softmax_1",
    ]


def test_other_files_have_no_sidecar(repertory: Repertory, onnx: Onnx) -> None:
    done = repertory("inspect", "--sidecar", onnx("rnet"))
    assert (done.code, done.out) == (2, "")
    assert "is no module for a DSP" in done.err


def test_an_open_shape_is_asked_for(repertory: Repertory, onnx: Onnx, lib0: Path) -> None:
    before = lib0.read_bytes()
    options = ("pack", onnx("pnet"), "--family", "c7x", "-o", lib0)
    refused = repertory(*options)
    assert refused.code == 1
    assert "--shape input_1=1,<M1>,<M2>,3" in refused.err
    assert lib0.read_bytes() == before
    packed = repertory(*options, "--shape", "input_1=1,48,64,3", "--json")
    assert packed.json["networks"][0]["inputs"][0]["shape"] == [1, 48, 64, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layout", "x=NHWC"], "--layout is for the family memx"),
        (["--format", "bf16"], "--format is for the family memx"),
        (["--chips", "4"], "--chips is for the family memx"),
        (["--chips", "0"], "--chips is for the family memx"),
        (["--co-map"], "--co-map is for the family memx"),
        (["--latency-ms", "-1"], "--latency-ms -1: 0 to 3600000 ms are possible"),
        (["--latency-ms", "nan"], "--latency-ms nan: "),
        (["--latency-ms", "3600001"], "--latency-ms 3.6e+06: "),
        (["--interval-ms", "0"], "--interval-ms is for the family memx"),
        (["--shape", "x=1,2"], "no input is called 'x'; there are input_2"),
    ],
)
def test_options_of_another_family(
    repertory: Repertory, onnx: Onnx, tmp_path: Path, options: list[str], message: str
) -> None:
    done = repertory("pack", onnx("rnet"), "--family", "c7x", "-o", tmp_path / "lib0.out", *options)
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "lib0.out").exists()


def test_several_models_are_several_modules(repertory: Repertory, onnx: Onnx, tmp_path: Path) -> None:
    done = repertory("pack", onnx("rnet"), onnx("onet"), "--family", "c7x", "-o", tmp_path / "lib0.out")
    assert done.code == 2
    assert "2 models came; a module for a DSP holds one" in done.err


@pytest.mark.parametrize("length", [4, 64, 1000, -1])
def test_inspect_a_truncated_module(repertory: Repertory, lib0: Path, length: int) -> None:
    lib0.write_bytes(lib0.read_bytes()[:length])
    done = repertory("inspect", lib0)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"repertory inspect: {lib0}: ELF: ")


@pytest.mark.parametrize("name", ["lib0.out", "lib0", "lib0.bin"])
@pytest.mark.parametrize("data", [b"", bytes(64), b"MZ and so on", b"\x89PNG\r\n\x1a\n"])
def test_inspect_what_is_nothing_that_we_know(
    repertory: Repertory, tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    done = repertory("inspect", tmp_path / name)
    assert (done.code, done.out) == (1, "")
    reason = f"neither ELF module, DFP, .xmm, ONNX nor sketch ({len(data)} bytes)"
    assert done.err == f"repertory inspect: {tmp_path / name}: {reason}\n"


def test_inspect_what_claims_to_be_a_dfp(repertory: Repertory, tmp_path: Path) -> None:
    (tmp_path / "net.dfp").write_bytes(b"")
    assert "no DFP file: too short" in repertory("inspect", tmp_path / "net.dfp").err
    (tmp_path / "net").write_bytes(b"\x05" + bytes(63))
    assert "DFP version 5 is the legacy format" in repertory("inspect", tmp_path / "net").err


def test_what_is_no_file_is_not_read(repertory: Repertory, tmp_path: Path) -> None:
    done = repertory("inspect", "/dev/zero")
    assert (done.code, done.out) == (1, "")
    assert "/dev/zero: it is a character device; a regular file is wanted" in done.err
    done = repertory("pack", "/dev/zero", "--family", "c7x", "-o", tmp_path / "lib0.out")
    assert done.code == 1
    assert "/dev/zero: it is a character device" in done.err
