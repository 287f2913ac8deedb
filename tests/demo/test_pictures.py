from __future__ import annotations

import numpy as np
import pytest

from repertory.runtime.demo.cascade import Face
from repertory.runtime.demo.pictures import annotate, timeline
from repertory.runtime.timeline import Kind, Span

SWAP, TRANSFER, COMPUTE, HATCH = (213, 94, 0), (0, 114, 178), (0, 148, 108), (203, 207, 214)
FACE = Face(60, 80, 100, 120, 0.987, ((90, 120), (130, 120), (110, 145), (92, 170), (128, 170)))


def _share(pixels: object, colour: tuple[int, int, int]) -> float:
    return float((np.asarray(pixels) == colour).all(axis=-1).mean())


def test_annotation_draws_on_a_copy() -> None:
    photo = np.full((300, 200, 3), 128, np.uint8)
    picture = annotate(photo, [FACE])
    assert picture.size == (200, 300)
    assert (photo == 128).all()


def test_annotation_marks_the_box_and_the_landmarks_and_leaves_the_rest() -> None:
    before = np.full((300, 200, 3), 128, np.uint8)
    changed = (np.asarray(annotate(before, [FACE])) != before).any(axis=-1)
    assert changed[140, 60]
    assert changed[200, 100]
    assert all(changed[int(y), int(x)] for x, y in FACE.landmarks)
    assert not changed[:50].any()
    assert not changed[210:].any()
    assert not changed[90:110, 90:150].any()


def test_annotation_of_a_face_at_the_edge_keeps_its_label_inside() -> None:
    face = Face(-20, -10, 100, 120, 0.9, FACE.landmarks)
    picture = np.asarray(annotate(np.full((300, 200, 3), 128, np.uint8), [face]))
    assert _share(picture[:9, :30], (255, 214, 0)) > 0.5


def test_annotation_without_faces_is_the_photo() -> None:
    photo = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    np.testing.assert_array_equal(annotate(photo, []), photo)


def _row(spans: list[Span], kind: Kind) -> np.ndarray:
    picture = np.asarray(timeline(spans, title="a device", width=1000))
    top = 78 + 42 * ("swap", "transfer", "compute").index(kind)
    return picture[top + 2 : top + 32, 100:976]


@pytest.mark.parametrize(("kind", "colour"), [("swap", SWAP), ("transfer", TRANSFER), ("compute", COMPUTE)])
def test_span_fills_its_part_of_its_row(kind: Kind, colour: tuple[int, int, int]) -> None:
    spans = [Span(kind, "", 10.0, 10.5), Span("compute", "", 11.0, 11.0)]
    row = _row(spans, kind)
    assert _share(row[:, :350], colour) == 1
    assert _share(row[:, -420:-2], colour) == 0
    assert _share(row[:, -420:], HATCH) > 0.1


def test_rows_follow_the_models() -> None:
    two = [Span("compute", name, at, at + 1) for at, name in enumerate(("b", "a"))]
    assert timeline(two, title="").height - timeline(two[:1], title="").height == 42


def test_thousands_of_spans_show_how_much_they_fill() -> None:
    def row(filled: float) -> float:
        spans = [Span("compute", "m", at * 0.001, (at + filled) * 0.001) for at in range(20_000)]
        return float(_row(spans, "compute")[..., 0].mean())

    assert row(0.1) > row(0.5) + 30 > row(0.9) + 60


def test_a_short_span_in_a_long_time_is_seen() -> None:
    spans = [Span("transfer", "m", 500.0, 500.000001), Span("swap", "m", 0.0, 1000.0)]
    columns = (_row(spans, "transfer") != _row(spans[1:], "transfer")).any(axis=(0, 2))
    assert columns.sum() in (1, 2)


def test_no_spans_make_an_idle_picture() -> None:
    picture = timeline([], title="nothing", width=800)
    assert picture.width == 800
    assert _share(picture, HATCH) > 0.05
