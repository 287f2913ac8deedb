from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Repertory

Onnx = Callable[[str], Path]


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
