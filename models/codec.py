"""What a number format of MX3 ports is: a frame's size, and the way between arrays and bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .spec import Array

__all__ = ["FLOAT32", "UINT8", "Bytes", "Channels", "Codec", "Shape", "padded"]

Shape: TypeAlias = tuple[int, int, int, int]
"""Height, width, z, channels."""
Bytes: TypeAlias = npt.NDArray[np.uint8]
"""One frame's memory: one-dimensional and contiguous."""
Channels: TypeAlias = slice | npt.NDArray[np.intp]
"""Which channels of a frame are read: an index whose numbers are those of the frame."""

FLOAT32: np.dtype[Any] = np.dtype(np.float32)
UINT8: np.dtype[Any] = np.dtype(np.uint8)


def padded(size: int) -> int:
    """The next multiple of 4: frames, and the rows of one format, end there."""
    return (size + 3) & ~3


class Codec(ABC):
    """One format. It keeps nothing between calls: any thread may use it at any time.

    Attributes:
        native: what the arrays hold.
    """

    native: np.dtype[Any]

    @abstractmethod
    def frame_bytes(self, shape: Shape) -> int:
        """Bytes of one frame, padding included."""

    @abstractmethod
    def encode(self, array: Array, out: Bytes) -> None:
        """Write a frame of (h, w, z, c), in any memory order, into `frame_bytes`; padding becomes zero."""

    @abstractmethod
    def decode(self, buffer: Bytes, shape: Shape, out: Array, channels: Channels) -> None:
        """Read `channels` of a frame of `shape` into `out`, (h, w, z, as many), in any memory order."""
