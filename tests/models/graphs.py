"""ONNX graphs made for the tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import TensorProto, helper

__all__ = ["endless", "model", "node", "tensor"]

onnx_helper: Any = helper
FLOAT = int(TensorProto.FLOAT)
INT64 = int(TensorProto.INT64)
BOOL = int(TensorProto.BOOL)


def tensor(name: str, shape: Sequence[int | str | None] | None, kind: int = FLOAT) -> Any:
    return onnx_helper.make_tensor_value_info(name, kind, shape)


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return onnx_helper.make_node(operator, inputs, outputs, **attributes)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> bytes:
    graph = onnx_helper.make_graph(nodes, "test", inputs, outputs)
    made = onnx_helper.make_model(graph, opset_imports=[onnx_helper.make_opsetid("", 17)])
    made.ir_version = 9
    return bytes(made.SerializeToString())


def endless() -> bytes:
    """Multiply a matrix by itself `n` times: with a large `n`, for longer than anybody waits."""
    body = onnx_helper.make_graph(
        [node("Identity", ["go"], ["go_on"]), node("MatMul", ["m", "m"], ["next"])],
        "body",
        [tensor("i", [], INT64), tensor("go", [], BOOL), tensor("m", [32, 32])],
        [tensor("go_on", [], BOOL), tensor("next", [32, 32])],
    )
    loop = node("Loop", ["n", "", "x"], ["y"], body=body)
    return model([loop], [tensor("n", [], INT64), tensor("x", [32, 32])], [tensor("y", [32, 32])])
