"""The extents that a graph's outputs have, once those of its inputs are fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from .errors import ArtifactError, ConfigError, DeviceError
from .onnx_graph import OnnxGraph
from .onnx_model import OnnxExecutor, read_specs
from .program import Network
from .spec import TensorSpec

__all__ = ["Extents", "fixed_network", "output_extents"]

Extents: TypeAlias = tuple[int, ...]
"""A shape without open extents."""

_RUN_BYTES: Final = 512 << 20


def output_extents(
    graph: OnnxGraph, network: Network, inputs: Sequence[Extents], data: bytes
) -> list[Extents]:
    """Return the outputs' extents: inferred, or seen in a run on zeros where inference cannot tell.

    Raises:
        ArtifactError: it does not run.
    """
    inferred = graph.output_shapes(dict(zip((spec.name for spec in network.inputs), inputs, strict=True)))
    shapes = [inferred[spec.name] for spec in network.outputs]
    if None in shapes:
        seen = _run_once(network, inputs, data)
        shapes = [made if shape is None else shape for shape, made in zip(shapes, seen, strict=True)]
    return [shape for shape in shapes if shape is not None]


def fixed_network(name: str, data: bytes, shapes: Mapping[str, Extents]) -> Network:
    """Read what a graph takes and gives, with every extent fixed.

    Args:
        name: of the network.
        data: a whole ONNX file.
        shapes: of inputs, by name. A batch, the first axis, that is open and not given is 1.

    Raises:
        ArtifactError: the graph is malformed, or an extent stays open; says which.
        ConfigError: a shape contradicts the graph or is of no input of it; or onnx is not installed.
    """
    network = read_specs(data, name)
    for key in shapes:
        if key not in (known := [spec.name for spec in network.inputs]):
            raise ConfigError(f"no input is called {key!r}; there are {', '.join(known)}")
    inputs = [_fixed(spec, shapes.get(spec.name), name) for spec in network.inputs]
    if sum(spec.nbytes for spec in inputs) > _RUN_BYTES:
        raise ArtifactError(f"{name}: its inputs have more than {_RUN_BYTES} bytes")
    outputs = output_extents(OnnxGraph(data, name), network, [_extents(spec) for spec in inputs], data)
    return Network(
        name,
        tuple(inputs),
        tuple(
            TensorSpec(spec.name, shape, spec.dtype)
            for spec, shape in zip(network.outputs, outputs, strict=True)
        ),
    )


def _fixed(spec: TensorSpec, given: Extents | None, name: str) -> TensorSpec:
    if given is not None:
        agrees = len(given) == len(spec.shape) and all(
            isinstance(want, str) or want == have for want, have in zip(spec.shape, given, strict=True)
        )
        if not agrees or min(given, default=1) < 1:
            raise ConfigError(f"{name}: input {spec.name!r} is {spec}, which {given} is not")
        return TensorSpec(spec.name, given, spec.dtype)
    shape = tuple(1 if at == 0 and isinstance(dim, str) else dim for at, dim in enumerate(spec.shape))
    if any(isinstance(dim, str) for dim in shape):
        example = ",".join(str(dim) if isinstance(dim, int) else f"<{dim}>" for dim in shape)
        raise ArtifactError(
            f"{name}: input {spec.name!r} is {spec}, its extents must be fixed: --shape {spec.name}={example}"
        )
    return TensorSpec(spec.name, shape, spec.dtype)


def _extents(spec: TensorSpec) -> Extents:
    return tuple(dim for dim in spec.shape if isinstance(dim, int))


def _run_once(network: Network, inputs: Sequence[Extents], data: bytes) -> list[Extents]:
    zeros = [np.zeros(shape, spec.dtype) for spec, shape in zip(network.inputs, inputs, strict=True)]
    try:
        return [array.shape for array in OnnxExecutor(data, name=network.name).run(zeros)]
    except DeviceError as error:
        raise ArtifactError(f"{network.name}: it does not run on a frame of zeros: {error}") from error
