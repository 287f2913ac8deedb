"""What the structure of an ONNX graph tells: the extents of its outputs, and where channels stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Any, final

from .errors import ArtifactError
from .extras import load_onnx

__all__ = ["Channels", "OnnxGraph"]

_AMBIGUOUS = 3

# fmt: off
# Operators whose first input and whose output have their channels in front of the spatial axes.
_SPATIAL = frozenset((
    "AveragePool", "BatchNormalization", "Conv", "ConvInteger", "ConvTranspose", "DepthToSpace",
    "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "GroupNormalization", "InstanceNormalization",
    "LRN", "LpPool", "MaxPool", "QLinearConv", "SpaceToDepth",
))
# Operators that leave the order of axes alone.
_ELEMENTWISE = frozenset((
    "Abs", "Add", "Cast", "Ceil", "Clip", "DequantizeLinear", "Div", "Dropout", "Elu", "Exp", "Floor",
    "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "LogSoftmax", "Max", "Min", "Mish",
    "Mul", "Neg", "PRelu", "Pow", "QuantizeLinear", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid",
    "Softmax", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh", "ThresholdedRelu",
))
# fmt: on


@final
class Channels(Enum):
    """Where a tensor's channels stand."""

    FIRST = auto()
    """Behind the batch, in front of the spatial axes: NCHW."""
    LAST = auto()
    """Behind all others: NHWC."""


@final
class OnnxGraph:
    """One parsed model.

    Args:
        data: a whole ONNX file.
        name: for messages.

    Raises:
        ArtifactError: it cannot be parsed.
        ConfigError: onnx is not installed.
    """

    def __init__(self, data: bytes, name: str) -> None:
        try:
            self._model = load_onnx().load_model_from_string(data)
        except Exception as error:
            raise ArtifactError(f"{name}: no ONNX model: {error}") from error
        graph = self._model.graph
        self._constants = {tensor.name for tensor in graph.initializer}
        self._producers = {output: node for node in graph.node for output in node.output}
        self._consumers: dict[str, list[Any]] = {}
        for node in graph.node:
            for tensor in node.input:
                self._consumers.setdefault(tensor, []).append(node)

    def output_shapes(self, inputs: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...] | None]:
        """Infer the outputs' extents from those of the inputs; None where onnx cannot tell."""
        onnx = load_onnx()
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        del model.graph.value_info[:]
        for value in model.graph.input:
            if value.name in inputs:
                for dim, extent in zip(value.type.tensor_type.shape.dim, inputs[value.name], strict=True):
                    dim.dim_value = extent
        try:
            model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        except Exception:  # noqa: BLE001 - whatever it is, the model itself may still run and tell
            return dict.fromkeys(value.name for value in model.graph.output)
        return {value.name: _extents(value.type.tensor_type) for value in model.graph.output}

    def channels_of_input(self, name: str, rank: int) -> Channels | None:
        """Tell by what reads a graph input, elementwise operators looked through."""
        return self._search(name, rank, lambda tensor: self._consumers.get(tensor, ()), _read_by)

    def channels_of_output(self, name: str, rank: int) -> Channels | None:
        """Tell by what makes a graph output, elementwise operators looked through."""
        return self._search(name, rank, self._maker, _made_by)

    def _search(
        self,
        name: str,
        rank: int,
        neighbours: Callable[[str], Iterable[Any]],
        tell: Callable[[Any, str, int], Channels | None],
    ) -> Channels | None:
        seen, pending = {name}, [name]
        while pending:
            tensor = pending.pop(0)
            for node in neighbours(tensor):
                if (found := tell(node, tensor, rank)) is not None:
                    return found
                if node.op_type in _ELEMENTWISE:
                    beyond = node.output if tensor in node.input else node.input
                    fresh = [other for other in beyond if other not in seen and other not in self._constants]
                    seen.update(fresh)
                    pending += fresh
        return None

    def _maker(self, tensor: str) -> Iterable[Any]:
        return (self._producers[tensor],) if tensor in self._producers else ()


def _read_by(node: Any, tensor: str, rank: int) -> Channels | None:
    if node.op_type in _SPATIAL and node.input[0] == tensor:
        return Channels.FIRST
    return {_to_first(rank): Channels.LAST, _to_last(rank): Channels.FIRST}.get(_permutation(node))


def _made_by(node: Any, _tensor: str, rank: int) -> Channels | None:
    if node.op_type in _SPATIAL:
        return Channels.FIRST
    return {_to_first(rank): Channels.FIRST, _to_last(rank): Channels.LAST}.get(_permutation(node))


def _to_first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def _to_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _permutation(node: Any) -> tuple[int, ...]:
    """The axes of a Transpose, or nothing; with three of them both ways are the same and tell nothing."""
    if node.op_type != "Transpose":
        return ()
    axes = next((tuple(attribute.ints) for attribute in node.attribute if attribute.name == "perm"), ())
    return axes if len(axes) > _AMBIGUOUS else ()


def _extents(tensor: Any) -> tuple[int, ...] | None:
    if not tensor.HasField("shape"):
        return None
    dims = tensor.shape.dim
    return tuple(dim.dim_value for dim in dims) if all(dim.HasField("dim_value") for dim in dims) else None
