"""The graphs that lie among parameters, made ready to run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, final

import numpy as np

from repertory.models import xmm_numbers
from repertory.models.errors import ArtifactError
from repertory.models.onnx_model import OnnxExecutor
from repertory.models.spec import Array, TensorSpec
from repertory.models.xmm_tensor import XmmTensor

from .memory import Mmz

__all__ = ["Graph", "Graphs"]

_KEPT: Final = 32
_PROBE: Final = 1 << 18
"""Bytes of a graph that are compared at each run; of a larger one, its ends and a part in turn."""


@final
class Graph:
    """One graph.

    Args:
        data: a whole ONNX model.
        digest: of it.
    """

    def __init__(self, data: Array, digest: bytes) -> None:
        self._data = data
        self._digest = digest
        self._lock = threading.Lock()
        self._executor: OnnxExecutor | None = None
        self._places: set[tuple[int, int]] = set()
        self._turn = 0

    def check(self, found: Array, place: tuple[int, int]) -> None:
        """Compare with what lies in memory: all of it at a new place, then a part at a time.

        Raises:
            ArtifactError: it is another.
        """
        size = found.size
        spans = [(0, size)]
        if place in self._places and size > 2 * _PROBE:
            self._turn += 1
            turn = self._turn * _PROBE % (size - _PROBE)
            spans = [(0, _PROBE // 4), (turn, turn + _PROBE // 4), (size - _PROBE // 4, size)]
        if any(not np.array_equal(found[a:b], self._data[a:b]) for a, b in spans):
            raise ArtifactError("the graph is not the one that the code names")
        self._places.add(place)

    def run(self, inputs: Mapping[str, tuple[XmmTensor, memoryview]]) -> dict[str, Array]:
        """Compute one item, from the NPU's numbers.

        Raises:
            DeviceError: onnxruntime refused or failed.
            ArtifactError: it is no graph that onnxruntime loads, or not one of these inputs.
        """
        with self._lock:
            executor = self._executor = self._executor or OnnxExecutor(self._data.tobytes(), name="graph")
            network = executor.network
            if missing := {spec.name for spec in network.inputs} - inputs.keys():
                raise ArtifactError(f"the graph wants {', '.join(sorted(missing))}")
            given = [_given(*inputs[spec.name], spec) for spec in network.inputs]
            outputs = executor.run(given)
            return dict(zip((spec.name for spec in network.outputs), outputs, strict=True))


def _given(tensor: XmmTensor, data: memoryview, spec: TensorSpec) -> Array:
    return xmm_numbers.fitted(xmm_numbers.read_as(data, tensor, spec.dtype), spec.shape)


@final
class Graphs:
    """Graphs that were run before: making one ready costs milliseconds, and a model is loaded often."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Graph] = {}

    def graph(self, memory: Mmz, at: int, size: int, digest: bytes) -> Graph:
        """Return the graph that lies there.

        Raises:
            ArtifactError: what lies there has another digest.
        """
        block = memory.block(at, size)
        if block is None:
            raise ArtifactError(f"no memory of {size} bytes at {at:#x}")
        found = block.memory[at - block.phys :][:size]
        graph = self._kept.pop(digest, None) or _read(found, digest)
        self._kept[digest] = graph
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        graph.check(found, (block.serial, at))
        return graph


def _read(found: Array, digest: bytes) -> Graph:
    if blake2b(found.data, digest_size=len(digest)).digest() != digest:
        raise ArtifactError("the graph is not the one that the code names")
    return Graph(found.copy(), digest)
