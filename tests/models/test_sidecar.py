from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repertory.models.errors import ArtifactError
from repertory.models.program import Network
from repertory.models.sidecar import DTYPES, fill_in, read_sidecar, write_sidecar
from repertory.models.spec import TensorSpec


def tensor(name: str = "x", shape: Any = (1, 4), dtype: str = "float32") -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "dtype": dtype}


def sidecar(*inputs: Any, outputs: Any = None, **changes: Any) -> bytes:
    told = {"name": "net", "inputs": list(inputs) or [tensor()], "outputs": outputs or [tensor("y")]}
    return json.dumps({**told, **changes}).encode()


specs = st.builds(
    TensorSpec,
    st.text(min_size=1),
    st.lists(st.integers(1, 20), max_size=6).map(tuple),
    st.sampled_from(DTYPES).map(np.dtype),
)


def sides(most: int) -> st.SearchStrategy[tuple[TensorSpec, ...]]:
    return st.lists(specs, min_size=1, max_size=most, unique_by=lambda spec: spec.name).map(tuple)


@given(st.builds(Network, st.just("net"), sides(5), sides(5)))
def test_what_is_written_is_what_is_read(network: Network) -> None:
    assert read_sidecar(write_sidecar(network)) == network


def test_one_by_hand() -> None:
    network = read_sidecar(
        b"""{"name": "yolo", "inputs": [{"name": "image", "shape": [1, 3, 640, 640], "dtype": "uint8"}],
        "outputs": [{"name": "scale", "shape": [], "dtype": "float16"}]}"""
    )
    image, scale = network.inputs[0], network.outputs[0]
    assert (network.name, str(image), str(scale)) == ("yolo", "uint8[1, 3, 640, 640]", "float16[]")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the sidecar cannot be read"),
        (b"[]", "the sidecar cannot be read: Expected `object`"),
        (b"\xff\xfe{", "the sidecar cannot be read"),
        (b'{"a":' * 100_000, "the sidecar cannot be read"),
        (sidecar(shape=3), "unknown field `shape`"),
        (sidecar({"name": "x", "shape": [1]}), r"missing required field `dtype` - at `\$.inputs\[0\]`"),
        (sidecar(tensor(shape=["N", 4])), r"Expected `int`, got `str` - at `\$.inputs\[0\].shape\[0\]`"),
        (sidecar(tensor(shape=[1.5])), "Expected `int`"),
        (sidecar(tensor("seven", [1] * 7)), "'seven' has 7 axes, the wire has 6"),
        (sidecar(tensor("mask", dtype="bool")), "'mask' is bool, which the wire to the DSP has no code for"),
        (sidecar(tensor("c", dtype="complex64")), "'c' is 'complex64'; the wire to the DSP has float16"),
        (sidecar(tensor("e", dtype=">f4")), "'e' is '>f4'"),
        (sidecar(tensor("zero", [4, 0])), r"'zero' is float32\[4, 0\]: its extents are to be fixed, 1 or"),
        (sidecar(tensor("less", [-1])), "'less' is"),
        (sidecar(tensor("vast", [2**60] * 6)), "'vast' is .* bytes; the DSP shares 536870912"),
        (sidecar(tensor(""), tensor("b")), "a tensor has no name"),
        (sidecar(tensor("a"), tensor("b"), tensor("a")), "two of its inputs are called 'a'"),
        (sidecar(outputs=[tensor("y"), tensor("y")]), "two of its outputs are called 'y'"),
        (sidecar(*(tensor(f"x{n}") for n in range(129))), "it has 129 inputs; 1 to 128 are possible"),
        (sidecar(outputs=[tensor(f"y{n}") for n in range(65)]), "it has 65 outputs; 1 to 64 are possible"),
        (sidecar(inputs=[]), "it has 0 inputs"),
        (sidecar(name=""), "'' is no name"),
        (sidecar(name="a\nb"), "is no name"),
    ],
)
def test_what_no_wire_carries(data: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        read_sidecar(data)


def test_as_many_as_there_may_be() -> None:
    outputs = [tensor(f"y{n}", [1] * 6) for n in range(64)]
    network = read_sidecar(sidecar(*(tensor(f"x{n}", []) for n in range(128)), outputs=outputs))
    assert (len(network.inputs), len(network.outputs)) == (128, 64)
    # a tensor may go through under one name
    assert read_sidecar(sidecar(tensor("x"), outputs=[tensor("x")])).outputs[0].name == "x"


def test_open_extents_and_foreign_dtypes_are_not_written() -> None:
    for spec in (TensorSpec("x", ("N",), np.dtype("f4")), TensorSpec("x", (1,), np.dtype("?"))):
        with pytest.raises(ArtifactError, match="'x' is"):
            write_sidecar(Network("net", (spec,), (spec,)))


def test_a_sidecar_to_fill_in_is_refused_until_it_is() -> None:
    blank = fill_in("lib0", 2, 1)
    assert [side["name"] for side in json.loads(blank)["inputs"]] == ["input_0", "input_1"]
    with pytest.raises(ArtifactError, match=r"'input_0' is .*: its extents are to be fixed"):
        read_sidecar(blank)
    assert read_sidecar(blank.replace(b"0\n", b"5\n")).inputs[1].shape == (1, 5)


def test_a_module_that_claims_billions_of_tensors_gets_no_more_lines_than_there_may_be() -> None:
    blank = json.loads(fill_in("lib0", 2**32 - 1, 2**32 - 1))
    assert (len(blank["inputs"]), len(blank["outputs"])) == (128, 64)
