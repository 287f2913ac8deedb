"""What a run takes: tensors of numbers that the wire can describe, told from everything else."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from repertory.models.errors import RepertoryError
from repertory.models.sidecar import DTYPES
from repertory.models.spec import Array
from repertory.transports.rpmsg.wire.messages import MAX_DIMS, MAX_INPUTS

from .errors import InputCountError, InputShapeError, InputTypeError

__all__ = ["as_array", "check_count", "checked_dtype", "checked_shape", "element_type"]


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


def as_array(source: object, *, any_number: bool = False) -> Array:
    """Return a tensor as a numpy array in this machine's byte order, without a copy where it can be.

    Args:
        source: an array of numpy or of this package, or what gives one by `__array__` or DLPack.
        any_number: let bool and longdouble through, for who converts them anyway.

    Raises:
        InputTypeError: it is none, or its elements are none that the wire has.
        InputShapeError: it has more than 6 extents.
    """
    array = _array(source)
    if not (any_number and array.dtype.kind in "biuf"):
        checked_dtype(array.dtype)
    checked_shape(array.shape)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


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
        InputShapeError: there are more than 6, or a negative one.
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


def _array(source: object) -> Array:
    if isinstance(source, np.ndarray):
        return cast("Array", source)
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
