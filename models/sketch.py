"""Sketches: models described by their ports alone, for devices that compute nothing of their own.

The null, in-memory and generic simulated devices load them. A sketch is JSON::

    {"sketch": 1, "name": "detect", "service_ms": 5.0, "footprint": 900000,
     "inputs": [{"name": "image", "shape": ["N", 32, 32, 3], "dtype": "uint8"}],
     "outputs": [{"name": "boxes", "shape": [10, 4], "dtype": "float32"}]}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias, final

import msgspec
import numpy as np

from .errors import ArtifactError
from .mxpack import Buffer
from .program import Network
from .spec import Quantisation, TensorSpec

__all__ = ["MAX_SKETCH", "MAX_TENSOR", "read_sketch", "sketch", "sketched_footprint"]

MAX_SKETCH = 1 << 20
"""Bytes of a sketch."""
MAX_TENSOR = 256 << 20
"""Bytes of one tensor of a sketch, an open extent counted as 1."""

_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_Extent: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Dtype: TypeAlias = Literal[
    "bool",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


@final
class _Quantisation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    scale: Annotated[float, msgspec.Meta(gt=0)]
    zero_point: int = 0


@final
class _Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    name: _Name
    shape: Annotated[list[_Extent | _Name], msgspec.Meta(max_length=16)]
    dtype: _Dtype
    layout: Annotated[str, msgspec.Meta(max_length=16)] = ""
    quantisation: _Quantisation | None = None

    def spec(self) -> TensorSpec:
        affine = self.quantisation
        return TensorSpec(
            self.name,
            tuple(self.shape),
            np.dtype(self.dtype),
            self.layout,
            None if affine is None else Quantisation(affine.scale, affine.zero_point),
        )


@final
class _Sketch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    sketch: Literal[1]
    name: _Name
    inputs: Annotated[list[_Tensor], msgspec.Meta(min_length=1, max_length=256)]
    outputs: Annotated[list[_Tensor], msgspec.Meta(min_length=1, max_length=256)]
    service_ms: Annotated[float, msgspec.Meta(ge=0)] | None = None
    footprint: _Extent | None = None


def sketch(
    name: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    service: float | None = None,
    footprint: int | None = None,
) -> bytes:
    """Write a sketch.

    Args:
        name: of the network.
        inputs: at least one; extents may be open.
        outputs: at least one; extents are fixed.
        service: seconds that one frame takes on a device, or None to leave it to the device.
        footprint: bytes that it takes on a device, or None for as many as its tensors have.

    Raises:
        ArtifactError: `read_sketch` would refuse it.
    """
    if not math.isfinite(service or 0.0):
        raise ArtifactError(f"sketch: a frame cannot take {service} seconds")
    fields = {
        "sketch": 1,
        "name": name,
        "inputs": [_fields(spec) for spec in inputs],
        "outputs": [_fields(spec) for spec in outputs],
        "service_ms": None if service is None else service * 1e3,
        "footprint": footprint,
    }
    try:
        data = msgspec.json.encode(msgspec.convert(fields, _Sketch))
    except msgspec.ValidationError as error:
        raise ArtifactError(f"sketch: {error}") from error
    read_sketch(data)
    return data


def read_sketch(data: Buffer) -> tuple[Network, float | None]:
    """Read a sketch: the network, and the seconds that one frame takes if it tells.

    Raises:
        ArtifactError: it is none, or describes what no device could serve.
    """
    read = _decoded(data)
    network = Network(read.name, _specs(read.inputs), _specs(read.outputs))
    _check(network)
    return network, None if read.service_ms is None else read.service_ms / 1e3


def sketched_footprint(data: Buffer) -> int:
    """Return the bytes that a sketched model takes on a device: as it tells, or those of its tensors.

    Raises:
        ArtifactError: it is no sketch.
    """
    read = _decoded(data)
    if read.footprint is not None:
        return read.footprint
    return sum(spec.nbytes for spec in _specs(read.inputs) + _specs(read.outputs))


def _decoded(data: Buffer) -> _Sketch:
    if len(data) > MAX_SKETCH:
        raise ArtifactError(f"sketch: {len(data)} bytes, at most {MAX_SKETCH} are read")
    try:
        return msgspec.json.decode(data, type=_Sketch)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ArtifactError(f"sketch: {error}") from error


def _fields(spec: TensorSpec) -> dict[str, object]:
    affine = spec.quantisation
    return {
        "name": spec.name,
        "shape": list(spec.shape),
        "dtype": str(spec.dtype),
        "layout": spec.layout,
        "quantisation": affine and {"scale": affine.scale, "zero_point": affine.zero_point},
    }


def _specs(tensors: Sequence[_Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(tensor.spec() for tensor in tensors)


def _check(network: Network) -> None:
    for side in (network.inputs, network.outputs):
        if len({spec.name for spec in side}) < len(side):
            raise ArtifactError(f"sketch: {[spec.name for spec in side]} names a tensor twice")
        for spec in side:
            if spec.nbytes > MAX_TENSOR:
                raise ArtifactError(
                    f"sketch: {spec.name!r} has {spec.nbytes} bytes, at most {MAX_TENSOR} are read"
                )
    for spec in network.outputs:
        if not spec.fixed:
            raise ArtifactError(f"sketch: output {spec.name!r} is {spec}, its extents must be fixed")
