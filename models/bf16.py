"""BF16 ports: the upper half of each float32, rounded as the vendor's host code rounds.

The rule is (bits + 0x8000) >> 16 on the 32-bit word, whatever it stands for. So halves round away from
zero; what is above the largest bfloat16 becomes infinite; infinities stay; a NaN whose payload lies in its
lower 15 bits alone becomes infinite, and one whose upper 8 payload bits are all set wraps into a zero of the
other sign. These last two are the vendor's, and kept: the device takes the same bits from us.
"""

from __future__ import annotations

import math
from typing import final

import numpy as np

from .codec import FLOAT32, Bytes, Channels, Codec, Shape, padded
from .spec import Array

__all__ = ["Bf16"]

_WORD = np.dtype("<u2")
_HALVES = np.dtype([("low", _WORD), ("high", _WORD)])


@final
class Bf16(Codec):
    """Two bytes a number."""

    native = FLOAT32

    def frame_bytes(self, shape: Shape) -> int:
        return padded(2 * math.prod(shape))

    def encode(self, array: Array, out: Bytes) -> None:
        words = out[: 2 * array.size].view(_WORD).reshape(array.shape)
        halves = array.view(_HALVES)
        np.right_shift(halves["low"], 15, out=words)
        np.add(halves["high"], words, out=words)
        out[2 * array.size :] = 0

    def decode(self, buffer: Bytes, shape: Shape, out: Array, channels: Channels) -> None:
        words = buffer[: 2 * math.prod(shape)].view(_WORD).reshape(shape)
        halves = out.view(_HALVES)
        halves["low"] = 0
        halves["high"] = words[..., channels]
