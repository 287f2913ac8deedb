"""The number formats of MX3 ports: how many bytes a frame has, and the way between arrays and bytes.

The host converts: the vendor's library only moves bytes. A frame is ordered (height, width, z, channels),
the channel last; an image has z = 1. All that is known of a format is its codec in the table at the end.
"""

from __future__ import annotations

import math
import sys
from enum import IntEnum
from typing import Any, final

import numpy as np

from .bf16 import Bf16
from .codec import FLOAT32, UINT8, Bytes, Channels, Codec, Shape
from .errors import ArtifactError, ContractError
from .gbf80 import Gbf80
from .plain import Plain
from .spec import Array

__all__ = [
    "Bytes",
    "Channels",
    "PortFormat",
    "Shape",
    "convertible",
    "decode",
    "encode",
    "frame_bytes",
    "input_only",
    "native_dtype",
    "verbatim",
]


@final
class PortFormat(IntEnum):
    """How the numbers of a port lie in memory; the values are the device's own."""

    GBF80 = 0
    RGB565 = 1
    RGB888 = 2
    YUV422 = 3
    BF16 = 4
    FLOAT32 = 5
    GBF80_ROW = 6


def frame_bytes(shape: Shape, form: PortFormat) -> int:
    """Bytes of one frame of `shape` (h, w, z, c), padding included."""
    codec = _CODECS[form]
    return 2 * math.prod(shape[:3]) if codec is None else codec.frame_bytes(shape)


def input_only(form: PortFormat) -> bool:
    """Whether the device takes this format in and never gives it out."""
    return form in _INPUT_ONLY


def convertible(form: PortFormat) -> bool:
    """Whether there is a dtype for this format, and `encode` and `decode` know it."""
    return _CODECS[form] is not None


def verbatim(form: PortFormat) -> bool:
    """Whether a contiguous array is its own frame, but for padding."""
    return isinstance(_CODECS[form], Plain) and sys.byteorder == "little"


def native_dtype(form: PortFormat) -> np.dtype[Any]:
    """What arrays of this format hold: float32, or uint8 for RGB888.

    Raises:
        ArtifactError: RGB565 and YUV422, which no array of channels stands for.
    """
    return _codec(form).native


def encode(array: Array, form: PortFormat, out: Bytes) -> None:
    """Write a frame, padding included, into a buffer of exactly `frame_bytes`.

    Args:
        array: (h, w, z, c) of `native_dtype(form)`, in any memory order; it is only read.
        form: the port's format.
        out: where to write.

    Raises:
        ArtifactError: RGB565 and YUV422.
        ContractError: an array or a buffer came that the port does not have.
    """
    codec = _codec(form)
    match array.shape:
        case (h, w, z, c) if array.dtype == codec.native:
            _check(out, (h, w, z, c), form)
            codec.encode(array, out)
        case shape:
            raise ContractError(f"{array.dtype}{list(shape)} came to a {form.name} port")


def decode(buffer: Bytes, shape: Shape, form: PortFormat, out: Array, channels: Channels) -> None:
    """Read a frame of exactly `frame_bytes`.

    Args:
        buffer: the frame; it is only read.
        shape: (h, w, z, c) of the frame.
        form: the port's format.
        out: (h, w, z, channels read) of `native_dtype(form)`, in any memory order.
        channels: which to read.

    Raises:
        ArtifactError: RGB565 and YUV422.
        ContractError: a buffer came that the port does not have.
    """
    codec = _codec(form)
    _check(buffer, shape, form)
    codec.decode(buffer, shape, out, channels)


def _codec(form: PortFormat) -> Codec:
    codec = _CODECS[form]
    if codec is None:
        raise ArtifactError(f"{form.name} ports are not supported")
    return codec


def _check(buffer: Bytes, shape: Shape, form: PortFormat) -> None:
    wanted = frame_bytes(shape, form)
    if buffer.shape != (wanted,) or buffer.dtype != np.uint8 or not buffer.flags.c_contiguous:
        raise ContractError(f"{buffer.dtype}{list(buffer.shape)} came, a {form.name} frame is {wanted} bytes")


_INPUT_ONLY = (PortFormat.RGB565, PortFormat.RGB888, PortFormat.YUV422)
_TABLE: dict[PortFormat, Codec | None] = {
    PortFormat.GBF80: Gbf80(pad_rows=False),
    PortFormat.RGB565: None,
    PortFormat.RGB888: Plain(UINT8),
    PortFormat.YUV422: None,
    PortFormat.BF16: Bf16(),
    PortFormat.FLOAT32: Plain(FLOAT32),
    PortFormat.GBF80_ROW: Gbf80(pad_rows=True),
}
_CODECS = tuple(_TABLE[form] for form in PortFormat)  # by value: an enum's own hash is slow
