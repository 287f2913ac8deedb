from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repertory.models.errors import ArtifactError
from repertory.models.program import Network
from repertory.models.sketch import MAX_SKETCH, read_sketch, sketch
from repertory.models.spec import Quantisation, TensorSpec

from .mutate import mutations

few = settings(derandomize=True, deadline=None, max_examples=200)

names = st.text(min_size=1, max_size=8)
dtypes = st.sampled_from(["bool", "float16", "float32", "int8", "uint8", "int64", "float64"]).map(np.dtype)


def specs(*, output: bool) -> st.SearchStrategy[TensorSpec]:
    extents: st.SearchStrategy[int | str] = st.integers(0, 9) if output else st.integers(0, 9) | names
    return st.builds(
        TensorSpec,
        name=names,
        shape=st.lists(extents, max_size=4).map(tuple),
        dtype=dtypes,
        layout=st.sampled_from(["", "NHWC"]),
        quantisation=st.none() | st.builds(Quantisation, st.floats(0.001, 9), st.integers(-128, 127)),
    )


def some(specs: st.SearchStrategy[TensorSpec]) -> st.SearchStrategy[list[TensorSpec]]:
    return st.lists(specs, min_size=1, max_size=3, unique_by=lambda spec: spec.name)


def fields(**changes: Any) -> dict[str, Any]:
    return {
        "sketch": 1,
        "name": "detect",
        "inputs": [{"name": "image", "shape": ["N", 32, 32, 3], "dtype": "uint8"}],
        "outputs": [{"name": "boxes", "shape": [10, 4], "dtype": "float32"}],
        "service_ms": 5,
    } | changes


def read(**changes: Any) -> tuple[Network, float | None]:
    return read_sketch(msgspec.json.encode(fields(**changes)))


def test_a_sketch_written_by_hand() -> None:
    network, service = read()
    assert service == 0.005
    assert network == Network(
        "detect",
        (TensorSpec("image", ("N", 32, 32, 3), np.dtype(np.uint8)),),
        (TensorSpec("boxes", (10, 4), np.dtype(np.float32)),),
    )


@few
@given(names, some(specs(output=False)), some(specs(output=True)), st.none() | st.floats(0, 10))
def test_round_trip(
    name: str, inputs: list[TensorSpec], outputs: list[TensorSpec], service: float | None
) -> None:
    network, seconds = read_sketch(sketch(name, inputs, outputs, service=service))
    assert network == Network(name, tuple(inputs), tuple(outputs))
    assert seconds == (None if service is None else pytest.approx(service))


def tensor(**changes: Any) -> list[dict[str, Any]]:
    return [{"name": "x", "shape": [1], "dtype": "float32"} | changes]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sketch": 2}, "sketch"),
        ({"color": "red"}, "unknown field `color`"),
        ({"inputs": tensor(color="red")}, "unknown field `color`"),
        ({"inputs": []}, "inputs"),
        ({"outputs": tensor(dtype="object")}, "dtype"),
        ({"inputs": tensor(shape=[-1])}, "shape"),
        ({"inputs": tensor(shape=[1.5])}, "shape"),
        ({"inputs": tensor(name="")}, "name"),
        ({"inputs": tensor() * 2}, "names a tensor twice"),
        ({"outputs": tensor(shape=["N"])}, "must be fixed"),
        ({"outputs": tensor(shape=[2**40])}, "at most 268435456"),
        ({"service_ms": -1}, "service_ms"),
    ],
)
def test_what_is_no_sketch(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        read(**changes)


def test_what_cannot_be_read_is_not_written() -> None:
    one = TensorSpec("x", (1,), np.dtype(np.float32))
    with pytest.raises(ArtifactError, match="must be fixed"):
        sketch("net", [one], [TensorSpec("y", ("N",), np.dtype(np.float32))])
    with pytest.raises(ArtifactError, match="dtype"):
        sketch("net", [one], [TensorSpec("y", (1,), np.dtype(np.complex64))])
    with pytest.raises(ArtifactError, match="nan seconds"):
        sketch("net", [one], [one], service=float("nan"))


def test_a_huge_file_is_refused_unread() -> None:
    with pytest.raises(ArtifactError, match="at most"):
        read_sketch(b"[" * (MAX_SKETCH + 1))


def fails_cleanly(data: bytes) -> bool:
    try:
        return bool(read_sketch(data))
    except ArtifactError:
        return True


@few
@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_random_bytes_give_only_artifact_errors(data: bytes) -> None:
    assert fails_cleanly(data)


def test_changed_bytes_give_only_artifact_errors() -> None:
    assert all(fails_cleanly(data) for data in mutations(msgspec.json.encode(fields()), 5000))
    assert fails_cleanly(b"[" * 100_000)
    assert fails_cleanly(b'{"inputs": ' + b"[" * 100_000)
