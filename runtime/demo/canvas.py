"""Laying one photograph out at many scales on canvases of one size, for a network of one fixed shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

__all__ = ["CANVAS", "CELL", "SHRINK", "STRIDE", "Tile", "layout"]

CANVAS = (272, 352)
"""Height and width. All scales of a photograph of 640 x 640 pixels fit on one."""

CELL = 12
"""Side of the square that one cell of the scanning network's output has seen."""

STRIDE = 2
"""Distance of neighbouring cells; tiles lie at its multiples, so that cells see what they would alone."""

SHRINK = 0.709
"""From one scale to the next: about half the area."""


@final
@dataclass(frozen=True, slots=True)
class Tile:
    """One scale of the photograph, and where it lies. Lengths in pixels of the canvas."""

    canvas: int
    top: int
    left: int
    height: int
    width: int


@final
@dataclass(frozen=True, slots=True)
class _Space:
    canvas: int
    top: int
    left: int
    height: int
    width: int

    def fits(self, height: int, width: int) -> bool:
        return height <= self.height and width <= self.width

    def split(self, height: int, width: int) -> list[_Space]:
        """Return what is free below and to the right of a tile in the upper left corner."""
        below = _Space(self.canvas, self.top + height, self.left, self.height - height, width)
        right = _Space(self.canvas, self.top, self.left + width, self.height, self.width - width)
        return [below, right]


def layout(height: int, width: int, *, smallest: int) -> list[Tile]:
    """Place every scale of a photograph, the largest first; none overlap.

    Args:
        height: of the photograph.
        width: likewise.
        smallest: side of the smallest square to be found: at the largest scale it is one cell.
    """
    tiles: list[Tile] = []
    free: list[_Space] = []
    scale = CELL / smallest
    while min(height, width) * scale >= CELL:
        tiles.append(_place(round(height * scale), round(width * scale), free))
        scale *= SHRINK
    return tiles


def _place(height: int, width: int, free: list[_Space]) -> Tile:
    rows, columns = _aligned(height), _aligned(width)
    if not any(space.fits(rows, columns) for space in free):
        free.append(_Space(max((space.canvas for space in free), default=-1) + 1, 0, 0, *CANVAS))
    at = next(index for index, space in enumerate(free) if space.fits(rows, columns))
    space = free.pop(at)
    free[at:at] = space.split(rows, columns)
    return Tile(space.canvas, space.top, space.left, height, width)


def _aligned(length: int) -> int:
    return -(-length // STRIDE) * STRIDE
