"""Modules for simulated DSPs, packed once for all tests."""

from __future__ import annotations

from functools import cache

from onnx import TensorProto

from repertory.models.pack_c7x import pack_c7x
from tests.models.graphs import model, node, tensor

__all__ = ["double", "many", "scalar", "square", "summed", "wide"]

FLOAT16 = int(TensorProto.FLOAT16)


@cache
def double(latency: float | None = None, *, name: str = "double") -> bytes:
    """y = x + x, of 4 floats."""
    onnx = model([node("Add", ["x", "x"], ["y"])], [tensor("x", [1, 4])], [tensor("y", [1, 4])])
    return pack_c7x(name, onnx, latency=latency)


@cache
def square() -> bytes:
    """y = x * x, of 4 floats."""
    onnx = model([node("Mul", ["x", "x"], ["y"])], [tensor("x", [1, 4])], [tensor("y", [1, 4])])
    return pack_c7x("square", onnx)


@cache
def summed(count: int) -> bytes:
    """y = x0 + x1 + ..., of 3 floats each."""
    names = [f"x{place}" for place in range(count)]
    onnx = model([node("Sum", names, ["y"])], [tensor(name, [3]) for name in names], [tensor("y", [3])])
    return pack_c7x("summed", onnx)


@cache
def many(count: int) -> bytes:
    """y0 = x, y1 = x + x, ...: each the one before and x more."""
    nodes = [node("Identity", ["x"], ["y0"])]
    nodes += [node("Add", [f"y{place - 1}", "x"], [f"y{place}"]) for place in range(1, count)]
    outputs = [tensor(f"y{place}", [2, 3]) for place in range(count)]
    return pack_c7x("many", model(nodes, [tensor("x", [2, 3])], outputs))


@cache
def scalar() -> bytes:
    """y = -x, halves without axes."""
    onnx = model([node("Neg", ["x"], ["y"])], [tensor("x", [], FLOAT16)], [tensor("y", [], FLOAT16)])
    return pack_c7x("scalar", onnx)


@cache
def wide(extent: int, count: int) -> bytes:
    """Copies of x."""
    names = [f"y{place}" for place in range(count)]
    nodes = [node("Identity", ["x"], [name]) for name in names]
    onnx = model(nodes, [tensor("x", [extent])], [tensor(name, [extent]) for name in names])
    return pack_c7x("wide", onnx)
