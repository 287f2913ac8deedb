"""Twins: the ONNX graphs that a simulated device computes in place of a compiled model.

A twin lies in the part of a DFP that is meant for simulators (`sim_dfp.data`). It begins with a mark of our
own, so that what a vendor's compiler left there is never taken for one.
"""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias, final

import msgspec

from .errors import ArtifactError
from .mxpack import Buffer, Value

__all__ = ["MAX_NETWORKS", "VERSION", "Twin", "TwinNetwork", "decode", "encode", "marked"]

VERSION = 1
"""What this package writes, and the only version it reads."""
MAX_NETWORKS = 255
"""Networks of one file; a network's index is a u8 there."""

_MARK = b"repertory-twin\0"
_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


@final
class TwinNetwork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands for one network of the file.

    Attributes:
        name: the network's, as in the file's `models`.
        onnx: a whole ONNX model.
        inputs: names of the graph's inputs, in the order of the network's ports.
        outputs: likewise.
        latency: seconds from the last input to the last output on the device, or None if nobody told.
        interval: seconds between the starts of two frames, or None likewise; 1 / frame rate.
    """

    name: str
    onnx: bytes
    inputs: list[str]
    outputs: list[str]
    latency: _Seconds | None = None
    interval: _Seconds | None = None


@final
class Twin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The twins of a file's networks, in any order; a network may lack one."""

    version: int
    networks: Annotated[list[TwinNetwork], msgspec.Meta(max_length=MAX_NETWORKS)]


def marked(data: Value | bytes | bytearray) -> bool:
    """Whether this value of a file's `sim_dfp.data` claims to be a twin of ours."""
    return isinstance(data, Buffer) and bytes(memoryview(data)[: len(_MARK)]) == _MARK


def encode(twin: Twin) -> bytes:
    """Write a twin as `decode` reads it."""
    return _MARK + msgspec.msgpack.encode(twin)


def decode(data: Buffer) -> Twin:
    """Read a twin; the graphs in it are copied and not looked into.

    Raises:
        ArtifactError: it is none, is of another version, or contradicts itself.
    """
    if not marked(data):
        raise ArtifactError("no twin: its mark is missing")
    try:
        twin = msgspec.msgpack.decode(memoryview(data)[len(_MARK) :], type=Twin)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ArtifactError(f"the twin cannot be read: {error}") from error
    _check(twin)
    return twin


def _check(twin: Twin) -> None:
    if twin.version != VERSION:
        raise ArtifactError(f"the twin has version {twin.version}, {VERSION} is known")
    if len({network.name for network in twin.networks}) < len(twin.networks):
        raise ArtifactError("the twin names a network twice")
    for network in twin.networks:
        if not all(math.isfinite(time or 0.0) for time in (network.latency, network.interval)):
            raise ArtifactError(f"the twin of {network.name!r} has a time that is not finite")
