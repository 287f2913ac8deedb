"""HPOC: channels that an output carries on the wire and no caller sees."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import numpy as np

from .codec import Channels, Shape
from .spec import Array

__all__ = ["DUMMY", "Hpoc"]

DUMMY: Final = -0.75
"""What simulated chips put there: no likely answer, and small, for it may share an exponent with answers."""


@final
@dataclass(frozen=True, slots=True)
class Hpoc:
    """Which channels of the wire are dummies.

    Attributes:
        shape: (h, w, z, c) on the wire.
        channels: indices of the wire's channels to drop.
    """

    shape: Shape
    channels: tuple[int, ...]

    @property
    def kept(self) -> Channels:
        """The channels that a caller sees; a slice where they lie together."""
        return _kept(self.shape[3], self.channels)

    def widen(self, array: Array) -> Array:
        """Return a caller's (h, w, z, c) with the dummies in it."""
        wide = np.full(self.shape, DUMMY, array.dtype)
        wide[..., self.kept] = array
        return wide


@lru_cache(maxsize=128)
def _kept(count: int, dropped: tuple[int, ...]) -> Channels:
    kept = np.delete(np.arange(count), dropped)
    together = len(kept) == kept[-1] - kept[0] + 1
    return slice(int(kept[0]), int(kept[-1]) + 1) if together else kept
