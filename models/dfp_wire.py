"""The dictionaries inside a DFP file, between MxPack and `Dfp`.

Keys that are not known are passed over, for compilers add some; keys that a device would rely on must be
there and of their type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, final

import msgspec
import numpy as np

from .errors import ArtifactError
from .formats import PortFormat, Shape
from .mxpack import Value
from .port import Hpoc, Port, RangeConvert

__all__ = ["Document", "WirePort", "parse", "unparse"]

_MAX_ELEMENTS = 1 << 16  # of an array in a port's description: its channels, at most

_Byte: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=255)]
_Names: TypeAlias = Annotated[list[str], msgspec.Meta(max_length=256)]  # a network's index is a u8
_Extents: TypeAlias = Annotated[list[int], msgspec.Meta(min_length=4, max_length=4)]


@final
class _Packing(msgspec.Struct, frozen=True):
    as_int: PortFormat


@final
class _RangeConvert(msgspec.Struct, frozen=True):
    enabled: bool = False
    shift: float = 0.0
    scale: float = 1.0


@final
class _Hpoc(msgspec.Struct, frozen=True):
    enabled: bool = False
    shape: list[int] = []
    channels: list[int] = []


@final
class _SimMeta(msgspec.Struct, frozen=True):
    num_mpus: _Byte
    intgen: _Byte


@final
class _SimDfp(msgspec.Struct, frozen=True):
    enabled: bool = False
    data: Any = None


@final
class WirePort(msgspec.Struct, frozen=True):
    """A port's dictionary; only `port` and `active` are there where it is inactive."""

    port: _Byte
    active: bool
    port_set: _Byte = 0
    model_index: _Byte = 0
    mpu_id: _Byte = 0
    layer_name: str = ""
    packing_format: _Packing | None = None
    mxa_shape: _Extents | None = None
    range_convert: _RangeConvert = _RangeConvert()
    hpoc: _Hpoc = _Hpoc()
    raw_shape: dict[str, int] = {}
    raw_dtype: str = ""
    layout: str = ""

    def port_of(self) -> Port:
        """Make the port.

        Raises:
            ArtifactError: a key is missing, or the port is no valid one.
        """
        if not self.active:
            return Port(self.port, active=False)
        if self.packing_format is None or self.mxa_shape is None:
            raise ArtifactError(f"DFP: port {self.port} is active without packing_format and mxa_shape")
        return Port(
            number=self.port,
            port_set=self.port_set,
            model_index=self.model_index,
            mpu_id=self.mpu_id,
            layer_name=self.layer_name,
            format=self.packing_format.as_int,
            shape=_shape(self.mxa_shape),
            range_convert=_range_convert(self.range_convert),
            hpoc=_hpoc(self.hpoc),
            raw_shape=self._raw_shape(),
            raw_dtype=self.raw_dtype,
            layout=self.layout,
        )

    def _raw_shape(self) -> tuple[int, ...] | None:
        """The extents under the keys "0", "1", ... in that order; None where there are others."""
        keys = [str(axis) for axis in range(len(self.raw_shape))]
        return (
            tuple(self.raw_shape[key] for key in keys) if keys and set(keys) == set(self.raw_shape) else None
        )


@final
class Document(msgspec.Struct, frozen=True):
    """The outermost dictionary."""

    sim_meta: _SimMeta
    inport_info: list[WirePort]
    outport_info: list[WirePort]
    num_inports: int | None = None
    num_outports: int | None = None
    models: _Names = []
    compiler_version: Any = ""
    compile_timestamp: Any = ""
    sim_dfp: _SimDfp = _SimDfp()
    hw_dfp: Any = None


def parse(fields: Mapping[str, Value]) -> Document:
    """Check a decoded file's dictionary for what is needed.

    Raises:
        ArtifactError: names the key that is missing or of a wrong type.
    """
    ports = {key: _listed(fields[key]) for key in ("inport_info", "outport_info") if key in fields}
    try:
        return msgspec.convert({**fields, **ports}, Document)
    except msgspec.ValidationError as error:
        raise ArtifactError(f"DFP: {error}") from error


def unparse(port: Port, *, output: bool) -> dict[str, object]:
    """Make the dictionary of a port, with every key that the vendor's own files have."""
    if not port.active:
        return {"port": port.number, "active": False}
    fields: dict[str, object] = {
        "port": port.number,
        "active": True,
        "port_set": port.port_set,
        "mpu_id": port.mpu_id,
        "model_index": port.model_index,
        "layer_name": port.layer_name,
        "packing_format": {"name": port.format.name.lower(), "as_int": int(port.format)},
        "mxa_shape": list(port.shape),
    }
    fields |= _unparse_output(port) if output else _unparse_input(port)
    if port.raw_shape is not None:
        fields["raw_shape"] = {str(axis): extent for axis, extent in enumerate(port.raw_shape)}
    fields |= {key: value for key in ("raw_dtype", "layout") if (value := getattr(port, key))}
    return fields


def _unparse_input(port: Port) -> dict[str, object]:
    convert = port.range_convert or RangeConvert(0.0, 1.0)
    enabled = port.range_convert is not None
    return {"range_convert": {"enabled": enabled, "shift": convert.shift, "scale": convert.scale}}


def _unparse_output(port: Port) -> dict[str, object]:
    hpoc = port.hpoc or Hpoc(port.shape, ())
    enabled = port.hpoc is not None
    return {"hpoc": {"enabled": enabled, "shape": list(hpoc.shape), "channels": list(hpoc.channels)}}


def _range_convert(wire: _RangeConvert) -> RangeConvert | None:
    return RangeConvert(wire.shift, wire.scale) if wire.enabled else None


def _hpoc(wire: _Hpoc) -> Hpoc | None:
    return Hpoc(_shape(wire.shape), tuple(wire.channels)) if wire.enabled else None


def _shape(extents: list[int]) -> Shape:
    if len(extents) != 4:  # noqa: PLR2004 - h, w, z, c
        raise ArtifactError(f"DFP: {extents} is no [h, w, z, c]")
    return extents[0], extents[1], extents[2], extents[3]


def _listed(value: Value) -> Any:
    """The same value with lists for arrays, which are not told apart in a port."""
    match value:
        case dict():
            return {key: _listed(item) for key, item in value.items()}
        case list():
            return [_listed(item) for item in value]
        case np.ndarray() if value.size <= _MAX_ELEMENTS:
            return value.tolist()
        case np.ndarray():
            raise ArtifactError(f"DFP: a port has an array of {value.size} elements")
        case _:
            return value
