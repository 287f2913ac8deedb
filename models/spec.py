"""What goes into a network and what comes out: names, shapes, dtypes, layouts, quantisation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt

from .errors import InvalidInput

__all__ = ["Array", "Dim", "Quantisation", "TensorSpec"]

Array: TypeAlias = npt.NDArray[Any]
"""Any numpy array; the spec beside it says which dtype and shape."""

_NARROW = 2  # bytes of an integer with which float32 reckons exactly
_EXACT = 1 << 20  # and of a zero point

Dim: TypeAlias = int | str
"""A fixed extent, or the name of one that is known only from the tensor (`N`)."""


@final
@dataclass(frozen=True, slots=True)
class Quantisation:
    """Affine quantisation of a whole tensor: real = (stored - zero_point) * scale.

    Attributes:
        scale: not 0.
        zero_point: what stands for 0.
        limits: the least and the greatest integer, where that is not those of the dtype.
    """

    scale: float
    zero_point: int = 0
    limits: tuple[int, int] | None = None

    def quantise(self, real: Array, dtype: np.dtype[Any]) -> Array:
        """Round half to even and saturate to `limits`, else to the range of `dtype`.

        Raises:
            InvalidInput: there is a NaN.
        """
        info = np.iinfo(dtype)
        low, high = self.limits or (info.min, info.max)
        working = self._working(dtype)
        with np.errstate(over="ignore"):
            stored: Array = np.rint(np.divide(real, self.scale, dtype=working))
        np.add(stored, self.zero_point, out=stored)
        if np.isnan(stored).any():
            raise InvalidInput(f"a NaN came, and no {dtype} stands for one")
        saturated: Array = np.clip(stored, low, high)
        return saturated.astype(dtype)

    def dequantise(self, stored: Array) -> Array:
        """Return float32."""
        difference: Array = np.subtract(stored, self.zero_point, dtype=self._working(stored.dtype))
        with np.errstate(over="ignore"):
            return np.multiply(difference, self.scale, out=difference).astype(np.float32, copy=False)

    def _working(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the float that holds every difference to the zero point."""
        exact = dtype.itemsize <= _NARROW and abs(self.zero_point) <= _EXACT
        return np.dtype(np.float32 if exact else np.float64)


@final
@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a network, as the caller sees it.

    Attributes:
        name: the tensor's name in the model file.
        shape: extents in the caller's order; a string stands for an extent that the tensor decides.
        dtype: the native element type: a tensor of it passes untouched.
        layout: axis letters such as `NHWC`, or empty where the file does not tell.
        quantisation: set where stored integers stand for reals; float32 tensors are then converted.
        limits: the least and the greatest native integer, where that is not those of the dtype.
    """

    name: str
    shape: tuple[Dim, ...]
    dtype: np.dtype[Any]
    layout: str = ""
    quantisation: Quantisation | None = None
    limits: tuple[int, int] | None = None

    @property
    def fixed(self) -> bool:
        """Whether every extent is known."""
        return all(isinstance(dim, int) for dim in self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of one tensor; a symbolic extent counts as 1."""
        return math.prod(dim for dim in self.shape if isinstance(dim, int)) * self.dtype.itemsize

    def check(self, value: object) -> Array:
        """Return `value` as an array that this spec admits, without a copy where its dtype is native.

        Accepts an ndarray and anything that offers `__array__` or DLPack.

        Raises:
            InvalidInput: names this tensor, what came, and what was wanted.
        """
        array = cast("Array", value) if isinstance(value, np.ndarray) else self._foreign(value)
        if not self._admits(array.shape):
            raise InvalidInput(f"{self.name}: shape {array.shape} came, {self} is wanted")
        if array.dtype == self.dtype:
            self._check_limits(array)
            return array
        if self.quantisation is not None and array.dtype == np.float32:
            return self.quantisation.quantise(array, self.dtype)
        wanted = f"{self.dtype} or float32" if self.quantisation else str(self.dtype)
        raise InvalidInput(f"{self.name}: dtype {array.dtype} came, {wanted} is wanted")

    def _check_limits(self, array: Array) -> None:
        if self.limits is None or not array.size:
            return
        low, high = self.limits
        least, most = int(array.min()), int(array.max())
        if least < low or most > high:
            raise InvalidInput(f"{self.name}: {least} to {most} came, it holds {low} to {high}")

    def _foreign(self, value: object) -> Array:
        try:
            if hasattr(value, "__dlpack__"):
                return np.from_dlpack(cast("Any", value))
            if hasattr(value, "__array__"):
                return np.asarray(value)
        except Exception as error:
            raise InvalidInput(
                f"{self.name}: the {type(value).__name__} could not be read as an array: {error}"
            ) from error
        raise InvalidInput(f"{self.name}: a {type(value).__name__} came, an array of {self} is wanted")

    def _admits(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == len(self.shape) and all(
            isinstance(want, str) or have == want for have, want in zip(shape, self.shape, strict=True)
        )

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
