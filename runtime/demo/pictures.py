"""The pictures of the demonstration: faces in a photograph, and what a device did with its time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from repertory.runtime.timeline import Shares, Span, covered, shares

from .cascade import Face, Pixels

__all__ = ["annotate", "timeline"]

Colour: TypeAlias = tuple[int, int, int]

_PAPER, _INK, _FAINT = (255, 255, 255), (38, 42, 48), (110, 117, 126)
_ROW, _HATCH = (244, 245, 247), (203, 207, 214)
_COLOURS: dict[str, Colour] = {"swap": (213, 94, 0), "transfer": (0, 114, 178), "compute": (0, 148, 108)}
_BOX, _POINT = (255, 214, 0), (255, 45, 85)

_MARGIN, _HEAD, _ROW_HEIGHT, _GAP, _AXIS = 24, 78, 34, 8, 44
_SWATCH = (20, 14)
_TICK = 110
"""Least distance between two ticks, in pixels."""
_FAINTEST = 0.25
"""Strength of a span's colour where it fills next to nothing of its pixel."""


def annotate(photo: Pixels, faces: Sequence[Face]) -> Image.Image:
    """Draw each face's box, landmarks and confidence over a copy of the photograph."""
    image = Image.fromarray(photo).convert("RGB")
    draw = ImageDraw.Draw(image)
    unit = max(image.size) / 512
    for face in faces:
        _draw_face(draw, face, unit)
    return image


def _draw_face(draw: ImageDraw.ImageDraw, face: Face, unit: float) -> None:
    box = (face.left, face.top, face.left + face.width, face.top + face.height)
    draw.rectangle(_grown(box, unit), outline=_INK, width=round(5 * unit))
    draw.rectangle(box, outline=_BOX, width=round(3 * unit))
    for x, y in face.landmarks:
        radius = 3 * unit
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=_POINT, outline=_PAPER)
    _draw_label(draw, (face.left, face.top), f"{face.confidence:.1%}", unit)


def _grown(box: tuple[float, float, float, float], by: float) -> tuple[float, float, float, float]:
    return box[0] - by, box[1] - by, box[2] + by, box[3] + by


def _draw_label(draw: ImageDraw.ImageDraw, corner: tuple[float, float], text: str, unit: float) -> None:
    """Stand a label on a box's upper left corner, or hang it in where the photograph ends."""
    font = ImageFont.load_default(16 * unit)
    height = 22 * unit
    left, top = max(corner[0], 0.0), max(corner[1] - height, 0.0)
    width = draw.textlength(text, font) + 10 * unit
    draw.rectangle((left, top, left + width, top + height), fill=_BOX)
    draw.text((left + 5 * unit, top + height / 2), text, _INK, font, anchor="lm")


@final
@dataclass(frozen=True, slots=True)
class _Scale:
    """Seconds to pixels."""

    start: float
    end: float
    left: int
    right: int

    @property
    def columns(self) -> int:
        return self.right - self.left

    def x(self, time: float) -> float:
        return self.left + (time - self.start) / (self.end - self.start) * self.columns


def timeline(spans: Sequence[Span], *, title: str, width: int = 1600) -> Image.Image:
    """Draw what a device did: a row of swaps, one of transfers, and one of computing for each model.

    Where a pixel stands for many spans, its colour is as strong as they fill it. The device did nothing
    where all rows are hatched.

    Args:
        spans: in any order; they may overlap.
        title: stands above.
        width: of the picture, in pixels.
    """
    rows = _rows(spans)
    image = Image.new("RGB", (width, _HEAD + len(rows) * (_ROW_HEIGHT + _GAP) + _AXIS), _PAPER)
    draw = ImageDraw.Draw(image)
    scale = _scale(draw, spans, rows, width)
    idle = 1 - _fill(spans, scale)
    for at, (name, kind, members) in enumerate(rows):
        top = _HEAD + at * (_ROW_HEIGHT + _GAP)
        image.paste(_strip(_fill(members, scale), idle, _COLOURS[kind]), (scale.left, top))
        draw.text((scale.left - 12, top + _ROW_HEIGHT / 2), name, _INK, _font(15), anchor="rm")
        if kind != "compute":
            _draw_names(draw, members, scale, top)
    _draw_head(image, title, shares(spans))
    _draw_axis(draw, scale, _HEAD + len(rows) * (_ROW_HEIGHT + _GAP))
    return image


