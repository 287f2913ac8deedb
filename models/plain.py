"""FLOAT32 and RGB888 ports: a frame is the array itself, the channel last, little-endian, padded."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from .codec import Bytes, Channels, Codec, Shape, padded
from .spec import Array

__all__ = ["Plain"]


@final
class Plain(Codec):
    """Elements as they are."""

    def __init__(self, native: np.dtype[Any]) -> None:
        self.native = native
        self._wire = native.newbyteorder("<")

    def frame_bytes(self, shape: Shape) -> int:
        return padded(math.prod(shape) * self.native.itemsize)

    def encode(self, array: Array, out: Bytes) -> None:
        np.copyto(out[: array.nbytes].view(self._wire).reshape(array.shape), array)
        out[array.nbytes :] = 0

    def decode(self, buffer: Bytes, shape: Shape, out: Array, channels: Channels) -> None:
        size = math.prod(shape) * self.native.itemsize
        np.copyto(out, buffer[:size].view(self._wire).reshape(shape)[..., channels])
