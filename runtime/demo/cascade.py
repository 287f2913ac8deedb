"""Face detection by three networks in a row.

After Zhang et al., "Joint Face Detection and Alignment using Multi-task Cascaded Convolutional Networks"
(2016): the first network scans the photograph at many scales, the second throws most of its proposals out,
the third refines what is left and finds five landmarks. A compiled network has one fixed shape, so all
scales lie on canvases of one size, and each proposal is a request of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, final

import anyio
import numpy as np
import numpy.typing as npt
from PIL import Image

from .boxes import Floats, best, moved, sides, squared
from .canvas import CANVAS, CELL, STRIDE, Tile, layout

__all__ = ["LARGEST", "MIN_FACE", "Face", "Nets", "Pixels", "Point", "find_faces"]

R = TypeVar("R")

Pixels: TypeAlias = npt.NDArray[np.uint8]
"""`[height, width, 3]`, red first."""

Point: TypeAlias = tuple[float, float]
"""Right and down from the upper left corner, in pixels."""

MIN_FACE = 40
"""Side of the smallest face that is looked for, in pixels."""

LARGEST = 640
"""A photograph whose longer side has more pixels is scaled down to it first."""

_PNET, _RNET, _ONET = 0.6, 0.7, 0.7
"""Confidence from which a network's proposal goes on."""


@final
@dataclass(frozen=True, slots=True)
class Face:
    """A face that was found; lengths in pixels of the photograph.

    Attributes:
        left: of the box; may lie outside of the photograph.
        top: likewise.
        width: of the box.
        height: likewise.
        confidence: from 0 to 1.
        landmarks: the eyes, the nose and the corners of the mouth, as the beholder sees them: left first.
    """

    left: float
    top: float
    width: float
    height: float
    confidence: float
    landmarks: tuple[Point, Point, Point, Point, Point]


class Nets(Protocol):
    """The three networks; each takes float32 of one fixed shape, from -1 to 1, **width before height**.

    Where that shape has `h` and `w`, they are cells. Probabilities are of no face and of a face; offsets of
    left, top, right and bottom; landmarks five times right, then five times down. Offsets and landmarks
    are shares of the box's sides.
    """

    async def pnet(self, canvas: Floats, /) -> tuple[Floats, Floats]:
        """Scan `[1, 352, 272, 3]`; return offsets `[1, w, h, 4]` and probabilities `[1, w, h, 2]`."""
        ...

    async def rnet(self, crop: Floats, /) -> tuple[Floats, Floats]:
        """Judge `[1, 24, 24, 3]`; return offsets `[1, 4]` and probabilities `[1, 2]`."""
        ...

    async def onet(self, crop: Floats, /) -> tuple[Floats, Floats, Floats]:
        """Judge `[1, 48, 48, 3]`; return offsets `[1, 4]`, landmarks `[1, 10]`, probabilities `[1, 2]`."""
        ...


async def find_faces(photo: Pixels, nets: Nets) -> list[Face]:
    """Find the faces in a photograph, the most certain first.

    All requests to one network are awaited at the same time: one for each canvas, then one for each
    proposal. There may be some hundred of them.

    Raises:
        ExceptionGroup: of what the networks raised.
    """
    image = Image.fromarray(photo)
    scale = min(1.0, LARGEST / max(image.size))
    image = _resized(image, round(image.width * scale), round(image.height * scale))
    proposals = await _refined(image, await _scanned(image, nets), nets)
    return await _faces(image, proposals, nets, scale)


def _resized(image: Image.Image, width: int, height: int) -> Image.Image:
    return image.resize((max(width, 1), max(height, 1)), Image.Resampling.BOX)


async def _scanned(image: Image.Image, nets: Nets) -> Floats:
    tiles = layout(image.height, image.width, smallest=MIN_FACE)
    answers = await _each(nets.pnet, _canvases(image, tiles))
    found = [_proposals(image, tile, *answers[tile.canvas]) for tile in tiles]
    boxes, offsets, scores = (np.concatenate(parts) for parts in zip(_nothing(), *found, strict=True))
    kept = best(boxes, scores, overlap=0.7)
    return moved(boxes[kept], offsets[kept])


def _nothing() -> tuple[Floats, Floats, Floats]:
    return np.empty((0, 4), np.float32), np.empty((0, 4), np.float32), np.empty(0, np.float32)


