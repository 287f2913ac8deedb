"""Pictures of rectangles and lines of text, written as SVG, which every browser shows."""

from __future__ import annotations

from typing import Final, NamedTuple, final
from xml.sax.saxutils import escape

__all__ = ["INK", "Box", "Picture", "Text", "svg"]

INK: Final = "#262a30"
"""The colour of text, and of what is dark."""


@final
class Box(NamedTuple):
    """A filled rectangle, in pixels; `title` says what it stands for."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str = ""


@final
class Text(NamedTuple):
    """A line of text: its left, middle or right end at x, its base line at y."""

    x: float
    y: float
    text: str
    anchor: str = "start"


@final
class Picture(NamedTuple):
    """What is drawn, in order; sizes in pixels."""

    width: int
    height: int
    boxes: list[Box]
    texts: list[Text]


def svg(picture: Picture) -> str:
    """Write a picture as SVG."""
    width, height, boxes, texts = picture
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="14">',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *(_svg_box(box) for box in boxes),
            *(
                f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}" fill="{INK}">{escape(text)}</text>'
                for x, y, text, anchor in texts
            ),
            "</svg>\n",
        ]
    )


def _svg_box(box: Box) -> str:
    x, y, width, height, colour, title = box
    head = f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" fill="{colour}"'
    return f"{head}><title>{escape(title)}</title></rect>" if title else f"{head}/>"
