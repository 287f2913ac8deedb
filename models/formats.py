"""The number formats of MX3 ports: how many bytes a frame has, and the way between arrays and bytes.

The host converts: the vendor's library only moves bytes. A frame is ordered (height, width, z, channels),
the channel last; an image has z = 1. All that is known of a format is its entry in the table at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from .errors import ArtifactError, ContractError
from .spec import Array

__all__ = [
    "Bytes",
    "PortFormat",
    "Shape",
    "convertible",
    "decode",
    "encode",
    "frame_bytes",
    "input_only",
    "native_dtype",
]

Shape: TypeAlias = tuple[int, int, int, int]
"""Height, width, z, channels."""
Bytes: TypeAlias = npt.NDArray[np.uint8]
"""One frame's memory: one-dimensional and contiguous."""


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
    return _FORMS[form].size(shape)


def input_only(form: PortFormat) -> bool:
    """Whether the device takes this format in and never gives it out."""
    return _FORMS[form].input_only


def convertible(form: PortFormat) -> bool:
    """Whether `encode` and `decode` know this format."""
    return _FORMS[form].codec is not None


def native_dtype(form: PortFormat) -> np.dtype[Any]:
    """The dtype of a caller's array at a port of this format: float32, or uint8 for RGB888.

    Raises:
        ArtifactError: RGB565 and YUV422, which no array of channels stands for.
    """
    native = _FORMS[form].native
    if native is None:
        raise ArtifactError(f"{form.name} ports are not supported")
    return native


def encode(array: Array, form: PortFormat, out: Bytes) -> None:
    """Write a frame, padding included, into a buffer of exactly `frame_bytes`.

    Args:
        array: (h, w, z, c) of `native_dtype(form)`, in any memory order; it is only read.
        form: the port's format.
        out: where to write.

    Raises:
        ArtifactError: the conversion of this format is not available.
        ContractError: an array or a buffer came that the port does not have.
    """
    codec = _codec(form)
    match array.shape:
        case (h, w, z, c) if array.dtype == native_dtype(form):
            _check(out, (h, w, z, c), form)
            codec.encode(array, out)
        case shape:
            raise ContractError(f"{array.dtype}{list(shape)} came to a {form.name} port")


def decode(buffer: Bytes, shape: Shape, form: PortFormat) -> Array:
    """Read a frame as (h, w, z, c) of `native_dtype(form)`.

    Where the format needs no conversion the result is a view of `buffer`: copy what must outlive it.

    Raises:
        ArtifactError: the conversion of this format is not available.
        ContractError: the buffer has not exactly `frame_bytes`.
    """
    codec = _codec(form)
    _check(buffer, shape, form)
    return codec.decode(buffer, shape)


@final
@dataclass(frozen=True, slots=True)
class _Codec:
    """How a frame is written and read; sizes and dtypes have been checked."""

    encode: Callable[[Array, Bytes], None]
    decode: Callable[[Bytes, Shape], Array]


@final
@dataclass(frozen=True, slots=True)
class _Form:
    size: Callable[[Shape], int]
    native: np.dtype[Any] | None
    codec: _Codec | None = None
    input_only: bool = False


def _codec(form: PortFormat) -> _Codec:
    codec = _FORMS[form].codec
    if codec is None:
        raise ArtifactError(f"{form.name} ports cannot be converted")
    return codec


def _check(buffer: Bytes, shape: Shape, form: PortFormat) -> None:
    wanted = frame_bytes(shape, form)
    if buffer.shape != (wanted,) or buffer.dtype != np.uint8 or not buffer.flags.c_contiguous:
        raise ContractError(f"{buffer.dtype}{list(buffer.shape)} came, a {form.name} frame is {wanted} bytes")


def _padded(size: int) -> int:
    return (size + 3) & ~3


def _gbf80(pixels: int, channels: int) -> int:
    """Bytes of words of 10, each with 8 channels of one pixel."""
    return pixels * -(-channels // 8) * 10


def _gbf80_rows(shape: Shape) -> int:
    height, width, z, channels = shape
    return height * _padded(_gbf80(width * z, channels))


def _plain(dtype: np.dtype[Any]) -> _Codec:
    """A frame that is the array itself, padded."""

    def encode(array: Array, out: Bytes) -> None:
        np.copyto(out[: array.nbytes].view(dtype).reshape(array.shape), array)
        out[array.nbytes :] = 0

    def decode(buffer: Bytes, shape: Shape) -> Array:
        return buffer[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    return _Codec(encode, decode)


_FLOAT32 = np.dtype(np.float32)
_UINT8 = np.dtype(np.uint8)
_TABLE = {
    PortFormat.GBF80: _Form(lambda shape: _padded(_gbf80(math.prod(shape[:3]), shape[3])), _FLOAT32),
    PortFormat.RGB565: _Form(lambda shape: 2 * math.prod(shape[:3]), None, input_only=True),
    PortFormat.RGB888: _Form(
        lambda shape: _padded(math.prod(shape)), _UINT8, _plain(_UINT8), input_only=True
    ),
    PortFormat.YUV422: _Form(lambda shape: 2 * math.prod(shape[:3]), None, input_only=True),
    PortFormat.BF16: _Form(lambda shape: _padded(2 * math.prod(shape)), _FLOAT32),
    PortFormat.FLOAT32: _Form(lambda shape: 4 * math.prod(shape), _FLOAT32, _plain(np.dtype("<f4"))),
    PortFormat.GBF80_ROW: _Form(_gbf80_rows, _FLOAT32),
}
_FORMS = tuple(_TABLE[form] for form in PortFormat)  # by value: an enum's own hash is slow
