"""Two small networks with the ports of two of the demonstration's: a session of one costs next to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx

from tests.models.graphs import model, node, tensor

__all__ = ["PORTS", "SIZES", "network"]

PORTS = {"rnet": "input_2", "onet": "input_3"}
SIZES = {"rnet": 24, "onet": 48}
_FOLDS = 16
_OUTPUTS: Mapping[str, Mapping[str, int]] = {
    "rnet": {"dense_2": 4, "softmax_1": 2},
    "onet": {"dense_5": 4, "dense_6": 10, "softmax_2": 2},
}


@cache
def network(name: str) -> bytes:
    """Return a graph that takes float32[N, size, size, 3]; every output depends on every pixel."""
    port, size, outputs = PORTS[name], SIZES[name], _OUTPUTS[name]
    random, width = np.random.default_rng(size), size * size * 3 // _FOLDS
    nodes = [
        _constant("folded", np.array([-1, _FOLDS, width])),
        node("Reshape", [port, "folded"], ["folds"]),
        node("ReduceMean", ["folds"], ["row"], axes=[1], keepdims=0),
    ]
    for output, count in outputs.items():
        weights = f"weights of {output}"
        nodes.append(_constant(weights, random.standard_normal((width, count)).astype(np.float32)))
        nodes.append(node("MatMul", ["row", weights], [output]))
    inputs = [tensor(port, ["N", size, size, 3])]
    return model(nodes, inputs, [tensor(output, ["N", count]) for output, count in outputs.items()])


def _constant(name: str, value: Any) -> Any:
    numpy_helper: Any = onnx.numpy_helper
    return node("Constant", [], [name], value=numpy_helper.from_array(value))
