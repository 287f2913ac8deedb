"""Results that lie in the DSP's memory, and know when the next run has overwritten it."""

from __future__ import annotations

import operator
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from numbers import Number
from typing import Any, Final, SupportsIndex, TypeVar, cast, final

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from repertory.models.spec import Array

from .errors import StaleView, VmClosed

__all__ = ["Lease", "ResultView"]

_HIDDEN: Final = frozenset({"base", "ctypes", "data", "flags", "resize", "setflags"})  # give the bare memory
_WHOLE: Final = frozenset({"flat"})  # likewise, and are useful on a copy

T = TypeVar("T")


@final
class Lease:
    """The right to read one run's result, until the next run or the end of the connection, in one process."""

    def __init__(self) -> None:
        self._process = os.getpid()
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

    @property
    def ended(self) -> bool:
        """Whether nobody may read any more."""
        return bool(self._why) or os.getpid() != self._process

    def check(self) -> None:
        """Raise StaleView once the lease has ended, and VmClosed in a forked process."""
        if os.getpid() != self._process:
            raise VmClosed("this result is another process's: a fork cannot use its memory")
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

    def read(self, reading: Callable[[Array], T]) -> T:
        """Return what somebody makes of the array, if it still was there when that was made."""
        made = reading(self.array())
        self.lease.check()
        return made


@final
class ResultView(NDArrayOperatorsMixin):
    """A result in the DSP's memory that is used as a numpy array, read-only.

    Every access looks whether the result is still there, before it reads and again afterwards, and raises
    StaleView after the next run or `close`, VmClosed in a forked process. What shares its memory (a slice, a
    transpose) is such a view too; what is computed from it is an ordinary array. `numpy.asarray(view)`,
    `view.numpy()` and DLPack give copies. Only `numpy.asarray(view, copy=False)` gives the memory itself:
    nothing warns of what the next run writes there. It stays mapped as long as the array lives, and the DSP's
    carveout stays taken.
    """

    __slots__ = ("_cell",)

    def __init__(self, cell: _Cell) -> None:
        self._cell = cell

    @property
    def stale(self) -> bool:
        """Whether the result is gone."""
        return self._cell.lease.ended

    def numpy(self) -> Array:
        """Return a copy."""
        return self._cell.read(np.copy)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:  # noqa: FBT001
        if copy is False:
            return self._cell.read(lambda held: np.array(held, dtype=dtype, copy=False))
        return self._cell.read(lambda held: held.astype(dtype or held.dtype, copy=True))

    def __dlpack__(self, **options: Any) -> Any:
        given = self._cell.array() if options.get("copy") is False else self.numpy()
        return given.__dlpack__(**{**options, "copy": None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # a CPU

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        call: Callable[..., Any] = getattr(ufunc, method)
        return self._called(call, inputs, options)

    def __array_function__(
        self, func: Callable[..., Any], types: object, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        if any(map(_is_callback, (*args, *kwargs.values()))):
            args, kwargs = _replaced((args, dict(kwargs)), ResultView.numpy)
        return self._called(func, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in _HIDDEN:
            raise AttributeError(f"a result in the DSP's memory has no {name!r}")
        value = self._cell.read(lambda held: getattr(held.copy() if name in _WHOLE else held, name))
        if not callable(value):
            return _wrapped(value, [self])
        return partial(self._method, name)

    def __getitem__(self, key: Any) -> Any:
        return self._called(operator.getitem, (self, key), {})

    def __setitem__(self, key: object, value: object) -> None:
        self._cell.array()
        raise ValueError("a result in the DSP's memory is read-only")

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __len__(self) -> int:
        return self._cell.read(len)

    def __contains__(self, item: object) -> bool:
        return bool(self._called(_contains, (self, item), {}))

    def __bool__(self) -> bool:
        return self._cell.read(bool)

    def __int__(self) -> int:
        return self._cell.read(int)

    def __float__(self) -> float:
        return self._cell.read(float)

    def __complex__(self) -> complex:
        return self._cell.read(complex)

    def __index__(self) -> int:
        return self._cell.read(operator.index)

    def __format__(self, spec: str) -> str:
        return self._cell.read(lambda held: format(held, spec))

    def __str__(self) -> str:
        return self._cell.read(str)

    def __repr__(self) -> str:
        return "<a result that is gone>" if self.stale else f"ResultView({self._cell.read(repr)})"

    def __copy__(self) -> Array:
        return self.numpy()

    def __deepcopy__(self, memo: object) -> Array:
        return self.numpy()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return self.numpy().__reduce_ex__(protocol)

    def _method(self, name: str, *args: Any, **options: Any) -> Any:
        def method(held: Array, *rest: Any, **more: Any) -> Any:
            return getattr(held, name)(*rest, **more)

        return self._called(method, (self, *args), options)

    def _called(self, call: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        given = (tuple(args), dict(options))
        views: list[ResultView] = []
        _replaced(given, views.append)
        bare_args, bare_options = _bare(given)
        value = call(*bare_args, **bare_options)
        for view in views:  # they may have gone meanwhile
            view._cell.lease.check()
        return _wrapped(value, views)


def _wrapped(value: Any, views: Sequence[ResultView]) -> Any:
    """Wrap what shares memory with one of the views, also in tuples and lists."""
    if isinstance(value, np.ndarray):
        array = cast("Array", value)
        cells = [view._cell for view in views]  # pyright: ignore[reportPrivateUsage]
        shared = (cell for cell in cells if np.may_share_memory(array, cell.array()))
        return cell.lease.view(array) if (cell := next(shared, None)) else array
    if type(value) in {tuple, list}:
        return type(value)(_wrapped(each, views) for each in value)
    return value


def _contains(held: Array, item: Any) -> bool:
    return bool((held == item).any())


def _is_callback(value: object) -> bool:
    """Whether a function that gets it may call it with parts of an array, which would be the bare memory."""
    return callable(value) and not (isinstance(value, type) and issubclass(value, (np.generic, Number)))


def _bare(value: Any) -> Any:
    """Replace views by their arrays, if these are still there."""
    return _replaced(value, lambda view: view._cell.array())  # pyright: ignore[reportPrivateUsage]


def _replaced(value: Any, by: Callable[[ResultView], Any]) -> Any:
    """Replace views, also in tuples, lists and dicts."""
    if isinstance(value, ResultView):
        return by(value)
    if type(value) in {tuple, list}:
        return type(value)(_replaced(each, by) for each in value)
    if type(value) is dict:
        return {key: _replaced(held, by) for key, held in cast("dict[str, Any]", value).items()}
    return value
