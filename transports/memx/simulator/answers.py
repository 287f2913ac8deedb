"""Where simulated chips take their outputs from; each answer is a pure function of the input frames."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

import numpy as np

from repertory.models.dfp import DfpNetwork, Port
from repertory.models.errors import ArtifactError
from repertory.models.onnx_model import OnnxExecutor
from repertory.models.spec import Array
from repertory.models.twin import TwinNetwork

__all__ = ["Answer", "hash_answer", "hash_answers", "twin_answers"]

Answer: TypeAlias = Callable[[Sequence[bytes]], dict[int, bytes]]
"""From the wire frames of a network's input ports, in their order, to those of its output flows."""

_FINITE: Final = bytes(byte & 0x3F for byte in range(256))
"""Clears the upper bits: whatever format reads the bytes, it finds finite numbers below 2."""


def hash_answer(network: str, inputs: Sequence[bytes], sizes: Sequence[int]) -> tuple[bytes, ...]:
    """Return made-up output frames of these sizes in bytes: the same for the same name and inputs.

    About 3 us for small frames; a large input costs its BLAKE2b, about a second a gigabyte.
    """
    digest = hashlib.blake2b(network.encode())
    for frame in inputs:
        digest.update(frame)
    seed = digest.digest().translate(_FINITE)
    return tuple((seed * (size // len(seed) + 1))[:size] for size in sizes)


def hash_answers(network: DfpNetwork) -> Answer:
    """Answer by `hash_answer`."""
    flows = [port.number for port in network.outputs]
    sizes = [port.nbytes for port in network.outputs]
    return lambda inputs: dict(zip(flows, hash_answer(network.name, inputs, sizes), strict=True))


def twin_answers(network: DfpNetwork) -> Answer:
    """Answer by computing the network's twin on the host, one frame at a time as chips do.

    Raises:
        ArtifactError: the twin is no graph that onnxruntime loads, or has not the ports that it claims.
        ConfigError: onnxruntime is not installed.
    """
    return _missing(network.name) if network.twin is None else _TwinAnswers(network, network.twin)


@final
class _TwinAnswers:
    def __init__(self, network: DfpNetwork, twin: TwinNetwork) -> None:
        self._network = network
        self._executor = OnnxExecutor(twin.onnx, name=network.name)
        self._lock = threading.Lock()
        graph = self._executor.network
        self._specs = graph.inputs
        self._inputs = _places([spec.name for spec in graph.inputs], twin.inputs)
        self._outputs = _places(twin.outputs, [spec.name for spec in graph.outputs])

    def __call__(self, inputs: Sequence[bytes]) -> dict[int, bytes]:
        tensors = [
            port.decode(np.frombuffer(frame, np.uint8))
            for port, frame in zip(self._network.inputs, inputs, strict=True)
        ]
        ordered = [
            tensors[place].astype(spec.dtype, copy=False)
            for spec, place in zip(self._specs, self._inputs, strict=True)
        ]
        with self._lock:
            results = self._executor.run(ordered)
        ports = zip(self._network.outputs, self._outputs, strict=True)
        return {port.number: _frame(port, results[place]) for port, place in ports}


def _missing(name: str) -> Answer:
    def answer(_inputs: Sequence[bytes]) -> dict[int, bytes]:
        raise LookupError(f"the file of network {name} has no twin to compute it")

    return answer


def _places(wanted: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return where each wanted name stands."""
    try:
        return [names.index(name) for name in wanted]
    except ValueError as error:
        raise ArtifactError(
            f"the twin's graph has the ports {list(wanted)}, {list(names)} are told"
        ) from error


def _frame(port: Port, tensor: Array) -> bytes:
    out = np.empty(port.nbytes, np.uint8)
    port.encode(tensor.astype(port.spec.dtype, copy=False), out)
    return out.tobytes()
