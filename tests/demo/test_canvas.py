from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repertory.runtime.demo.boxes import Floats
from repertory.runtime.demo.canvas import CANVAS, CELL, STRIDE, layout
from repertory.runtime.demo.cascade import LARGEST, MIN_FACE

from .nets import DirectNets

LENGTHS = st.integers(1, LARGEST)


@given(LENGTHS, LENGTHS)
def test_tiles_are_aligned_and_do_not_overlap(height: int, width: int) -> None:
    taken = np.zeros((8, *CANVAS), np.int8)
    for tile in layout(height, width, smallest=MIN_FACE):
        assert tile.top % STRIDE == tile.left % STRIDE == 0
        place = taken[tile.canvas, tile.top : tile.top + tile.height, tile.left : tile.left + tile.width]
        assert place.shape == (tile.height, tile.width)
        place += 1
    assert taken.max() <= 1


@given(LENGTHS, LENGTHS)
def test_all_scales_of_a_photo_fit_on_one_canvas(height: int, width: int) -> None:
    assert {tile.canvas for tile in layout(height, width, smallest=MIN_FACE)} <= {0}


def test_more_canvases_are_begun_where_one_is_full() -> None:
    tiles = layout(LARGEST, LARGEST, smallest=30)
    assert {tile.canvas for tile in tiles} == {0, 1}


@pytest.mark.parametrize("side", [MIN_FACE - 1, MIN_FACE])
def test_a_photo_smaller_than_a_face_has_no_scale(side: int) -> None:
    assert len(layout(side, 640, smallest=MIN_FACE)) == (side == MIN_FACE)


async def test_cells_see_on_a_canvas_what_they_see_alone() -> None:
    nets = DirectNets()
    random = np.random.default_rng(1)
    canvas = np.zeros((1, CANVAS[1], CANVAS[0], 3), np.float32)
    tiles = layout(427, 640, smallest=MIN_FACE)
    alone: list[Floats] = [
        random.uniform(-1, 1, (1, tile.width, tile.height, 3)).astype(np.float32) for tile in tiles
    ]
    for tile, pixels in zip(tiles, alone, strict=True):
        canvas[:, tile.left : tile.left + tile.width, tile.top : tile.top + tile.height] = pixels
    _, together = await nets.pnet(canvas)
    for tile, pixels in zip(tiles, alone, strict=True):
        _, expected = await nets.pnet(pixels)
        columns, rows = (tile.width - CELL) // STRIDE + 1, (tile.height - CELL) // STRIDE + 1
        left, top = tile.left // STRIDE, tile.top // STRIDE
        found = together[:, left : left + columns, top : top + rows]
        np.testing.assert_allclose(found, expected[:, :columns, :rows], atol=1e-6)
