"""Between a script's arrays and the frames of a port."""

from __future__ import annotations

import math
from typing import TypeGuard, cast

import numpy as np

from repertory.models import layout
from repertory.models.formats import Bytes
from repertory.models.port import Port
from repertory.models.spec import Array

__all__ = ["fits", "read", "written"]


def fits(array: object, port: Port) -> TypeGuard[Array]:
    """Whether an array has a frame's elements, in whatever shape: the vendor's module takes any."""
    if not isinstance(array, np.ndarray):
        return False
    came = cast("Array", array)
    return came.dtype == port.spec.dtype and came.size == math.prod(port.shape)


def written(array: Array, port: Port) -> Array:
    """Return the frame of a fitting array: its own memory where that is the frame already."""
    tensor = np.asarray(array).reshape(layout.extents(port.axes, port.shape))
    same = port.verbatim(tensor)
    if same is not None:
        return same
    frame = np.empty(port.nbytes, np.uint8)
    port.encode(tensor, frame)
    return frame


def read(frame: Bytes, port: Port, array: Array) -> None:
    """Fill a fitting array, whatever its memory order, with a frame's elements."""
    np.copyto(array, port.decode(frame).reshape(array.shape))
