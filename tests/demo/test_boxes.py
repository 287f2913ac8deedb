from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from repertory.runtime.demo.boxes import Floats, best, moved, squared


def _boxes(*rows: tuple[float, float, float, float]) -> Floats:
    return np.array(rows, np.float32).reshape(-1, 4)


def test_offsets_are_shares_of_the_sides() -> None:
    boxes, offsets = _boxes((10, 20, 30, 60)), _boxes((0.5, -0.5, 0, 0.25))
    np.testing.assert_array_equal(moved(boxes, offsets), _boxes((20, 0, 30, 70)))


def test_square_keeps_the_centre() -> None:
    np.testing.assert_array_equal(squared(_boxes((10, 20, 30, 60))), _boxes((0, 20, 40, 60)))


@given(st.lists(st.tuples(*[st.floats(-100, 700, width=32)] * 4)))
def test_squares_are_never_empty(rows: list[tuple[float, float, float, float]]) -> None:
    left, top, right, bottom = squared(_boxes(*rows)).T
    np.testing.assert_array_equal(right - left, bottom - top)
    assert (right - left >= 1).all()


def test_best_of_overlapping_boxes_stays() -> None:
    boxes = _boxes((0, 0, 10, 10), (1, 0, 11, 10), (50, 50, 60, 60))
    scores = np.array([0.8, 0.9, 0.7], np.float32)
    assert best(boxes, scores, overlap=0.5).tolist() == [1, 2]
    assert best(boxes, scores, overlap=0.9).tolist() == [1, 0, 2]


def test_nested_box_goes_only_where_asked() -> None:
    boxes, scores = _boxes((0, 0, 10, 10), (2, 2, 6, 6)), np.array([0.9, 0.8], np.float32)
    assert best(boxes, scores, overlap=0.7).tolist() == [0, 1]
    assert best(boxes, scores, overlap=0.7, nested=True).tolist() == [0]


def test_best_of_none_is_none() -> None:
    assert best(_boxes(), np.empty(0, np.float32), overlap=0.5).tolist() == []
