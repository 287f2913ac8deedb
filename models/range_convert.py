"""Range conversion: what the host does to an input's numbers before their format.

A port that has it takes float32 from its callers, whatever its format. That simulated chips undo it before
the twin computes is our inference: a compiled model is made for converted numbers, its twin for a caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from .codec import FLOAT32, UINT8
from .errors import ArtifactError
from .spec import Array

__all__ = ["RangeConvert"]

_FLOAT32 = np.finfo(np.float32)


@final
@dataclass(frozen=True, slots=True)
class RangeConvert:
    """Shift first, then scale, then cast where the format holds integers; in float32.

    Raises:
        ArtifactError: float32 does not hold these, or the scale is 0.
    """

    shift: float
    scale: float

    def __post_init__(self) -> None:
        largest, smallest = float(_FLOAT32.max), float(_FLOAT32.tiny)
        if not (abs(self.shift) <= largest and smallest <= abs(self.scale) <= largest):
            raise ArtifactError(f"no range is converted by shift {self.shift} and scale {self.scale}")

    def apply(self, array: Array, native: np.dtype[Any]) -> Array:
        """Return float32 numbers converted to `native`, float32 or uint8.

        The cast to uint8 cuts fractions off, and saturates; of a NaN it makes 0.
        """
        with np.errstate(all="ignore"):
            converted: Array = np.add(array, np.float32(self.shift), dtype=FLOAT32)
            converted *= np.float32(self.scale)
        if native == UINT8:
            return np.fmin(np.fmax(converted, 0, out=converted), 255, out=converted).astype(native)
        return converted

    def undo(self, array: Array) -> Array:
        """Return the float32 numbers of which `apply` makes these, up to rounding."""
        with np.errstate(all="ignore"):
            numbers: Array = np.divide(array, np.float32(self.scale), dtype=FLOAT32)
            numbers -= np.float32(self.shift)
        return numbers
