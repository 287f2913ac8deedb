"""Results in the DSP's memory behave as arrays while they are there, and raise afterwards."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from repertory.models.spec import Array
from repertory.transports.rpmsg.vm.errors import StaleView
from repertory.transports.rpmsg.vm.views import Lease, ResultView

from .support import floats


def into(write: Callable[[Array, Any], Any], view: Any) -> Array:
    """Write a view into an array."""
    held: Array = np.zeros((2, 3))
    write(held, view)
    return held


def add_to(held: Array, values: Any) -> None:
    held += values


READS: dict[str, Callable[[Any], Any]] = {
    "add": lambda view: view + 1,
    "radd": lambda view: 1 + view,
    "array first": lambda view: np.ones((2, 3)) * view,
    "matmul": lambda view: view @ view.T,
    "compare": lambda view: view > 0,
    "power": lambda view: abs(view) ** 0.5,
    "ufunc": np.exp,
    "reduce": lambda view: np.add.reduce(view, axis=1),
    "method": lambda view: view.argmax(),
    "axis": lambda view: view.sum(axis=0, keepdims=True),
    "function": lambda view: np.concatenate([view, view[:1]], axis=0),
    "where": lambda view: np.where(view > 0, view, 0),
    "stack": lambda view: np.stack((view, view)),
    "split": lambda view: np.split(view, 3, axis=1),
    "sort": lambda view: np.sort(view, axis=None),
    "index": lambda view: view[1, 2],
    "slice": lambda view: view[:, 1:],
    "mask": lambda view: view[view > 0],
    "by a list": lambda view: view[[0, 0]],
    "by itself": lambda view: view[view.argsort(axis=1)[:, 0].astype(int) % 2],
    "transpose": lambda view: view.T,
    "reshape": lambda view: view.reshape(3, 2),
    "ravel": np.ravel,
    "flat": lambda view: list(view.flat),
    "cast": lambda view: view.astype(np.float64),
    "other bits": lambda view: view.view(np.uint32),
    "rows": lambda view: [row.sum() for row in view],
    "unpack": lambda view: [*view],
    "length": len,
    "contains": lambda view: view[0, 0] in view,
    "shape": lambda view: (view.shape, view.dtype, view.ndim, view.size, view.nbytes),
    "float": lambda view: float(view[0, 0]),
    "of one": lambda view: [kind(view[:1, 0].reshape(())) for kind in (float, int, bool, complex)],
    "asarray": np.asarray,
    "to float64": lambda view: np.asarray(view, dtype=np.float64),
    "array": np.array,
    "dlpack": np.from_dlpack,
    "bytes": lambda view: view.tobytes(),
    "list": lambda view: view.tolist(),
    "copy": lambda view: view.copy(),
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda view: pickle.loads(pickle.dumps(view)),
    "text": str,
    "out": lambda view: np.add(view, 1, out=np.zeros((2, 3), np.float32)),
    "copyto": lambda view: into(np.copyto, view),
    "add to": lambda view: into(add_to, view),
    "put": lambda view: into(lambda held, values: np.put(held, [1], values), view),
}

WRITES: dict[str, Callable[[Any], Any]] = {
    "item": lambda view: view.__setitem__(0, 1),
    "fill": lambda view: view.fill(0),
    "sort": lambda view: view.sort(),
    "out": lambda view: np.add(view, 1, out=view),
    "copyto": lambda view: np.copyto(view, 1),
    "of a slice": lambda view: view[0].fill(1),
    "add to": lambda view: view.__iadd__(1),
    "put": lambda view: np.put(view, [0], [1]),
}


@pytest.fixture
def memory() -> Array:
    held = floats(1, (2, 3))
    held.flags.writeable = False
    return held


def plain(value: Any) -> Any:
    """Replace views by what they show, and arrays by their content."""
    if isinstance(value, ResultView):
        value = value.numpy()
    if isinstance(value, list | tuple):
        every = cast("list[Any]", value)
        return [plain(each) for each in every]
    if not isinstance(value, np.ndarray):
        return value
    array = cast("Array", value)
    return array.dtype.str, array.shape, array.tolist()


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_it_reads_as_an_array(memory: Array, read: Callable[[Any], Any]) -> None:
    assert plain(read(Lease().view(memory))) == plain(read(memory))


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_read_of_a_stale_view_raises(memory: Array, read: Callable[[Any], Any]) -> None:
    lease = Lease()
    view = lease.view(memory)
    lease.end("it was another's turn")
    with pytest.raises(StaleView, match="another's turn"):
        read(view)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_result_that_goes_while_it_is_read(
    memory: Array, read: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease()
    view, check = lease.view(memory), lease.check

    def check_and_end() -> None:
        check()
        lease.end("it was another's turn")

    monkeypatch.setattr(lease, "check", check_and_end)
    with pytest.raises(StaleView, match="another's turn"):
        read(view)


def has_views(value: Any) -> bool:
    if isinstance(value, list | tuple):
        every = cast("list[Any]", value)
        return any(map(has_views, every))
    return isinstance(value, ResultView)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_after_the_last_look_nothing_is_read(
    read: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = floats(1, (2, 3))
    memory = held.view()
    memory.flags.writeable = False

    def looked(spoil_at: int) -> tuple[int, Any]:
        lease, looks = Lease(), 0
        check = lease.check

        def look() -> None:
            nonlocal looks
            looks += 1
            check()
            if looks == spoil_at:
                held[...] = -9

        monkeypatch.setattr(lease, "check", look)
        found = read(lease.view(memory))
        return looks, found

    looks, wanted = looked(0)
    if not has_views(wanted):  # they are read when they are used
        assert plain(looked(looks)[1]) == plain(wanted)
        assert (held == -9).all()


def test_another_view_that_goes_while_it_is_read(memory: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Lease(), Lease()
    one, two, check = first.view(memory), second.view(memory), second.check

    def check_and_end() -> None:
        check()
        second.end("it was another's turn")

    monkeypatch.setattr(second, "check", check_and_end)
    with pytest.raises(StaleView, match="another's turn"):
        np.concatenate([one, two])


def opened(slices: list[Any], function: Callable[[Any], Any]) -> Any:
    def note(part: Any, *_: Any) -> Any:
        slices.append(part)
        return function(part)

    return note


@pytest.mark.parametrize("name", ["along an axis", "over axes", "piecewise"])
def test_functions_that_are_called_back_get_copies(memory: Array, name: str) -> None:
    slices: list[Any] = []
    total = opened(slices, lambda part: part.sum(axis=0, keepdims=True))
    same = opened(slices, lambda part: part)
    calls: dict[str, Callable[[Any], Any]] = {
        "along an axis": lambda held: np.apply_along_axis(total, 1, held),
        "over axes": lambda held: np.apply_over_axes(total, held, [0]),
        "piecewise": lambda held: np.piecewise(held, [held > 0], [same, 0]),
    }
    found = calls[name](Lease().view(memory))
    assert slices
    assert not shares(slices, memory)
    assert np.array_equal(np.ravel(found), np.ravel(calls[name](memory)))


def shares(value: Any, memory: Array) -> bool:
    if isinstance(value, list | tuple):
        every = cast("list[Any]", value)
        return any(shares(each, memory) for each in every)
    array: Any = value
    return isinstance(value, np.ndarray) and np.may_share_memory(array, memory)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_no_read_gives_the_bare_memory(memory: Array, read: Callable[[Any], Any]) -> None:
    assert not shares(read(Lease().view(memory)), memory)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_it_is_read_only(write: Callable[[Any], Any]) -> None:
    memory = floats(1, (2, 3))
    memory.flags.writeable = False
    with pytest.raises((ValueError, TypeError)):
        write(Lease().view(memory))
    assert np.array_equal(memory, floats(1, (2, 3)))


@pytest.mark.parametrize(
    "derive", ["slice", "transpose", "reshape", "split", "ravel", "other bits", "unpack"]
)
def test_what_shares_memory_ends_with_it(memory: Array, derive: str) -> None:
    lease = Lease()
    derived: Any = READS[derive](lease.view(memory))
    each: Any = derived[0] if derive in {"split", "unpack"} else derived
    assert isinstance(each, ResultView)
    lease.end("it was another's turn")
    with pytest.raises(StaleView):
        each.sum()


def test_what_shares_memory_with_another_view_is_one_too() -> None:
    leases, memories = [Lease(), Lease()], [floats(1, (2, 3)), floats(2, (2, 3))]
    views: Any = [lease.view(memory) for lease, memory in zip(leases, memories, strict=True)]
    pair: Any = np.broadcast_arrays(*views)
    assert not any(shares(pair, memory) for memory in memories)
    leases[1].end("it was another's turn")
    assert np.array_equal(pair[0], memories[0])
    with pytest.raises(StaleView):
        pair[1].sum()


def test_what_is_computed_lives_on(memory: Array) -> None:
    lease = Lease()
    total = lease.view(memory) + 1
    lease.end("over")
    assert np.array_equal(total, memory + 1)


def test_only_copy_false_gives_the_memory(memory: Array) -> None:
    view = Lease().view(memory)
    bare = np.asarray(view, copy=False)
    assert np.may_share_memory(bare, memory)
    assert not bare.flags.writeable
    assert not np.may_share_memory(np.asarray(view), memory)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(view, dtype=np.float64, copy=False)
    hidden = ("base", "ctypes", "data", "flags", "resize", "setflags")
    for name in (*hidden, "__array_interface__", "__array_struct__"):
        with pytest.raises(AttributeError):
            getattr(view, name)
    with pytest.raises(TypeError):
        memoryview(cast("Any", view))


def test_a_stale_view_says_so_and_lets_go_of_the_memory(memory: Array) -> None:
    lease = Lease()
    view, row = lease.view(memory), lease.view(memory)[0]
    assert "ResultView(array(" in repr(view)
    lease.end("over")
    assert view.stale
    assert row.stale
    assert "gone" in repr(view)
    with pytest.raises(StaleView):
        lease.view(memory)


def test_a_method_that_was_taken_before_raises_too(memory: Array) -> None:
    lease = Lease()
    total = lease.view(memory).sum
    lease.end("over")
    with pytest.raises(StaleView):
        total()