def _canvases(image: Image.Image, tiles: Sequence[Tile]) -> list[Floats]:
    height, width = CANVAS
    count = max((tile.canvas + 1 for tile in tiles), default=0)
    canvases = [np.zeros((1, width, height, 3), np.float32) for _ in range(count)]
    for tile in tiles:
        columns = slice(tile.left, tile.left + tile.width)
        rows = slice(tile.top, tile.top + tile.height)
        canvases[tile.canvas][:, columns, rows] = _normalised(_resized(image, tile.width, tile.height))
    return canvases


def _normalised(image: Image.Image) -> Floats:
    """Return `[1, width, height, 3]`; the networks were trained on transposed images."""
    pixels = np.asarray(image, np.float32)
    return ((pixels - np.float32(127.5)) / np.float32(128)).transpose(1, 0, 2)[np.newaxis]


def _proposals(
    image: Image.Image, tile: Tile, offsets: Floats, probabilities: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return boxes, offsets and scores of the cells that saw nothing but their own tile."""
    columns, rows = _cells(tile.left, tile.width), _cells(tile.top, tile.height)
    scores = probabilities[0, columns, rows, 1]
    x, y = np.nonzero(scores >= _PNET)
    ratio = np.array([image.width / tile.width, image.height / tile.height], np.float32)
    corners = np.stack([x, y], axis=1) * STRIDE
    boxes = np.hstack([corners * ratio, (corners + CELL) * ratio]).astype(np.float32)
    kept = best(boxes, scores[x, y], overlap=0.5)
    return boxes[kept], offsets[0, columns, rows][x, y][kept], scores[x, y][kept]


def _cells(start: int, length: int) -> slice:
    first = start // STRIDE
    return slice(first, first + (length - CELL) // STRIDE + 1)


async def _refined(image: Image.Image, proposals: Floats, nets: Nets) -> Floats:
    boxes = squared(proposals)
    answers = await _each(nets.rnet, _crops(image, boxes, 24))
    if not answers:
        return boxes
    offsets, probabilities = (np.concatenate(parts) for parts in zip(*answers, strict=True))
    kept = np.flatnonzero(probabilities[:, 1] >= _RNET)
    kept = kept[best(boxes[kept], probabilities[kept, 1], overlap=0.7)]
    return moved(boxes[kept], offsets[kept])


async def _faces(image: Image.Image, proposals: Floats, nets: Nets, scale: float) -> list[Face]:
    boxes = squared(proposals)
    answers = await _each(nets.onet, _crops(image, boxes, 48))
    if not answers:
        return []
    offsets, landmarks, probabilities = (np.concatenate(parts) for parts in zip(*answers, strict=True))
    scores, final_boxes = probabilities[:, 1], moved(boxes, offsets)
    sure = np.flatnonzero(scores >= _ONET)
    kept = sure[best(final_boxes[sure], scores[sure], overlap=0.7, nested=True)]
    within: Floats = _pairs(landmarks) * sides(boxes)[:, np.newaxis]
    points: Floats = boxes[:, np.newaxis, :2] + within
    return [_face(final_boxes[at] / scale, points[at] / scale, float(scores[at])) for at in kept]


def _pairs(landmarks: Floats) -> Floats:
    return landmarks.reshape(-1, 2, 5).transpose(0, 2, 1)


def _face(box: Floats, points: Floats, confidence: float) -> Face:
    left, top, right, bottom = map(float, box)
    a, b, c, d, e = ((float(x), float(y)) for x, y in points)
    return Face(left, top, right - left, bottom - top, confidence, (a, b, c, d, e))


def _crops(image: Image.Image, boxes: Floats, side: int) -> list[Floats]:
    """Cut squares out and scale them; beyond its edges the photograph is black."""
    squares = [
        image.crop((int(left), int(top), int(right), int(bottom))) for left, top, right, bottom in boxes
    ]
    return [_normalised(square.resize((side, side), Image.Resampling.BILINEAR)) for square in squares]


async def _each(net: Callable[[Floats], Awaitable[R]], tensors: Sequence[Floats]) -> list[R]:
    answers: dict[int, R] = {}

    async def ask(at: int, tensor: Floats) -> None:
        answers[at] = await net(tensor)

    async with anyio.create_task_group() as tasks:
        for at, tensor in enumerate(tensors):
            tasks.start_soon(ask, at, tensor)
    return [answers[at] for at in range(len(tensors))]
