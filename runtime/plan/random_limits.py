"""Limits drawn at random for a load: shares, and how long each model may wait for a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from .arrivals import random_source
from .trace import Trace

__all__ = ["with_random_limits"]

_STREAM: Final = 300  # apart from what draws loads
_WEIGHTS: Final = (0.1, 1.0, 1.0, 3.0)
_MAX_WAITS: Final = (0.3, 0.5, 1.0, 1.0)


def with_random_limits(trace: Trace, seed: int) -> Trace:
    """Return the load with a weight of 0.1, 1 or 3 and a `max_wait` of 0.3, 0.5 or 1 s for each model.

    Raises:
        ConfigError: the seed is no whole number from 0 on.
    """
    rng = random_source(seed, _STREAM)
    models = tuple(
        msgspec.structs.replace(model, weight=_one_of(rng, _WEIGHTS), max_wait=_one_of(rng, _MAX_WAITS))
        for model in trace.models
    )
    return msgspec.structs.replace(trace, models=models)


def _one_of(rng: np.random.Generator, values: Sequence[float]) -> float:
    return values[int(rng.integers(len(values)))]