def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _rows(spans: Sequence[Span]) -> list[tuple[str, str, list[Span]]]:
    """Return each row's name, kind and spans."""
    computed = [span for span in spans if span.kind == "compute"]
    models = dict.fromkeys(span.model for span in sorted(computed, key=lambda span: span.start))
    return [
        *((kind, kind, [span for span in spans if span.kind == kind]) for kind in ("swap", "transfer")),
        *((model, "compute", [span for span in computed if span.model == model]) for model in models),
    ]


def _scale(
    draw: ImageDraw.ImageDraw, spans: Sequence[Span], rows: Iterable[tuple[str, str, list[Span]]], width: int
) -> _Scale:
    start = min((span.start for span in spans), default=0.0)
    end = max((span.end for span in spans), default=0.0)
    names = max(draw.textlength(name, _font(15)) for name, _, _ in rows)
    return _Scale(start, end if end > start else start + 1e-3, _MARGIN + round(names) + 12, width - _MARGIN)


def _fill(spans: Iterable[Span], scale: _Scale) -> npt.NDArray[np.float64]:
    """Return for each pixel which share of its time is covered."""
    stretches = np.array([(0.0, 0.0), *covered(spans)])
    stretches[0] = scale.start, scale.start
    edges = np.linspace(scale.start, scale.end, scale.columns + 1)
    before = np.insert(np.cumsum(stretches[:, 1] - stretches[:, 0]), 0, 0.0).repeat(2)[1:-1]
    spent = np.interp(edges, stretches.ravel(), before)
    filled: npt.NDArray[np.float64] = np.diff(spent) / (edges[1] - edges[0])
    return filled.clip(0, 1)


def _strip(fill: npt.NDArray[np.float64], idle: npt.NDArray[np.float64], colour: Colour) -> Image.Image:
    """Draw one row: hatched where nothing at all happened, coloured by how much of each pixel is filled."""
    y, x = np.mgrid[:_ROW_HEIGHT, : fill.size]
    hatched = ((x + y) % 8 < 2) & (idle > 0.5)  # noqa: PLR2004
    ground = np.where(hatched[..., np.newaxis], _HATCH, _ROW)
    strength = np.where(fill > 0, _FAINTEST + (1 - _FAINTEST) * fill, 0)[:, np.newaxis]
    return Image.fromarray(np.rint(ground * (1 - strength) + colour * strength).astype(np.uint8))


def _draw_names(draw: ImageDraw.ImageDraw, spans: Iterable[Span], scale: _Scale, top: int) -> None:
    """Write the model's name into each span that has room for it."""
    for span in spans:
        left, right = scale.x(span.start), scale.x(span.end)
        if draw.textlength(span.model, _font(13)) + 8 < right - left:
            draw.text(((left + right) / 2, top + _ROW_HEIGHT / 2), span.model, _PAPER, _font(13), anchor="mm")


def _draw_head(image: Image.Image, title: str, spent: Shares) -> None:
    draw = ImageDraw.Draw(image)
    draw.text((_MARGIN, 16), title, _INK, _font(22))
    x = _MARGIN
    for kind, colour in _COLOURS.items():
        x = _draw_key(image, x, f"{kind} {getattr(spent, kind):.1%}", Image.new("RGB", _SWATCH, colour))
    hatched = _strip(np.zeros(_SWATCH[0]), np.ones(_SWATCH[0]), _ROW).crop((0, 0, *_SWATCH))
    _draw_key(image, x, f"idle {spent.idle:.1%}", hatched)
    draw.line((_MARGIN, _HEAD - 8, image.width - _MARGIN, _HEAD - 8), _HATCH)


def _draw_key(image: Image.Image, x: int, text: str, swatch: Image.Image) -> int:
    """Draw one entry of the legend; return where the next begins."""
    draw = ImageDraw.Draw(image)
    image.paste(swatch, (x, 48))
    draw.text((x + 28, 55), text, _INK, _font(15), anchor="lm")
    return x + 56 + round(draw.textlength(text, _font(15)))


def _draw_axis(draw: ImageDraw.ImageDraw, scale: _Scale, y: int) -> None:
    draw.line((scale.left, y, scale.right, y), _FAINT)
    for time in _ticks(scale):
        x = scale.x(scale.start + time)
        draw.line((x, y, x, y + 5), _FAINT)
        draw.text((x, y + 10), f"{time * 1000:,.6g} ms", _FAINT, _font(13), anchor="mt")


def _ticks(scale: _Scale) -> Iterator[float]:
    """Return round times from the start, in seconds."""
    length = scale.end - scale.start
    rough = length * _TICK / scale.columns
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough)
    return (index * step for index in range(math.floor(length / step) + 1))
