"""GBF80 ports: eight channels of a pixel share one exponent, in a word of ten bytes.

A word is a little-endian string of bits. Channel k has an 8-bit mantissa, its leading one written out, from
bit 9k on, and its sign at bit 9k + 8; bits 72 to 79 are the exponent, biased as in float32. Channels beyond
the last are zero. The rules, to the bit, are those of the vendor's public host code; where that is undefined
(a channel 2^32 times smaller than its word's largest), the channel is 0, as those from 2^9 on are anyway.

Numbers become bfloat16 first (see `bf16`). Exponents of 0 and 255 are not special: a denormal number has the
leading one too, and what shares a word with an infinity or a NaN is nearly always lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, final

import numpy as np

from .codec import FLOAT32, Bytes, Channels, Codec, Shape, padded
from .spec import Array

__all__ = ["Gbf80"]

_Words: TypeAlias = Array
"""`_WORD`."""
_Planes: TypeAlias = Array
"""(words of a pixel, 8, pixels): one plane a channel, so that each step runs over contiguous numbers."""

_CHANNELS = 8
_WORD = np.dtype([("low", "<u8"), ("high", "<u2")])
_LAST = _CHANNELS - 1  # its mantissa begins in the last bit of `low`
_SHIFTS = 9 * np.arange(_CHANNELS, dtype=np.uint64)
_BLOCK = 1 << 16
"""Numbers converted at a time: what they need between the steps stays in a core's cache."""


@final
class Gbf80(Codec):
    """Words pixel by pixel; with `pad_rows` each row of pixels ends at a multiple of 4 bytes."""

    native = FLOAT32

    def __init__(self, *, pad_rows: bool) -> None:
        self._pad_rows = pad_rows

    def frame_bytes(self, shape: Shape) -> int:
        return padded(shape[0] * self._row_bytes(shape))

    def encode(self, array: Array, out: Bytes) -> None:
        height, width, z, channels = array.shape
        rows = self._rows(out, (height, width, z, channels))
        words = _words(rows, (height, width, z, channels))
        rows[:, words[0].nbytes :] = 0
        out[rows.size :] = 0
        for block in _blocks(words.shape):
            _encode(array[block], words[block])

    def decode(self, buffer: Bytes, shape: Shape, out: Array, channels: Channels) -> None:
        words = _words(self._rows(buffer, shape), shape)
        for block in _blocks(words.shape):
            _decode(words[block], out[block], channels, shape[3])

    def _row_bytes(self, shape: Shape) -> int:
        size = _used(shape)
        return padded(size) if self._pad_rows else size

    def _rows(self, frame: Bytes, shape: Shape) -> Bytes:
        """View a frame as (h, bytes of a row), without what pads the frame."""
        size = self._row_bytes(shape)
        return frame[: shape[0] * size].reshape(shape[0], size)


