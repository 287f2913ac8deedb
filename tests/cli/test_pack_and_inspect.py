from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from repertory.runtime.demo import photos

from .conftest import Repertory

Onnx = Callable[[str], Path]


def test_what_was_packed_is_what_is_inspected(repertory: Repertory, onnx: Onnx, tmp_path: Path) -> None:
    path = tmp_path / "rnet.dfp"
    packed = repertory("pack", onnx("rnet"), "--family", "memx", "-o", path, "--json")
    assert packed.code == 0
    inspected = repertory("inspect", path, "--json")
    assert inspected.code == 0
    assert packed.json == inspected.json


def test_the_facts_of_a_packed_file(repertory: Repertory, onnx: Onnx, tmp_path: Path) -> None:
    path = tmp_path / "rnet.dfp"
    facts = repertory("pack", onnx("rnet"), "--chips", 2, "-o", path, "--json").json
    (network,) = facts.pop("networks")
    assert facts == {
        "file": str(path),
        "format": "dfp",
        "bytes": path.stat().st_size,
        "chips": 2,
        "generation": 4,
        "compiler": "repertory-pack 1",
        "compiled_bytes": 0,
        "simulation_twin": True,
    }
    assert network["name"] == "rnet"
    assert network["twin"] is True
    assert network["inputs"] == [
        {
            "name": "input_2",
            "shape": [1, 24, 24, 3],
            "dtype": "float32",
            "layout": "NHWC",
            "port": 0,
            "format": "FLOAT32",
            "device_shape": [24, 24, 1, 3],
            "frame_bytes": 6912,
        }
    ]
    assert [output["name"] for output in network["outputs"]] == ["dense_2", "softmax_1"]


def test_a_person_reads_that_it_is_a_twin(repertory: Repertory, onnx: Onnx, tmp_path: Path) -> None:
    done = repertory("pack", onnx("rnet"), "-o", tmp_path / "rnet.dfp")
    assert "simulation twin: no hardware runs it" in done.out
    assert "input_2: float32[1, 24, 24, 3]" in done.out


def test_two_networks_in_one_file(repertory: Repertory, onnx: Onnx, tmp_path: Path) -> None:
    path = tmp_path / "both.dfp"
    facts = repertory("pack", onnx("rnet"), onnx("onet"), "-o", path, "--json").json
    assert [(n["name"], n["configuration"]) for n in facts["networks"]] == [("rnet", 0), ("onet", 1)]
    facts = repertory("pack", onnx("rnet"), onnx("onet"), "--co-map", "-o", path, "--json").json
    assert [(n["name"], n["configuration"]) for n in facts["networks"]] == [("rnet", 0), ("onet", 0)]


def test_an_open_shape_is_asked_for(repertory: Repertory, onnx: Onnx, tmp_path: Path) -> None:
    path = tmp_path / "pnet.dfp"
    refused = repertory("pack", onnx("pnet"), "-o", path)
    assert refused.code in {1, 2}
    assert "--shape input_1=1,<M1>,<M2>,3" in refused.err
    assert not path.exists()
    packed = repertory("pack", onnx("pnet"), "-o", path, "--shape", "input_1=1,352,272,3", "--json")
    assert packed.code == 0
    assert packed.json["networks"][0]["inputs"][0]["shape"] == [1, 352, 272, 3]


@pytest.mark.parametrize(
    "options",
    [
        ["--shape", "input_2"],
        ["--shape", "input_2=1,24,wide,3"],
        ["--shape", "input_7=1,24,24,3"],
        ["--shape", "=1,24,24,3"],
        ["--layout", "NHWC"],
        ["--chips", "many"],
        ["--family", "abacus"],
    ],
)
def test_a_wrong_option_exits_with_2(
    repertory: Repertory, onnx: Onnx, tmp_path: Path, options: list[str]
) -> None:
    done = repertory("pack", onnx("rnet"), "-o", tmp_path / "rnet.dfp", *options)
    assert done.code == 2
    assert not (tmp_path / "rnet.dfp").exists()


def test_a_folder_that_is_not_there(repertory: Repertory, onnx: Onnx, tmp_path: Path) -> None:
    done = repertory("pack", onnx("rnet"), "-o", tmp_path / "none" / "rnet.dfp")
    assert done.code == 2
    assert str(tmp_path / "none" / "rnet.dfp") in done.err


def test_a_graph_that_is_not_there(repertory: Repertory, tmp_path: Path) -> None:
    done = repertory("pack", tmp_path / "none.onnx", "-o", tmp_path / "none.dfp")
    assert done.code == 1
    assert "none.onnx: No such file or directory" in done.err


def test_inspect_an_onnx_file(repertory: Repertory, onnx: Onnx) -> None:
    path = onnx("rnet")
    done = repertory("inspect", path, "--json")
    (network,) = done.json["networks"]
    assert done.json["format"] == "onnx"
    assert network["inputs"] == [
        {"name": "input_2", "shape": ["N", 24, 24, 3], "dtype": "float32", "layout": ""}
    ]
    assert "float32[N, 24, 24, 3]" in repertory("inspect", path).out


def test_inspect_a_sketch(repertory: Repertory, sketched: Callable[[str], Path]) -> None:
    facts = repertory("inspect", sketched("small"), "--json").json
    assert facts["format"] == "sketch"
    assert [network["name"] for network in facts["networks"]] == ["small"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("noise.dfp", bytes(range(256))),
        ("empty.dfp", b""),
        ("noise.onnx", bytes(range(256))),
        ("broken.json", b"{"),
        ("old.dfp", (5).to_bytes(8, "little") + b"\1" + bytes(100)),
    ],
)
def test_inspect_what_is_no_model(repertory: Repertory, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    done = repertory("inspect", tmp_path / name)
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith(f"repertory inspect: {tmp_path / name}: ")


@pytest.mark.parametrize("length", [1, 8, 9, 100, 1000, 30_000])
def test_inspect_a_truncated_file(repertory: Repertory, onnx: Onnx, tmp_path: Path, length: int) -> None:
    path = tmp_path / "rnet.dfp"
    assert repertory("pack", onnx("rnet"), "-o", path).code == 0
    path.write_bytes(path.read_bytes()[:length])
    done = repertory("inspect", path)
    assert done.code == 1
    assert "at byte" in done.err


def test_inspect_what_is_not_there(repertory: Repertory, tmp_path: Path) -> None:
    assert repertory("inspect", tmp_path / "none.dfp").code == 1
    assert repertory("inspect", tmp_path).code == 1


def test_the_packed_file_runs(repertory: Repertory, onnx: Onnx, tmp_path: Path) -> None:
    path = tmp_path / "both.dfp"
    assert repertory("pack", onnx("rnet"), onnx("onet"), "-o", path).code == 0
    options = ("--device", "sim+memx://0", "--count", 3, "--json")
    refused = repertory("run", path, *options)
    assert refused.code == 1
    assert "network" in refused.err
    done = repertory("run", path, "--network", "rnet", "--network", "onet", *options)
    assert {name: m["answered"] for name, m in done.json["models"].items()} == {"rnet": 3, "onet": 3}
    assert set(photos.NETWORKS) > done.json["models"].keys()
