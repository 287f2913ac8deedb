"""The ports that a device would have for an ONNX graph: extents, formats and layouts of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

import numpy as np

from . import formats, layout
from .codec import FLOAT32, UINT8
from .errors import ArtifactError, ConfigError
from .formats import PortFormat
from .onnx_extents import Extents, output_extents
from .onnx_graph import Channels, OnnxGraph
from .onnx_model import read_specs
from .port import Port
from .program import Network
from .spec import TensorSpec

__all__ = ["Options", "Plan", "plan"]

_T = TypeVar("_T")

_MAX_RANK = 5
_SPATIAL_RANK = 3
_IMAGE_CHANNELS = (1, 3, 4)
_LAYOUTS = {
    Channels.FIRST: {1: "N", 2: "NC", 3: "NCW", 4: "NCHW", 5: "NCZHW"},
    Channels.LAST: {1: "N", 2: "NC", 3: "NWC", 4: "NHWC", 5: "NHWZC"},
}


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """One network, with ports that have no numbers yet.

    Attributes:
        name: of the network.
        onnx: the graph, as it came.
        inputs: in the graph's order.
        outputs: likewise.
    """

    name: str
    onnx: bytes
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@final
@dataclass(frozen=True, slots=True)
class Options:
    """What the user decides about tensors, by the keys `tensor` and, before it, `model:tensor`.

    Attributes:
        shapes: extents of inputs that the graph leaves open.
        layouts: axis letters.
        formats: of ports.
        port_format: of float32 tensors that `formats` does not name.
    """

    shapes: Mapping[str, Extents]
    layouts: Mapping[str, str]
    formats: Mapping[str, PortFormat]
    port_format: PortFormat

    def shape(self, model: str, tensor: str) -> Extents | None:
        """The extents given for an input, or None."""
        return _lookup(self.shapes, model, tensor)

    def layout(self, model: str, tensor: str) -> str | None:
        """The layout given for a tensor, or None."""
        return _lookup(self.layouts, model, tensor)

    def format(self, model: str, tensor: str, dtype: np.dtype[Any]) -> PortFormat:
        """The format given for a tensor, or that of all of its dtype."""
        usual = PortFormat.RGB888 if dtype == UINT8 else self.port_format
        found = _lookup(self.formats, model, tensor)
        return usual if found is None else found

    def check_names(self, plans: Sequence[Plan]) -> None:
        """Refuse keys that no tensor has, for they are slips of the pen.

        Raises:
            ConfigError: names the key.
        """
        inputs = {key for planned in plans for key in _keys(planned.name, planned.inputs)}
        tensors = inputs | {key for planned in plans for key in _keys(planned.name, planned.outputs)}
        checks: list[tuple[Mapping[str, object], set[str]]] = [
            (self.shapes, inputs),
            (self.layouts, tensors),
            (self.formats, tensors),
        ]
        for given, known in checks:
            for key in given:
                if key not in known:
                    raise ConfigError(f"no tensor is called {key!r}; there are {', '.join(sorted(known))}")


def plan(name: str, data: bytes, options: Options) -> Plan:
    """Lay out the ports of one graph.

    Raises:
        ArtifactError: the graph is malformed, or has what a port cannot be.
        ConfigError: an option contradicts it.
    """
    network = read_specs(data, name)
    if not network.inputs or not network.outputs:
        raise ArtifactError(f"{name}: it has no input, or no output")
    forms_in = [_input_format(spec, name, options) for spec in network.inputs]
    forms_out = [_output_format(spec, name, options) for spec in network.outputs]
    graph = OnnxGraph(data, name)
    shapes_in = [_input_shape(spec, name, options) for spec in network.inputs]
    shapes_out = _output_shapes(graph, network, shapes_in, data)
    hints_in = [_channels(graph.channels_of_input, *at) for at in zip(network.inputs, shapes_in, strict=True)]
    hints_out = [
        _channels(graph.channels_of_output, *at) for at in zip(network.outputs, shapes_out, strict=True)
    ]
    common = next(filter(None, hints_in), Channels.FIRST)

    def ports(specs: Sequence[TensorSpec], *columns: Sequence[Any]) -> tuple[Port, ...]:
        rows = zip(specs, *columns, strict=True)
        return tuple(
            _port(spec, form, shape, options.layout(name, spec.name) or _LAYOUTS[hint or common][len(shape)])
            for spec, form, shape, hint in rows
        )

    return Plan(
        name,
        data,
        ports(network.inputs, forms_in, shapes_in, hints_in),
        ports(network.outputs, forms_out, shapes_out, hints_out),
    )


def _port(spec: TensorSpec, form: PortFormat, shape: Extents, axes: str) -> Port:
    if not layout.valid(axes, len(shape)):
        raise ConfigError(f"{spec.name!r} of {shape} cannot have the layout {axes!r}")
    return Port(
        number=0,
        layer_name=spec.name,
        format=form,
        shape=layout.wire_shape(axes, shape),
        raw_shape=shape,
        raw_dtype=str(spec.dtype),
        layout=axes,
    )


def _lookup(given: Mapping[str, _T], model: str, tensor: str) -> _T | None:
    return given.get(f"{model}:{tensor}", given.get(tensor))


def _keys(model: str, ports: Sequence[Port]) -> set[str]:
    return {key for port in ports for key in (port.layer_name, f"{model}:{port.layer_name}")}


def _input_format(spec: TensorSpec, name: str, options: Options) -> PortFormat:
    if spec.dtype not in (FLOAT32, UINT8):
        raise ArtifactError(f"{name}: input {spec.name!r} is {spec.dtype}; ports take float32 and uint8")
    form = options.format(name, spec.name, spec.dtype)
    if not formats.convertible(form):
        raise ConfigError(f"{name}: no port can be {form.name}, as {spec.name!r} is told to be")
    if spec.dtype == UINT8 and formats.native_dtype(form) != UINT8:
        raise ConfigError(f"{name}: input {spec.name!r} is uint8, which {form.name} is not for")
    return form


def _output_format(spec: TensorSpec, name: str, options: Options) -> PortFormat:
    if spec.dtype != FLOAT32:
        raise ArtifactError(f"{name}: output {spec.name!r} is {spec.dtype}; ports give float32 only")
    form = options.format(name, spec.name, spec.dtype)
    if formats.input_only(form):
        raise ConfigError(f"{name}: output {spec.name!r} cannot be {form.name}, a format of inputs alone")
    return form


def _input_shape(spec: TensorSpec, name: str, options: Options) -> Extents:
    """The extents of one frame, the batch's 1 first."""
    _check_rank(spec.name, len(spec.shape), name)
    batch = spec.shape[0]
    if isinstance(batch, int) and batch != 1:
        raise ArtifactError(
            f"{name}: input {spec.name!r} has a fixed batch of {batch}: "
            "export the model with a batch of 1, or a symbolic one"
        )
    given = options.shape(name, spec.name)
    shape = (1, *spec.shape[1:]) if given is None else given
    fixed = tuple(dim for dim in shape if isinstance(dim, int))
    if len(fixed) < len(shape):
        example = ",".join(str(dim) if isinstance(dim, int) else f"<{dim}>" for dim in shape)
        raise ArtifactError(
            f"{name}: input {spec.name!r} is {spec}, a port has fixed extents: --shape {spec.name}={example}"
        )
    if given is not None and not _admits(spec, given):
        raise ConfigError(f"{name}: input {spec.name!r} is {spec} with a batch of 1, which {given} is not")
    return fixed