def _used(shape: Shape) -> int:
    """Bytes of a row's words."""
    _, width, z, channels = shape
    return width * z * -(-channels // _CHANNELS) * _WORD.itemsize


def _words(rows: Bytes, shape: Shape) -> _Words:
    """View rows as (h, w, z, words of a pixel)."""
    height, width, z, _ = shape
    return rows[:, : _used(shape)].view(_WORD).reshape(height, width, z, -1)


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[slice, slice]]:
    """Cut words into blocks: rows, or pieces of a row where it is long."""
    height, width, z, count = shape
    columns = min(width, max(1, _BLOCK // (z * count * _CHANNELS)))
    rows = max(1, _BLOCK // (columns * z * count * _CHANNELS))
    for top in range(0, height, rows):
        for left in range(0, width, columns):
            yield slice(top, top + rows), slice(left, left + columns)


def _encode(array: Array, words: _Words) -> None:
    """Write (h, w, z, c) into words of (h, w, z, words of a pixel)."""
    count, channels = words.shape[-1], array.shape[-1]
    lanes = min(channels, _CHANNELS)
    bits = np.empty((count * lanes, *array.shape[:-1]), np.uint32)
    bits[channels:] = 0
    np.copyto(bits[:channels], np.moveaxis(array.view(np.uint32), -1, 0))
    bits += 0x8000
    bits >>= 16
    fields, exponents = _share(bits.astype(np.uint16).reshape(count, lanes, -1))
    fields.reshape(count * lanes, -1)[channels:] = 0
    _pack(fields, exponents, np.moveaxis(words, -1, 0))


def _pack(fields: _Planes, exponents: Array, words: _Words) -> None:
    """Put fields of 9 bits and exponents, uint16, into words of (words of a pixel, ...)."""
    low = np.zeros(exponents.shape, np.uint64)
    for lane in range(fields.shape[1]):
        low |= fields[:, lane].astype(np.uint64) << _SHIFTS[lane]
    high = exponents << 8 | np.bitwise_or.reduce(fields[:, _LAST:], axis=1) >> 1
    words["low"] = low.reshape(words.shape)
    words["high"] = high.reshape(words.shape)


def _share(numbers: _Planes) -> tuple[_Planes, Array]:
    """Bring bfloat16 bits to the largest exponent of their word.

    Returns:
        Mantissas with signs above them, and for each word the exponent; all uint16.
    """
    exponents = numbers >> 7 & 0xFF
    largest = exponents.max(axis=1, keepdims=True)
    mantissas = numbers & 0x7F | 0x80
    mantissas <<= 1  # one bit more: the first that is shifted out rounds
    mantissas >>= largest - exponents
    mantissas += 1
    mantissas >>= 1
    signs = numbers >> 15 << 8
    signs *= mantissas != 0
    return mantissas | signs, largest[:, 0]


def _decode(words: _Words, out: Array, channels: Channels, of: int) -> None:
    """Read some channels of so many into (h, w, z, as many)."""
    planes = np.moveaxis(words, -1, 0)
    count, lanes = len(planes), min(of, _CHANNELS)
    low = np.ascontiguousarray(planes["low"]).reshape(count, -1)
    high = np.ascontiguousarray(planes["high"]).reshape(count, -1)
    exponents = high.astype(np.uint32) >> 8 << 23
    bits = np.empty((count, lanes, low.shape[1]), np.uint32)
    for lane in range(lanes):
        fields = low >> _SHIFTS[lane] & 0x1FF
        if lane == _LAST:
            fields |= (high & np.uint64(0xFF)) << 1
        _normalise(fields.view(np.int64), exponents, bits[:, lane])
    whole = bits.view(np.float32).reshape(count * lanes, *planes.shape[1:])
    np.copyto(np.moveaxis(out, -1, 0), whole[channels])


def _normalise(fields: Array, exponents: Array, out: Array) -> None:
    """Make float32 bits of signs and mantissas; an exponent below the needed one ends at 0.

    Args:
        fields: int64, a mantissa with the sign above it.
        exponents: uint32, in their place in a float32.
        out: uint32.
    """
    lacking = _LACKING.take(fields)
    np.maximum(exponents, lacking, out=out)
    out -= lacking
    out |= _FRACTION.take(fields)


def _tables() -> tuple[Array, Array]:
    """For each sign and mantissa: what normalising takes from the exponent, and the bits beside it.

    Both are in their places in a float32. From a mantissa of 0 all is taken.
    """
    fields = np.arange(1 << 9, dtype=np.uint32)
    mantissas = fields & 0xFF
    lengths = np.array([int(mantissa).bit_length() for mantissa in mantissas], np.uint32)
    shifts = 8 - lengths
    lacking = np.where(lengths, shifts, 0xFF).astype(np.uint32) << 23
    fraction = (mantissas << shifts & 0x7F) << 16
    return lacking, fraction | fields >> 8 << 31


_LACKING, _FRACTION = _tables()
