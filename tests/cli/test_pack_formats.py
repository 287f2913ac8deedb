from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Repertory

Onnx = Callable[[str], Path]

DFP, ELF, XMM = b"\x06\0\0\0\0", b"\x7fELF", b"ZZZZ"


def test_formats_of_ports(repertory: Repertory, onnx: Onnx, tmp_path: Path) -> None:
    formats = ("--format", "gbf80-row", "--format", "softmax_1=bf16", "--format", "rnet:input_2=rgb888")
    done = repertory("pack", onnx("rnet"), *formats, "-o", tmp_path / "rnet.dfp", "--json")
    (network,) = done.json["networks"]
    (image,) = network["inputs"]
    assert (image["format"], image["dtype"], image["frame_bytes"]) == ("RGB888", "uint8", 1728)
    assert [(port["name"], port["format"]) for port in network["outputs"]] == [
        ("dense_2", "GBF80_ROW"),
        ("softmax_1", "BF16"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yuv422", "'yuv422' is none of fp32, bf16, gbf80, gbf80-row, rgb888"),
        ("input_2=", "'' is none of"),
        ("input_9=bf16", "no tensor is called 'input_9'; there are dense_2, input_2"),
        ("rgb888", "output 'dense_2' cannot be RGB888, a format of inputs alone"),
    ],
)
def test_formats_that_no_port_has(
    text: str, message: str, repertory: Repertory, onnx: Onnx, tmp_path: Path
) -> None:
    done = repertory("pack", onnx("rnet"), "--format", text, "-o", tmp_path / "rnet.dfp")
    assert done.code != 0
    assert message in done.err
    assert not (tmp_path / "rnet.dfp").exists()


def test_help_tells_the_formats(repertory: Repertory) -> None:
    text = " ".join(repertory("pack", "--help").out.split())
    assert "--format [NAME=]FORMAT" in text
    assert "fp32, bf16, gbf80, gbf80-row, rgb888" in text


@pytest.mark.parametrize(
    ("output", "start"),
    [
        ("a.dfp", DFP),
        ("lib0.out", ELF),
        ("A.XMM", XMM),
        ("a.bin", XMM),
        ("a.dfp --family memx", DFP),
        ("a.out --family c7x", ELF),
        ("a.model --family c7x", ELF),
        ("a", DFP),
    ],
)
def test_the_suffix_says_the_family(
    repertory: Repertory, onnx: Onnx, tmp_path: Path, output: str, start: bytes
) -> None:
    name, *options = output.split()
    assert repertory("pack", onnx("rnet"), "-o", tmp_path / name, *options).code == 0
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("a.xmm --family memx", "a.xmm: .xmm is for the family xm-npu; what memx has ends in .dfp"),
        ("a.dfp --family c7x", "a.dfp: .dfp is for the family memx; what c7x has ends in .out"),
        ("a.OUT --family xm-npu", "a.OUT: .out is for the family c7x; what xm-npu has ends in .xmm"),
        ("a.xmm --chips 2", "--chips is for the family memx, xm-npu has nothing like it"),
        *((f"a.{kind}", f".{kind} is no model file's") for kind in ("onnx", "json", "toml", "npy", "svg")),
        ("a.onnx --family memx", ".onnx is no model file's; .dfp, .out, .xmm, .bin are packed"),
    ],
)
def test_a_file_never_gets_the_name_of_another_kind(
    repertory: Repertory, onnx: Onnx, tmp_path: Path, output: str, message: str
) -> None:
    name, *options = output.split()
    done = repertory("pack", onnx("rnet"), "-o", tmp_path / name, *options)
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / name).exists()
