"""A picture of what each group did with its time: one lane a group, one colour a model."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import final

from repertory.runtime.timeline import Span

from .played import Fate, Played
from .svg import INK, Box, Picture, Text
from .waits import begins

__all__ = ["draw"]

_WIDTH, _MARGIN, _HEAD, _LANE, _GAP, _LABELS = 1600, 24, 60, 40, 14, 190
_LEGEND, _KEY = 22, 150
_WAITING, _GROUND = "#ffb3b3", "#f4f5f7"
_TRANSFER = "#8a9099"
_GOLDEN = 0.618034
_TICKS = 10
_THINNEST = 1.0


def draw(played: Played, *, title: str, seconds: float) -> Picture:
    """Draw the first seconds of a load that was played.

    A lane holds each model's frames in its colour, swaps dark, transfers grey; red is where the group did
    nothing though a request waited that it may serve. The last lane marks the ends of requests that were
    not answered in time.

    Args:
        played: by `run`.
        title: stands above.
        seconds: how much of it, from the beginning.
    """
    scale = _Scale(min(seconds, played.seconds))
    colours = {model.name: _colour(index) for index, model in enumerate(played.trace.models)}
    texts = [Text(_MARGIN, 34, title)]
    boxes: list[Box] = []
    for number, (address, spans) in enumerate(played.spans.items()):
        y = _HEAD + number * (_LANE + _GAP)
        texts.append(Text(_LABELS - 12, y + _LANE / 2 + 5, _short(address), "end"))
        boxes += scale.lane(y)
        boxes += scale.boxes(_waiting(played, number), y, lambda _: _WAITING, "idle, and work waits")
        boxes += scale.boxes(spans, y, lambda span: _fill(span, colours), "{0.model}: {0.kind}")
    y = _HEAD + len(played.spans) * (_LANE + _GAP)
    texts.append(Text(_LABELS - 12, y + _LANE / 2 + 5, "not on time", "end"))
    boxes += scale.lane(y)
    boxes += scale.boxes(_missed(played), y, lambda span: colours[span.model], "{0.model}: not on time")
    y += _LANE
    texts += scale.axis(y + 20)
    keys = [("swap", INK), ("transfer", _TRANSFER), ("idle, work waits", _WAITING), *colours.items()]
    height = _legend(keys, y + 40, boxes, texts)
    return Picture(_WIDTH, height, boxes, texts)


@final
class _Scale:
    """Seconds to pixels.

    Args:
        seconds: that are drawn, from 0 on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._unit = (_WIDTH - _MARGIN - _LABELS) / seconds

    def lane(self, y: float) -> list[Box]:
        return [Box(_LABELS, y, self._seconds * self._unit, _LANE, _GROUND)]

    def boxes(
        self, spans: Iterable[Span], y: float, colour: Callable[[Span], str], told: str
    ) -> Iterator[Box]:
        for span in _joined(spans, 0.5 / self._unit):
            if span.start < self._seconds:
                width = (min(span.end, self._seconds) - span.start) * self._unit
                x = _LABELS + span.start * self._unit
                title = f"{told.format(span)} {span.start:.4f} s to {span.end:.4f} s"
                yield Box(x, y, max(width, _THINNEST), _LANE, colour(span), title)

    def axis(self, y: float) -> Iterator[Text]:
        for tick in range(_TICKS + 1):
            time = self._seconds * tick / _TICKS
            yield Text(_LABELS + time * self._unit, y, f"{time:.4g} s", "middle")


def _fill(span: Span, colours: dict[str, str]) -> str:
    by_kind = {"swap": INK, "transfer": _TRANSFER}
    return by_kind.get(span.kind) or colours.get(span.model, _TRANSFER)


def _colour(index: int) -> str:
    """Return a colour for a model; neighbours differ much, and no hue comes twice."""
    red, green, blue = colorsys.hls_to_rgb(0.55 + index * _GOLDEN, (0.42, 0.55, 0.68)[index % 3], 0.65)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def _short(address: str) -> str:
    return address.partition("?")[0]


def _waiting(played: Played, group: int) -> Iterator[Span]:
    """Return when requests waited that a group may serve."""
    models = played.trace.models
    for request, begin in zip(played.requests, begins(played), strict=True):
        served = models[request.model].groups
        if served is None or group in served:
            yield Span("compute", "", request.arrival, min(begin, request.end))


def _missed(played: Played) -> Iterator[Span]:
    """Return the ends of requests that were not answered in time."""
    for request in played.requests:
        if request.fate is not Fate.ON_TIME:
            yield Span("compute", played.trace.models[request.model].name, request.end, request.end)


def _joined(spans: Iterable[Span], gap: float) -> Iterator[Span]:
    """Join neighbours of one kind and model that no eye could tell apart."""
    last: Span | None = None
    for span in sorted(spans, key=lambda span: span.start):
        if (
            last is not None
            and (span.kind, span.model) == (last.kind, last.model)
            and span.start <= last.end + gap
        ):
            last = Span(last.kind, last.model, last.start, max(last.end, span.end))
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _legend(keys: Sequence[tuple[str, str]], y: float, boxes: list[Box], texts: list[Text]) -> int:
    """Draw the keys in rows; return the height that the picture needs."""
    columns = (_WIDTH - _MARGIN - _LABELS) // _KEY
    for index, (name, colour) in enumerate(keys):
        x, top = _LABELS + index % columns * _KEY, y + index // columns * _LEGEND
        boxes.append(Box(x, top, 14, 14, colour))
        texts.append(Text(x + 20, top + 12, name))
    return round(y + -(-len(keys) // columns) * _LEGEND + _MARGIN / 2)
