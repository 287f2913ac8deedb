"""Weights that are loaded apart from a module: a blob of constants, of which only the frame is read."""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final, final

__all__ = ["TENSOR_MAGIC", "TENSOR_TYPE", "NoWeights", "count_constants"]

TENSOR_TYPE: Final = 15
TENSOR_MAGIC: Final = 0xDD5E40F096B4A13F

_COUNT: Final = Struct("<Q")
_TYPE: Final = Struct("<i")
_TENSOR: Final = Struct("<QiiiBBH")
_SIZE: Final = Struct("<q")
_SCALAR_SIZE: Final = 8
_MAX_DIMS: Final = 16


@final
class NoWeights(Exception):
    """The blob is cut short or holds what no constant is."""


def count_constants(blob: bytes) -> int:
    """Walk through a blob and return how many constants it holds.

    An entry is a type, then a tensor (magic, device, number of axes, element type, extents, bytes, data), or
    8 bytes of a number.

    Raises:
        NoWeights: it does not end where its entries do.
    """
    try:
        (count,) = _COUNT.unpack_from(blob)
        at = _COUNT.size
        for _ in range(count):
            at = _after(blob, at)
    except struct.error as error:
        raise NoWeights(f"cut short: {error}") from error
    if at > len(blob):
        raise NoWeights("cut short")
    return int(count)


def _after(blob: bytes, at: int) -> int:
    """Return where the next entry begins."""
    (kind,) = _TYPE.unpack_from(blob, at)
    at += _TYPE.size
    if kind != TENSOR_TYPE:
        return at + _SCALAR_SIZE
    magic, _, _, ndim, _, _, _ = _TENSOR.unpack_from(blob, at)
    if magic != TENSOR_MAGIC or not 0 <= ndim <= _MAX_DIMS:
        raise NoWeights("an entry is no tensor")
    at += _TENSOR.size + 8 * ndim
    (size,) = _SIZE.unpack_from(blob, at)
    if size < 0:
        raise NoWeights("a tensor has less than no bytes")
    return int(at + _SIZE.size + size)
