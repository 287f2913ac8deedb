"""Axis letters of a tensor (`NCHW`) and the way between them and the device's (h, w, z, c).

A layout is `N`, the frame, followed by letters of `HWZC` in the tensor's own order; a letter that is not
there stands for an extent of 1. The mapping is a transposition and a reshape, never arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

from .formats import Shape
from .spec import Array

__all__ = ["extents", "find", "fits", "to_wire", "valid", "wire_shape"]

_WIRE = "HWZC"
_KNOWN = {
    1: ("N",),
    2: ("NC", "NW", "NH"),
    3: ("NWC", "NHC", "NHW", "NCW", "NCH"),
    4: ("NHWC", "NCHW"),
    5: ("NHWZC", "NCHWZ", "NCZHW"),
}


@lru_cache(maxsize=256)
def find(tensor: tuple[int, ...], shape: Shape) -> str | None:
    """The layout in which a tensor of these extents, the frame's 1 first, has the wire's `shape`."""
    return next((layout for layout in _KNOWN.get(len(tensor), ()) if fits(layout, tensor, shape)), None)


def fits(layout: str, tensor: Sequence[int], shape: Shape) -> bool:
    """Whether `layout` is one, and takes a tensor of these extents to the wire's `shape`."""
    return valid(layout, len(tensor)) and tensor[0] == 1 and wire_shape(layout, tensor) == shape


def valid(layout: str, rank: int) -> bool:
    """Whether `layout` names each axis of a tensor of this rank once, the frame first."""
    return (
        len(layout) == rank
        and layout[:1] == "N"
        and len(set(layout)) == rank
        and set(layout[1:]) <= set(_WIRE)
    )


def wire_shape(layout: str, tensor: Sequence[int]) -> Shape:
    """The (h, w, z, c) of a tensor of these extents, the frame's first."""
    extent = dict(zip(layout[1:], tensor[1:], strict=True))
    return extent.get("H", 1), extent.get("W", 1), extent.get("Z", 1), extent.get("C", 1)


def extents(layout: str, shape: Shape) -> tuple[int, ...]:
    """The tensor's extents, the frame's 1 first, for the wire's `shape`."""
    return 1, *(shape[_WIRE.index(letter)] for letter in layout[1:])


def to_wire(array: Array, layout: str, shape: Shape) -> Array:
    """View one frame's tensor (1, ...) as (h, w, z, c); in the other direction, write into the view."""
    return array.transpose(_order(layout)).reshape(shape)


@cache
def _order(layout: str) -> tuple[int, ...]:
    """The tensor's axes in the order of the wire's."""
    return 0, *(layout.index(letter) for letter in _WIRE if letter in layout)
