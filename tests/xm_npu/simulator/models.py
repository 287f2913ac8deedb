"""Models for the simulator's own tests."""

from __future__ import annotations

from functools import cache

from repertory.models.pack_xm_npu import Format, pack_xm_npu
from repertory.models.xmm_tensor import NpuType
from tests.models.graphs import model, node, tensor

__all__ = ["WIDTH", "thrice", "twice"]

WIDTH = 16


@cache
def twice(
    *, reuse: int = 0, work: int = 0, latency: float | None = 0.001, private: bytes | None = None
) -> bytes:
    """y = 2 x, of 16 floats."""
    onnx = model([node("Add", ["x", "x"], ["y"])], [tensor("x", [1, WIDTH])], [tensor("y", [1, WIDTH])])
    return pack_xm_npu("twice", onnx, latency=latency, reuse=reuse, work=work, private_data=private)


@cache
def thrice() -> bytes:
    """a = 3 x and b = x, of 3 numbers each: u8 with a scale of 0.5 and a zero point of 4."""
    nodes = [node("Sum", ["x", "x", "x"], ["a"]), node("Identity", ["x"], ["b"])]
    onnx = model(nodes, [tensor("x", [1, 3])], [tensor("a", [1, 3]), tensor("b", [1, 3])])
    formats = {name: Format(NpuType.UINT8, 0.5, 4) for name in ("x", "a", "b")}
    return pack_xm_npu("thrice", onnx, formats=formats, latency=0.001)
