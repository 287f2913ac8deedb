"""Stretches of time, many at once: how long they last together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from repertory.runtime.timeline import Span

__all__ = ["Stretches", "length", "stretches"]

Stretches: TypeAlias = npt.NDArray[np.float64]
"""Starts and ends in seconds: float64[n, 2], in any order; they may overlap."""


def stretches(pairs: Iterable[tuple[float, float] | Span]) -> Stretches:
    """Put starts and ends, or spans, into one array."""
    plain = [(each.start, each.end) if isinstance(each, Span) else each for each in pairs]
    return np.array(plain, np.float64).reshape(-1, 2)


def length(*several: Stretches, until: float) -> float:
    """Return how many of the seconds from 0 to `until` lie in at least one stretch."""
    found = np.concatenate(several).clip(0.0, until)
    if not found.size:
        return 0.0
    starts, ends = found[np.argsort(found[:, 0])].T
    reached = np.maximum.accumulate(ends)
    before = np.concatenate(([0.0], reached[:-1]))
    return float(np.maximum(0.0, ends - np.maximum(starts, before)).sum())