def _admits(spec: TensorSpec, given: Extents) -> bool:
    return (
        len(given) == len(spec.shape)
        and given[0] == 1
        and min(given) > 0
        and all(isinstance(want, str) or have == want for have, want in zip(given, spec.shape, strict=True))
    )


def _output_shapes(
    graph: OnnxGraph, network: Network, inputs: Sequence[Extents], data: bytes
) -> list[Extents]:
    """The extents of one frame's outputs."""
    known = output_extents(graph, network, inputs, data)
    for spec, shape in zip(network.outputs, known, strict=True):
        _check_rank(spec.name, len(shape), network.name)
        if shape[0] != 1 or min(shape) < 1:
            raise ArtifactError(
                f"{network.name}: output {spec.name!r} has the extents {shape} for one frame; "
                "the first must be the batch's 1, and none 0"
            )
    return known


def _check_rank(tensor: str, rank: int, name: str) -> None:
    if not 1 <= rank <= _MAX_RANK:
        raise ArtifactError(
            f"{name}: {tensor!r} has {rank} axes; a port has 1 to {_MAX_RANK}, the batch first"
        )


def _channels(
    structure: Callable[[str, int], Channels | None], spec: TensorSpec, shape: Extents
) -> Channels | None:
    """Where channels stand, by what is around the tensor, else by the extent that is an image's."""
    if len(shape) < _SPATIAL_RANK:
        return None
    if (found := structure(spec.name, len(shape))) is not None:
        return found
    match shape[1] in _IMAGE_CHANNELS, shape[-1] in _IMAGE_CHANNELS:
        case True, False:
            return Channels.FIRST
        case False, True:
            return Channels.LAST
        case _:
            return None
