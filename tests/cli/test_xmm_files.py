"""`repertory pack --family xm-npu` and what `repertory inspect` says of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Repertory

Onnx = Callable[[str], Path]
U8 = "input_2=u8:0.0078125:128"


@pytest.fixture
def xmm(repertory: Repertory, onnx: Onnx, tmp_path: Path) -> Path:
    """A packed file with all that one can have."""
    (tmp_path / "labels").write_bytes(b"face")
    path = tmp_path / "rnet.xmm"
    options = ("--format", U8, "--row-alignment", 16, "--work-bytes", 100, "--reuse", 1)
    done = repertory(
        "pack",
        onnx("rnet"),
        "--family",
        "xm-npu",
        *options,
        "--private-data",
        tmp_path / "labels",
        "-o",
        path,
    )
    assert done.code == 0
    return path


def test_the_facts_of_a_packed_model(repertory: Repertory, xmm: Path) -> None:
    facts = repertory("inspect", xmm, "--json").json
    (image,) = facts["tensors"]["inputs"]
    assert image == {
        "name": "input_2",
        "type": "UINT8",
        "shape": [1, 24, 24, 3],
        "pitches": [1920, 80, 3, 1],
        "offset": 0,
        "size": 1920,
        "scale": 0.0078125,
        "zero_point": 128,
        "quantised": True,
    }
    assert (facts["format"], facts["bytes"], facts["model_type"]) == ("xmm", xmm.stat().st_size, 3)
    assert (facts["worksize"], facts["reuse"], facts["regions"]["work"]) == (1920, 1, 100)
    assert (facts["weightsize"], facts["private_data_bytes"]) == (facts["regions"]["params"], 4)
    (program,) = facts["programs"]
    assert program["total"] == facts["regions"]["total"]
    (network,) = facts["networks"]
    assert [output["dtype"] for output in network["outputs"]] == ["float32", "float32"]


def test_a_person_reads_it(repertory: Repertory, xmm: Path) -> None:
    lines = repertory("inspect", xmm).out.splitlines()
    assert "simulation twin: no hardware runs it" in lines[1]
    assert "weightsize" in lines[4]
    assert lines[-3].split() == [
        *("input", "input_2", "UINT8", "1x24x24x3", "1920x80x3x1", "0", "1920", "0.0078125", "128")
    ]


def test_private_data_is_written_out(repertory: Repertory, onnx: Onnx, xmm: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert repertory("inspect", xmm, "--private-data", out).code == 0
    assert out.read_bytes() == b"face"
    bare = tmp_path / "bare.bin"
    repertory("pack", onnx("rnet"), "--family", "xm-npu", "-o", bare)
    assert "it has no private data" in repertory("inspect", bare, "--private-data", out).err
    assert "no model for an NPU" in repertory("inspect", onnx("rnet"), "--private-data", out).err


def test_a_bin_is_the_same_container(repertory: Repertory, xmm: Path) -> None:
    renamed = xmm.rename(xmm.with_suffix(".bin"))
    assert repertory("inspect", renamed, "--json").json["format"] == "xmm"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["xm-npu", "--chips", "1"], "--chips is for the family memx, xm-npu has nothing like it"),
        (["xm-npu", "--layout", "x=NHWC"], "--layout is for the family memx"),
        (["xm-npu", "--format", "bf16"], "'bf16' is none of u8, s8, u16"),
        (["xm-npu", "--format", "u8:x"], "TYPE[:SCALE[:ZERO_POINT]] is wanted"),
        (["xm-npu", "--format", "u8:1:2:3"], "TYPE[:SCALE[:ZERO_POINT]] is wanted"),
        (["xm-npu", "--format", "fp32:2"], "FP32 is not quantised"),
        (["xm-npu", "--format", "x=u8"], "no tensor is called 'x'"),
        (["xm-npu", "--private-data", "/nowhere"], "/nowhere: No such file"),
        (["memx", "--work-bytes", "0"], "--work-bytes is for the family xm-npu, memx has nothing like it"),
        (["c7x", "--format", "u8"], "--format is for the family memx and xm-npu, c7x has nothing like it"),
    ],
)
def test_options_that_are_refused(
    repertory: Repertory, onnx: Onnx, tmp_path: Path, options: list[str], message: str
) -> None:
    done = repertory("pack", onnx("rnet"), "-o", tmp_path / "out", "--family", *options)
    assert done.code in {1, 2}
    assert message in done.err
    assert not (tmp_path / "out").exists()


def test_a_spoiled_model(repertory: Repertory, xmm: Path) -> None:
    xmm.write_bytes(xmm.read_bytes()[:-1])
    done = repertory("inspect", xmm)
    assert (done.code, done.out) == (1, "")
    assert f"{xmm}: .xmm: " in done.err
