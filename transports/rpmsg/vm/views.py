"""Results that lie in the DSP's memory, and know when the next run has overwritten it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, SupportsIndex, cast, final

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from repertory.models.spec import Array

from .errors import StaleView

__all__ = ["Lease", "ResultView"]

_HIDDEN: Final = frozenset({"base", "ctypes", "data", "setflags"})  # would give the bare memory
_WHOLE: Final = frozenset({"flat"})  # likewise, and are useful on a copy


@final
class Lease:
    """The right to read one run's result, until the next run or the end of the connection."""

    def __init__(self) -> None:
        self._cells: weakref.WeakSet[_Cell] = weakref.WeakSet()
        self._why = ""

    def view(self, content: Array) -> ResultView:
        """Return a view of an array that lies in the result's memory."""
        self.check()
        cell = _Cell(content, self)
        self._cells.add(cell)
        return ResultView(cell)

    def end(self, why: str) -> None:
        """Let every access raise from now on, and let go of the memory. Any number of times."""
        self._why = self._why or why
        for cell in list(self._cells):
            cell.content = None

    def check(self) -> None:
        """Raise StaleView once the lease has ended."""
        if self._why:
            raise StaleView(f"this result is gone: {self._why}; use vm[...](...), or copy it in time")


@final
class _Cell:
    """An array, until its lease ends."""

    __slots__ = ("__weakref__", "content", "lease")

    def __init__(self, content: Array, lease: Lease) -> None:
        self.content: Array | None = content
        self.lease = lease

    def array(self) -> Array:
        content = self.content
        self.lease.check()
        assert content is not None, "the lease has not ended"
        return content


@final
class ResultView(NDArrayOperatorsMixin):
    """A result in the DSP's memory that is used as a numpy array, read-only.

    Every access looks whether the result is still there, and raises StaleView after the next run or
    `close`. What shares its memory (a slice, a transpose) is such a view too; what is computed from it is an
    ordinary array. `numpy.asarray(view)`, `view.numpy()` and DLPack give copies. Only
    `numpy.asarray(view, copy=False)` gives the memory itself: nothing warns of what the next run writes
    there. It stays mapped as long as the array lives, and the DSP's carveout stays taken.
    """

    __slots__ = ("_cell",)

    def __init__(self, cell: _Cell) -> None:
        self._cell = cell

    @property
    def stale(self) -> bool:
        """Whether the result is gone."""
        return self._cell.content is None

    def numpy(self) -> Array:
        """Return a copy."""
        return self._cell.array().copy()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:  # noqa: FBT001
        held = self._cell.array()
        if copy is not False:
            return held.astype(dtype or held.dtype, copy=True)
        bare: Array = np.array(held, dtype=dtype, copy=False)
        return bare

    def __dlpack__(self, **options: Any) -> Any:
        held = self._cell.array()
        given = held if options.get("copy") is False else held.copy()
        return given.__dlpack__(**{**options, "copy": None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # a CPU

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        call: Callable[..., Any] = getattr(ufunc, method)
        return self._called(call, inputs, options)

    def __array_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        return self._called(func, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in _HIDDEN:
            raise AttributeError(f"a result in the DSP's memory has no {name!r}")
        held = self._cell.array()
        value = getattr(held.copy() if name in _WHOLE else held, name)
        if not callable(value):
            return self._wrapped(value)
        return partial(self._method, name)

    def __getitem__(self, key: Any) -> Any:
        return self._wrapped(self._cell.array()[_bare(key)])

    def __setitem__(self, key: object, value: object) -> None:
        self._cell.array()
        raise ValueError("a result in the DSP's memory is read-only")

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __len__(self) -> int:
        return len(self._cell.array())

    def __contains__(self, item: object) -> bool:
        return bool((self._cell.array() == _bare(item)).any())

    def __bool__(self) -> bool:
        return bool(self._cell.array())

    def __int__(self) -> int:
        return int(self._cell.array())

    def __float__(self) -> float:
        return float(self._cell.array())

    def __index__(self) -> int:
        return self._cell.array().__index__()

    def __format__(self, spec: str) -> str:
        return format(self._cell.array(), spec)

    def __str__(self) -> str:
        return str(self._cell.array())

    def __repr__(self) -> str:
        return "<a result that is gone>" if self.stale else f"ResultView({self._cell.array()!r})"

    def __copy__(self) -> Array:
        return self.numpy()

    def __deepcopy__(self, memo: object) -> Array:
        return self.numpy()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return self.numpy().__reduce_ex__(protocol)

    def _method(self, name: str, *args: Any, **options: Any) -> Any:
        return self._called(getattr(self._cell.array(), name), args, options)

    def _called(self, call: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        return self._wrapped(call(*_bare(tuple(args)), **_bare(dict(options))))

    def _wrapped(self, value: Any) -> Any:
        """Wrap what shares memory with this result, also in tuples and lists."""
        if isinstance(value, np.ndarray):
            array = cast("Array", value)
            return self._cell.lease.view(array) if np.may_share_memory(array, self._cell.array()) else array
        if type(value) in {tuple, list}:
            return type(value)(map(self._wrapped, value))
        return value


def _bare(value: Any) -> Any:
    """Replace views by their arrays, also in tuples, lists and dicts."""
    if isinstance(value, ResultView):
        return value._cell.array()  # pyright: ignore[reportPrivateUsage]
    if type(value) in {tuple, list}:
        return type(value)(map(_bare, value))
    if type(value) is dict:
        return {key: _bare(held) for key, held in cast("dict[str, Any]", value).items()}
    return value
