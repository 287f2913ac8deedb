"""Labelled crops of photographs, and what two real networks say of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from .support import Floats

__all__ = ["FACES", "PROBABILITIES", "SIDES", "crops", "faces", "normalised"]

SIDES = {"rnet": 24, "onet": 48}
PROBABILITIES = {"rnet": "softmax_1", "onet": "softmax_2"}
FACES = 100


@cache
def crops() -> list[Image.Image]:
    """scikit-image's `lfw_subset`: 25 x 25, grey; the first hundred show a face, the second none."""
    spec = find_spec("skimage")
    assert spec is not None
    assert spec.submodule_search_locations
    grey = np.load(Path(spec.submodule_search_locations[0]) / "data" / "lfw_subset.npy")
    return [Image.fromarray(np.rint(crop * 255).astype(np.uint8)).convert("RGB") for crop in grey]


def normalised(crop: Image.Image, side: int) -> Floats:
    """MTCNN's own preprocessing; its networks were trained with height and width swapped."""
    pixels = np.asarray(crop.resize((side, side), Image.Resampling.BILINEAR), np.float32)
    swapped = ((pixels - np.float32(127.5)) / np.float32(128)).transpose(1, 0, 2)
    return np.ascontiguousarray(swapped[np.newaxis])


def faces(answers: Sequence[dict[str, Floats]], name: str) -> list[bool]:
    """Which crops show a face, as network `name` sees it."""
    return [bool(answer[PROBABILITIES[name]][0, 1] > 0.5) for answer in answers]
