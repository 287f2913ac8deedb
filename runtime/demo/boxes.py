"""Geometry of many boxes at once: float32 `[n, 4]` with left, top, right, bottom in pixels."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Indices", "best", "moved", "sides", "squared"]

Floats: TypeAlias = npt.NDArray[np.float32]
"""Reals; the docstring beside it says of which shape."""

Indices: TypeAlias = npt.NDArray[np.intp]
"""Rows of an array, in order."""


def sides(boxes: Floats) -> Floats:
    """Return widths and heights, `[n, 2]`."""
    return boxes[:, 2:] - boxes[:, :2]


def moved(boxes: Floats, offsets: Floats) -> Floats:
    """Move each edge by its offset, a share of the box's width or height."""
    shifts: Floats = offsets * np.hstack([sides(boxes), sides(boxes)])
    return boxes + shifts


def squared(boxes: Floats) -> Floats:
    """Return the square around each box's centre, as wide as its longer side, on whole pixels."""
    longer = np.maximum(np.rint(sides(boxes).max(axis=1, keepdims=True)), 1)
    corners = np.rint((boxes[:, :2] + boxes[:, 2:] - longer) / 2)
    return np.hstack([corners, corners + longer])


def best(boxes: Floats, scores: Floats, *, overlap: float, nested: bool = False) -> Indices:
    """Suppress all but the best of boxes that overlap.

    Args:
        boxes: `[n, 4]`.
        scores: `[n]`; the highest is the best.
        overlap: the intersection's share of the union above which the worse box goes.
        nested: take the share of the smaller box instead, so that one inside another goes too.

    Returns:
        Which boxes stay, the best first.
    """
    kept: list[np.intp] = []
    rest = np.argsort(-scores, kind="stable")
    while rest.size:
        first, rest = rest[0], rest[1:]
        kept.append(first)
        rest = rest[_overlaps(boxes[first], boxes[rest], nested=nested) <= overlap]
    return np.array(kept, dtype=np.intp)


def _overlaps(box: Floats, others: Floats, *, nested: bool) -> Floats:
    shared = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = shared.clip(min=0).prod(axis=1)
    area, areas = (box[2:] - box[:2]).prod(), (others[:, 2:] - others[:, :2]).prod(axis=1)
    whole = np.minimum(area, areas) if nested else area + areas - common
    shares: Floats = common / np.maximum(whole, np.float32(1e-9))
    return shares
