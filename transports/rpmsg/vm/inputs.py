"""What a run takes: tensors of numbers that the wire can describe, told from everything else."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from repertory.models.errors import RepertoryError
from repertory.models.sidecar import DTYPES
from repertory.models.spec import Array, Dim, TensorSpec
from repertory.transports.rpmsg.wire.messages import MAX_DIMS, MAX_INPUTS

from .errors import InputCountError, InputShapeError, InputTypeError

__all__ = [
    "Tensor",
    "as_array",
    "as_content",
    "check_count",
    "check_signature",
    "checked_dtype",
    "checked_shape",
    "described",
    "element_type",
]

_MOST_ELEMENTS: Final = (2**63 - 1) // 8  # of 8 bytes each, in numpy's arrays
_NAMED: Final = 8  # tensors that a message names


class Tensor(Protocol):
    """Something with an element type and a shape."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> npt.DTypeLike: ...


@runtime_checkable
class _Arrays(Protocol):
    def __array__(self, dtype: None = ..., copy: None = ...) -> Array: ...


@runtime_checkable
class _Dlpack(Protocol):
    def __dlpack__(self, *, stream: None = ...) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


def check_count(count: int) -> None:
    """Refuse a run of no inputs, or of more than the wire has.

    Raises:
        InputCountError: it is one.
    """
    if not 1 <= count <= MAX_INPUTS:
        raise InputCountError(f"{count} inputs: a run takes 1 to {MAX_INPUTS}")


def as_array(source: object) -> Array:
    """Return a tensor as a numpy array in this machine's byte order, without a copy where it can be.

    Args:
        source: an array of numpy or of this package, or what gives one by `__array__` or DLPack.

    Raises:
        InputTypeError: it is none, or its elements are none that the wire has.
        InputShapeError: it has more than 6 extents.
    """
    array = _array(source)
    checked_shape(array.shape)
    return array.astype(checked_dtype(array.dtype), copy=False)


def as_content(source: object) -> Array:
    """Likewise of what is copied and converted anyway: also lists, numbers, bool and longdouble.

    Raises:
        InputTypeError: it gives no array of numbers.
        InputShapeError: it has more than 6 extents.
    """
    array = _listed(source) if _is_listed(source) else _array(source)
    if array.dtype.kind not in "biuf":
        checked_dtype(array.dtype)
    checked_shape(array.shape)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def check_signature(inputs: Sequence[Tensor], wanted: Sequence[TensorSpec]) -> None:
    """Refuse inputs that a module does not take.

    Raises:
        InputCountError: there are more or fewer.
        InputTypeError: an element type is another.
        InputShapeError: a shape is.
    """
    if len(inputs) != len(wanted):
        raise InputCountError(f"{len(inputs)} inputs: the module takes {len(wanted)}: {_list(wanted)}")
    for place, (given, spec) in enumerate(zip(inputs, wanted, strict=True)):
        complaint = f"input {place} is {described([given])}: the module takes {spec}"
        if np.dtype(given.dtype) != spec.dtype:
            raise InputTypeError(complaint)
        if not _same(given.shape, spec.shape):
            raise InputShapeError(complaint)


def described(inputs: Sequence[Tensor]) -> str:
    """Return types and shapes for a message."""
    return _list([f"{np.dtype(given.dtype)}{list(given.shape)}" for given in inputs])


def checked_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return an element type in this machine's byte order.

    Raises:
        InputTypeError: the wire has no code for it.
    """
    if dtype.kind not in "iuf" or dtype.name not in DTYPES:
        hint = "; give uint8" if dtype.kind == "b" else ""
        raise InputTypeError(f"a tensor of {dtype}: the DSP takes {', '.join(DTYPES)}{hint}")
    return dtype.newbyteorder("=")


def checked_shape(shape: int | Iterable[int]) -> tuple[int, ...]:
    """Return extents as a tuple.

    Raises:
        InputShapeError: there are more than 6, a negative one, or one that no array has.
        InputTypeError: they are no integers.
    """
    try:
        extents = tuple(map(operator.index, shape if isinstance(shape, Iterable) else (shape,)))
    except TypeError as error:
        raise InputTypeError(f"{shape!r} is no shape: {error}") from error
    if len(extents) > MAX_DIMS:
        raise InputShapeError(f"{len(extents)} extents: the DSP takes up to {MAX_DIMS}")
    if min(extents, default=0) < 0:
        raise InputShapeError(f"an extent of {min(extents)}")
    if math.prod(extent for extent in extents if extent) > _MOST_ELEMENTS:
        raise InputShapeError(f"{list(extents)}: more elements than any memory has")
    return extents


def element_type(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return what a name or a numpy type stands for.

    Raises:
        InputTypeError: nothing, or what the wire has no code for.
    """
    try:
        return checked_dtype(np.dtype(dtype))
    except TypeError as error:
        if isinstance(error, InputTypeError):
            raise
        raise InputTypeError(f"{dtype!r} is no element type: {error}") from error


def _same(shape: tuple[int, ...], wanted: tuple[Dim, ...]) -> bool:
    if len(shape) != len(wanted):
        return False
    return all(isinstance(dim, str) or extent == dim for extent, dim in zip(shape, wanted, strict=True))


def _list(items: Sequence[object]) -> str:
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return ", ".join(map(str, items[:_NAMED])) + more


def _is_listed(source: object) -> bool:
    return isinstance(source, list | tuple | int | float)


def _listed(source: object) -> Array:
    try:
        return np.array(source)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, RepertoryError):
            raise
        raise InputTypeError(f"a {type(source).__name__} that gives no array: {error}") from error


def _array(source: object) -> Array:
    if isinstance(source, np.ma.MaskedArray):
        raise InputTypeError("a masked array: the DSP knows no mask; give array.filled(value)")
    if isinstance(source, np.ndarray):
        return np.asarray(cast("Array", source))
    try:
        if isinstance(source, _Arrays):
            return np.asarray(source)
        if isinstance(source, _Dlpack):
            return cast("Array", np.from_dlpack(source))
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        if isinstance(error, RepertoryError):
            raise
        raise InputTypeError(f"a {type(source).__name__} that gives no array: {error}") from error
    raise InputTypeError(f"a {type(source).__name__} is no tensor: give an array, or nd.array(...)")
