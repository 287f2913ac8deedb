"""ONNX models through onnxruntime on the host's processor: their specs, and one executor a session."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from .errors import ArtifactError, DeviceError, RepertoryError
from .extras import load_onnx, load_onnxruntime
from .program import Network
from .spec import Array, Dim, TensorSpec

__all__ = ["UNRANKED", "OnnxExecutor", "Stopped", "read_specs"]

UNRANKED = ("...",)
"""The shape of an output whose number of axes is known only when it is there."""

_NAMES = {"float": "float32", "double": "float64"}
_SAME = ("float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_DTYPES: dict[str, np.dtype[Any]] = {
    f"tensor({theirs})": np.dtype(ours)
    for theirs, ours in (_NAMES | dict(zip(_SAME, _SAME, strict=True))).items()
}
_SILENT = 4
_BOUND_BYTES = 256 << 10
"""An output is computed in place from here on: a binding costs 50 to 100 us more than a small copy."""


@final
class Stopped(RepertoryError):
    """Nobody is at fault: `OnnxExecutor.terminate` stopped the run, which gave no outputs."""


def read_specs(data: bytes, name: str) -> Network:
    """Read what a model takes and gives.

    Args:
        data: a whole ONNX file.
        name: of the network, and in messages.

    Returns:
        Extents that the file leaves open are strings: its own name for them, or `?`. An output whose number
        of axes is open has the shape `UNRANKED`.

    Raises:
        ArtifactError: it is no ONNX model that onnxruntime loads, or it has a port that is no tensor of
            numbers, or an input without a number of axes.
        ConfigError: onnxruntime is not installed.
    """
    return _network(_session(data, name, threads=1, optimise=False), data, name)


@final
class OnnxExecutor:
    """One model in a session of its own. One thread runs it; any thread may stop it.

    Args:
        data: a whole ONNX file.
        name: of the network, and in messages.
        threads: that share one run; 1 means the calling thread alone.

    Attributes:
        network: what it takes and gives, as from `read_specs`.

    Raises:
        ArtifactError: as `read_specs`.
        ConfigError: onnxruntime is not installed.
    """

    def __init__(self, data: bytes, *, name: str = "<bytes>", threads: int = 1) -> None:
        self._session = _session(data, name, threads=threads, optimise=True)
        self.network = _network(self._session, data, name)
        self._unmade = [None] * len(self.network.outputs)
        self._lock = threading.Lock()
        self._running: Any = None

    def run(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None] | None = None
    ) -> tuple[Array, ...]:
        """Compute one answer, without the interpreter's lock.

        Args:
            inputs: one array for each of the network's inputs, in order and in any memory order.
            outputs: one array for each output, or None for those that are to be made. A given array must have
                the very shape and dtype of the result.

        Returns:
            The given arrays, filled, and new ones that belong to the caller.

        Raises:
            Stopped: `terminate` was called meanwhile.
            DeviceError: onnxruntime refused or failed.
        """
        options = load_onnxruntime().RunOptions()
        options.log_severity_level = _SILENT
        with self._lock:
            self._running = options
        try:
            return self._run(inputs, self._unmade if outputs is None else outputs, options)
        except Exception as error:
            if options.terminate:
                raise Stopped(f"{self.network.name}: stopped") from error
            raise DeviceError(f"{self.network.name}: {error}", family="cpu", call="run") from error
        finally:
            with self._lock:
                self._running = None

    def terminate(self) -> bool:
        """Ask the run that is going on to stop before its next node; False if there is none.

        A node that has begun ends first. A run that is past its last node still succeeds.
        """
        with self._lock:
            if self._running is not None:
                self._running.terminate = True
            return self._running is not None

    def _run(
        self, inputs: Sequence[Array], outputs: Sequence[Array | None], options: Any
    ) -> tuple[Array, ...]:
        # onnxruntime reads this very memory and does not look at its alignment: the name keeps it alive until
        # the run has ended
        feed = {
            spec.name: np.require(array, requirements=("C", "A"))
            for spec, array in zip(self.network.inputs, inputs, strict=True)
        }
        if any(map(_worth_binding, outputs)):
            values = self._run_bound(feed, outputs, options)
        else:
            values = self._session.run(None, feed, options)
        return tuple(_deliver(value, output) for value, output in zip(values, outputs, strict=True))

    def _run_bound(
        self, feed: Mapping[str, Array], outputs: Sequence[Array | None], options: Any
    ) -> list[Array]:
        """Run with the outputs that are worth it written in place, and new arrays for the others."""
        binding = self._session.io_binding()
        for name, array in feed.items():
            binding.bind_cpu_input(name, array)
        targets = [output if _worth_binding(output) else None for output in outputs]
        for spec, target in zip(self.network.outputs, targets, strict=True):
            _bind_output(binding, spec.name, target)
        self._session.run_with_iobinding(binding, options)
        values = zip(binding.get_outputs(), targets, strict=True)
        return [value.numpy() if target is None else target for value, target in values]


def _worth_binding(output: Array | None) -> bool:
    return output is not None and output.nbytes >= _BOUND_BYTES and output.flags.carray


def _bind_output(binding: Any, name: str, target: Array | None) -> None:
    if target is None:
        binding.bind_output(name, "cpu")
    else:
        binding.bind_output(name, "cpu", 0, target.dtype, target.shape, target.ctypes.data)


def _deliver(value: Array, output: Array | None) -> Array:
    if output is None or value is output:
        return value
    if value.shape != output.shape:
        raise ValueError(f"an output of shape {value.shape} does not go into {output.shape}")
    np.copyto(output, value, casting="no")
    return output


def _session(data: bytes, name: str, *, threads: int, optimise: bool) -> Any:
    runtime = load_onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = _SILENT
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # an idle or waiting session must not burn a core
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not optimise:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ArtifactError(f"{name}: onnxruntime does not load it: {error}") from error


def _network(session: Any, data: bytes, name: str) -> Network:
    nodes = (session.get_inputs(), session.get_outputs())
    unranked: frozenset[str] = frozenset()
    if not all(node.shape for side in nodes for node in side):
        unranked = _unranked(data)
    inputs, outputs = (tuple(_spec(node, name, unranked) for node in side) for side in nodes)
    for spec in inputs:
        if spec.shape == UNRANKED:
            raise ArtifactError(f"{name}: input {spec.name!r} has no shape")
    return Network(name, inputs, outputs)


def _spec(node: Any, name: str, unranked: frozenset[str]) -> TensorSpec:
    dtype = _DTYPES.get(node.type)
    if dtype is None:
        raise ArtifactError(f"{name}: {node.name!r} is a {node.type}, only tensors of numbers can be served")
    shape = UNRANKED if node.name in unranked else tuple(_dim(dim) for dim in node.shape)
    return TensorSpec(node.name, shape, dtype)


def _dim(dim: object) -> Dim:
    if isinstance(dim, int) and dim >= 0:
        return dim
    return dim if isinstance(dim, str) and dim else "?"


def _unranked(data: bytes) -> frozenset[str]:
    """Tensors without a shape, which onnxruntime shows just as those with a shape of no axes."""
    graph = load_onnx().load_model_from_string(data).graph
    return frozenset(
        value.name for value in (*graph.input, *graph.output) if not value.type.tensor_type.HasField("shape")
    )
