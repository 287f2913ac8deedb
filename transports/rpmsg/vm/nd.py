"""Tensors as scripts for the reference know them: `nd.array(x)`, `out.numpy()`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt

from repertory.models.spec import Array

from .errors import InputShapeError, InputTypeError
from .inputs import as_content, checked_dtype, checked_shape, element_type

__all__ = ["HostArray", "NDArray", "array", "empty", "write"]


class NDArray(ABC):
    """A tensor of fixed shape and element type, in memory of this process or in that of the DSP.

    It is no numpy array: `numpy()` gives one.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Extents."""

    @property
    @abstractmethod
    def dtype(self) -> str:
        """Name of the element type, such as `float32`."""

    @abstractmethod
    def numpy(self) -> Array:
        """Return a copy."""

    @abstractmethod
    def copyfrom(self, source: object) -> Self:
        """Copy from a tensor, list or number of the same shape; its elements are converted. Returns self.

        Raises:
            InputShapeError: the shape is another.
            InputTypeError: `source` is no tensor of numbers.
        """

    @property
    def ndim(self) -> int:
        """Number of extents."""
        return len(self.shape)

    @property
    def device(self) -> str:
        """Where it lies for who reads it, as of numpy's arrays."""
        return "cpu"

    def asnumpy(self) -> Array:
        """Return a copy, under its older name."""
        return self.numpy()

    def copyto(self, target: NDArray) -> NDArray:
        """Copy into another tensor of the same shape, and return that.

        Raises:
            InputTypeError: it is no tensor of this package.
            InputShapeError, VmError: as its `copyfrom`.
        """
        if not isinstance(target, NDArray):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputTypeError(f"a {type(target).__name__} is no NDArray to copy to")
        return target.copyfrom(self)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:  # noqa: FBT001
        if copy is False:
            raise ValueError("this tensor gives numpy copies only")
        return self.numpy().astype(dtype or self.dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """Give a copy to whoever speaks DLPack."""
        if options.get("copy") is False:
            raise BufferError("this tensor gives copies only")
        return self.numpy().__dlpack__(**{**options, "copy": None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # a CPU

    def __getitem__(self, key: Any) -> Any:
        return self.numpy()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.numpy())

    def __reduce__(self) -> tuple[Any, ...]:
        """Let `copy` and `pickle` make a tensor with memory of its own."""
        return HostArray, (self.numpy(),)

    def __setitem__(self, key: object, value: object) -> None:
        if key != slice(None) and key is not Ellipsis:
            raise InputShapeError("a tensor is written as a whole: tensor[:] = x")
        self.copyfrom(value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.dtype}{list(self.shape)}>"


@final
class HostArray(NDArray):
    """A tensor with memory of its own, which lives as long as anything refers to it.

    Args:
        content: the elements; not copied.
    """

    def __init__(self, content: Array) -> None:
        self._content = content

    @property
    def shape(self) -> tuple[int, ...]:
        return self._content.shape

    @property
    def dtype(self) -> str:
        return self._content.dtype.name

    def numpy(self) -> Array:
        return self._content.copy()

    def copyfrom(self, source: object) -> Self:
        write(self._content, source)
        return self

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:  # noqa: FBT001
        wanted: Array = np.array(self._content, dtype=dtype, copy=copy)
        return wanted


def write(target: Array, source: object) -> None:
    """Copy into `target` what has its shape.

    Raises:
        InputShapeError, InputTypeError: as `NDArray.copyfrom`.
    """
    content = as_content(source)
    if content.shape != target.shape:
        raise InputShapeError(f"{list(content.shape)} does not go into a tensor of {list(target.shape)}")
    np.copyto(target, content, casting="unsafe")


def array(source: object, device: object = None) -> NDArray:  # noqa: ARG001  (scripts give it)
    """Return a new tensor with a copy of `source`; `device` is taken and ignored: it lies on the host.

    Lists and numbers have the element type that numpy gives them: float64 and int64.

    Raises:
        InputShapeError, InputTypeError: no DSP takes such a tensor.
    """
    content = as_content(source)
    return HostArray(content.astype(checked_dtype(content.dtype), order="C"))


def empty(
    shape: int | tuple[int, ...],
    dtype: npt.DTypeLike = "float32",
    device: object = None,  # noqa: ARG001
) -> NDArray:
    """Return a new tensor of zeros; `device` is taken and ignored.

    Raises:
        InputShapeError, InputTypeError: no DSP takes such a tensor.
    """
    return HostArray(np.zeros(checked_shape(shape), element_type(dtype)))
