"""Sidecars: the JSON that tells names, shapes and dtypes of a compiled module, which itself tells none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import msgspec
import numpy as np

from .errors import ArtifactError
from .program import Network
from .spec import TensorSpec

__all__ = [
    "DTYPES",
    "MAX_INPUTS",
    "MAX_OUTPUTS",
    "MAX_RANK",
    "check_network",
    "fill_in",
    "read_sidecar",
    "write_sidecar",
]

MAX_INPUTS: Final = 128
"""Inputs of a network."""
MAX_OUTPUTS: Final = 64
"""Outputs of a network."""
MAX_RANK: Final = 6
"""Axes of a tensor; none at all are right too."""

# fmt: off
DTYPES: Final = (
    "float16", "float32", "float64",
    "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64",
)
"""What the wire can say of a tensor's elements."""
# fmt: on

_MAX_BYTES = 512 << 20  # the whole memory that host and DSP share
_MAX_NAME = 128


@final
class _Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    shape: list[int]
    dtype: str


@final
class _Sidecar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    inputs: list[_Tensor]
    outputs: list[_Tensor]


def read_sidecar(data: bytes) -> Network:
    """Read a sidecar.

    Raises:
        ArtifactError: it is malformed, or describes what the wire cannot carry; names the tensor.
    """
    try:
        told = msgspec.json.decode(data, type=_Sidecar)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ArtifactError(f"the sidecar cannot be read: {error}") from error
    network = Network(told.name, _specs(told.inputs), _specs(told.outputs))
    check_network(network)
    return network


def write_sidecar(network: Network) -> bytes:
    """Write a sidecar that `read_sidecar` reads back as `network`, without layouts.

    Raises:
        ArtifactError: the network has what the wire cannot carry; names the tensor.
    """
    check_network(network)
    return _encoded(_Sidecar(network.name, _tensors(network.inputs), _tensors(network.outputs)))


def fill_in(name: str, inputs: int = 1, outputs: int = 1) -> bytes:
    """Write a sidecar for somebody to fill in: until then its extents of 0 are refused."""
    sides = (("input", inputs, MAX_INPUTS), ("output", outputs, MAX_OUTPUTS))
    tensors = (
        [_Tensor(f"{what}_{number}", [1, 0], "float32") for number in range(min(count, most))]
        for what, count, most in sides
    )
    return _encoded(_Sidecar(name, *tensors))


def check_network(network: Network) -> None:
    """Refuse what the wire to a DSP cannot carry.

    Raises:
        ArtifactError: names the tensor and why.
    """
    if not network.name or len(network.name) > _MAX_NAME or not network.name.isprintable():
        raise ArtifactError(
            f"{network.name[:_MAX_NAME]!r} is no name: up to {_MAX_NAME} printable characters are"
        )
    sides = (("inputs", network.inputs, MAX_INPUTS), ("outputs", network.outputs, MAX_OUTPUTS))
    for what, specs, most in sides:
        if not 1 <= len(specs) <= most:
            raise ArtifactError(f"{network.name}: it has {len(specs)} {what}; 1 to {most} are possible")
        names = [spec.name for spec in specs]
        for spec in specs:
            _check(spec, network.name)
            if names.count(spec.name) > 1:
                raise ArtifactError(f"{network.name}: two of its {what} are called {spec.name!r}")


def _check(spec: TensorSpec, network: str) -> None:
    if not spec.name:
        raise ArtifactError(f"{network}: a tensor has no name")
    if spec.dtype.name not in DTYPES:
        raise ArtifactError(f"{network}: {spec.name!r} is {_reason(spec.dtype.name)}")
    if len(spec.shape) > MAX_RANK:
        raise ArtifactError(f"{network}: {spec.name!r} has {len(spec.shape)} axes, the wire has {MAX_RANK}")
    for extent in spec.shape:
        if isinstance(extent, str) or extent < 1:
            raise ArtifactError(f"{network}: {spec.name!r} is {spec}: its extents are to be fixed, 1 or more")
    if spec.nbytes > _MAX_BYTES:
        raise ArtifactError(
            f"{network}: {spec.name!r} is {spec}, {spec.nbytes} bytes; the DSP shares {_MAX_BYTES}"
        )


def _specs(tensors: Sequence[_Tensor]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(tensor.name, tuple(tensor.shape), _dtype(tensor)) for tensor in tensors)


def _dtype(tensor: _Tensor) -> np.dtype[np.generic]:
    if tensor.dtype not in DTYPES:
        raise ArtifactError(f"the sidecar: {tensor.name!r} is {_reason(tensor.dtype)}")
    return np.dtype(tensor.dtype)


def _reason(dtype: str) -> str:
    if dtype == "bool":
        return "bool, which the wire to the DSP has no code for; give uint8 and convert in the graph"
    return f"{dtype!r}; the wire to the DSP has {', '.join(DTYPES)}"


def _tensors(specs: Sequence[TensorSpec]) -> list[_Tensor]:
    return [_Tensor(spec.name, [int(dim) for dim in spec.shape], spec.dtype.name) for spec in specs]


def _encoded(sidecar: _Sidecar) -> bytes:
    return msgspec.json.format(msgspec.json.encode(sidecar), indent=2)
