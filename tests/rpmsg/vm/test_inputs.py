"""What runs take and give: how many tensors, of which types and shapes, from whom."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from repertory import c7x
from repertory.models.spec import Array
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.vm.errors import (
    InputCountError,
    InputShapeError,
    InputTypeError,
    RunFailed,
    StaleInput,
)
from repertory.transports.rpmsg.vm.nd import HostArray

from .conftest import Make, few
from .support import affine, echo, floats, halves, mixed, several, summed, undescribed

PIXELS = np.arange(10, dtype=np.uint8).reshape(2, 5)
DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


class Capsule:
    """Speaks DLPack alone."""

    def __init__(self, content: Array) -> None:
        self._content = content

    def __dlpack__(self, **options: Any) -> Any:
        return self._content.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._content.__dlpack_device__()


class Foreign:
    """Gives an array by numpy's protocol, or fails."""

    def __init__(self, content: Array | Exception) -> None:
        self._content = content

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if isinstance(self._content, Exception):
            raise self._content
        return self._content


@pytest.mark.parametrize("count", [1, 4, 5, 128])
@pytest.mark.parametrize("staged", [False, True], ids=["copied", "staged"])
def test_inputs_of_any_number(make: Make, count: int, *, staged: bool) -> None:
    vm = make(summed(count))
    arrays: list[Any] = [floats(seed, (3,)) for seed in range(count)]
    inputs = [vm.create_input((3,), "float32").copyfrom(array) for array in arrays] if staged else arrays
    total = vm["main"](*inputs).numpy()
    assert np.allclose(total, np.sum(arrays, axis=0), atol=1e-4)
    assert (vm.copied_inputs, vm.staged_inputs) == ((0, count) if staged else (count, 0))


@few
@pytest.mark.parametrize("count", [0, 129])
def test_too_few_and_too_many(make: Make, dsp: SimulatedDsp, count: int) -> None:
    vm = make(affine())
    for run in (vm["main"], vm.run_nocopy):
        with pytest.raises(InputCountError, match=f"{count} inputs") as caught:
            run(*[floats()] * count)
        assert isinstance(caught.value, RuntimeError)
    assert not vm.is_loaded, "nothing was sent"


@pytest.mark.parametrize("count", [1, 2, 5, 6, 64])
def test_outputs_of_any_number(make: Make, count: int) -> None:
    vm = make(several(count))
    x = floats(1, (2, 3))
    outputs, views = vm["main"](x), vm.run_nocopy(x)
    assert isinstance(outputs, list) == isinstance(views, list) == (count > 1)
    if count == 1:
        outputs, views = [outputs], [views]
    for place in range(count):
        assert np.allclose(outputs[place].numpy(), (place + 1) * x, rtol=1e-5)
        assert np.allclose(views[place], (place + 1) * x, rtol=1e-5)


def test_inputs_and_outputs_of_several_types(make: Make) -> None:
    vm = make(mixed())
    pixels, numbers = np.arange(10, dtype=np.uint8).reshape(2, 5), floats(1, (7,))
    image, mean = vm["main"](pixels, c7x.nd.array(numbers))
    assert (image.dtype, image.shape, mean.dtype, mean.shape) == ("uint8", (2, 5), "float32", ())
    assert np.array_equal(image.numpy(), pixels)
    assert np.allclose(mean.numpy(), numbers.mean())


@few
@pytest.mark.parametrize("kind", DTYPES)
def test_every_element_type_comes_back(make: Make, kind: str) -> None:
    vm = make(echo(kind))
    x = (floats(3, (2, 3)) * 50).astype(kind)
    for given in (x, c7x.nd.array(x), vm.create_input(x.shape, x.dtype).copyfrom(x), Capsule(x)):
        answer = vm["main"](given)
        assert answer.dtype == x.dtype.name
        assert np.array_equal(answer.numpy(), x)


@few
@pytest.mark.parametrize("dims", [0, 1, 6])
def test_shapes_up_to_six_extents(make: Make, dims: int) -> None:
    x = floats(3, (1, 2, 1, 3, 1, 1)[:dims])
    answer = make(echo("f4", x.shape))["main"](x)
    assert answer.shape == x.shape
    assert np.array_equal(answer.numpy(), x)


def test_a_number(make: Make) -> None:
    vm = make(halves())
    answer = vm["main"](np.float16(1.5))
    assert float(answer.numpy()) == -1.5
    assert float(vm.run_nocopy(np.float16(2.5))) == -2.5


@few
@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((1, 4), bool),
        np.zeros((1, 4), np.complex64),
        np.zeros((1, 4), np.longdouble),
        np.array(["a"]),
        np.array([None]),
        np.zeros(2, "M8[s]"),
        "text",
        None,
        np.ma.masked_array(np.zeros((1, 4), np.float32), [[True, False, True, False]]),
        Foreign(ValueError("not today")),
        Foreign(RuntimeError("on another device")),
    ],
    ids=lambda wrong: str(getattr(wrong, "dtype", wrong)).partition(" ")[0],
)
def test_what_is_no_tensor_of_numbers(make: Make, wrong: Any) -> None:
    vm = make(affine())
    for run in (vm["main"], vm.run_nocopy, c7x.nd.array):
        with pytest.raises(InputTypeError) as caught:
            run(wrong)
        assert isinstance(caught.value, TypeError)
    assert not vm.is_loaded


@few
@pytest.mark.parametrize("given", [[[1.0, 2, 3, 4]], 3.5, ()], ids=str)
def test_a_run_takes_no_lists(make: Make, given: Any) -> None:
    vm = make(affine())
    for run in (vm["main"], vm.run_nocopy):
        with pytest.raises(InputTypeError, match=r"nd\.array"):
            run(given)
    assert not vm.is_loaded


def test_a_masked_array_is_refused_by_name(make: Make) -> None:
    masked = np.ma.masked_array(floats(1), floats(1) > 0)
    vm = make(affine())
    staged = vm.create_input((1, 4)).copyfrom(floats(2))
    for take in (vm["main"], staged.copyfrom, c7x.nd.array, c7x.nd.empty((1, 4)).copyfrom):
        with pytest.raises(InputTypeError, match="masked"):
            take(masked)
    assert np.array_equal(staged.numpy(), floats(2))
    assert np.array_equal(vm["main"](masked.filled(0)).numpy(), 2 * masked.filled(0))


WRONG: dict[str, tuple[list[Array], type[Exception], str]] = {
    "type": ([floats(0, (7,)), floats(0, (7,))], InputTypeError, r"input 0 is float32\[7\].*uint8\[2, 5\]"),
    "shape": ([PIXELS, floats(0, (8,))], InputShapeError, r"input 1 is float32\[8\].*float32\[7\]"),
    "extents": ([PIXELS, floats(0, (1, 7))], InputShapeError, r"input 1 is float32\[1, 7\].*float32\[7\]"),
    "too few": ([PIXELS], InputCountError, r"1 inputs.* 2: .*uint8\[2, 5\].*float32\[7\]"),
    "too many": ([PIXELS] * 3, InputCountError, r"3 inputs.* 2: "),
}


@few
@pytest.mark.parametrize(("inputs", "error", "told"), WRONG.values(), ids=WRONG)
def test_what_the_module_does_not_take(
    make: Make, inputs: list[Array], error: type[Exception], told: str
) -> None:
    vm = make(mixed())
    image, _ = vm.run_nocopy(PIXELS, floats(0, (7,)))
    staged = [vm.create_input(each.shape, each.dtype).copyfrom(each) for each in inputs]
    for given in (inputs, staged):
        for run in (vm["main"], vm.run_nocopy):
            with pytest.raises(error, match=told):
                run(*given)
    assert np.array_equal(image, PIXELS), "nothing was sent"
    assert (vm.copied_inputs, vm.staged_inputs) == (2, 0)


def test_what_a_module_without_a_description_refuses_names_what_came(make: Make) -> None:
    vm = make(affine())
    vm["main"](floats())
    undescribed(vm)
    with pytest.raises(RunFailed, match=r"float64\[1, 4\], int8\[\].*CALL") as caught:
        vm["main"](floats().astype("f8"), np.int8(1))
    assert caught.value.status == -11
    with pytest.raises(RunFailed, match=r"and 120 more"):
        vm["main"](*[np.int8(1)] * 128)


def test_too_many_extents(make: Make) -> None:
    vm = make(affine())
    for run in (vm["main"], vm.run_nocopy, c7x.nd.array):
        with pytest.raises(InputShapeError, match="7 extents") as caught:
            run(np.zeros((1,) * 7, np.float32))
        assert isinstance(caught.value, ValueError)


@few
@pytest.mark.parametrize(
    "given",
    [
        floats(1).astype(">f4"),
        np.asfortranarray(floats(1)),
        np.repeat(floats(1), 2, axis=1)[:, ::2],
        floats(1)[::-1],
        Foreign(floats(1)),
        Capsule(floats(1)),
    ],
    ids=["big-endian", "fortran", "strided", "reversed", "array protocol", "dlpack"],
)
def test_arrays_of_any_layout(make: Make, given: Any) -> None:
    assert np.array_equal(make(affine())["main"](given).numpy(), 2 * floats(1))


def test_an_input_is_only_read(make: Make) -> None:
    x = floats(1)
    x.flags.writeable = False
    assert np.array_equal(make(affine())["main"](x).numpy(), 2 * floats(1))


def test_nd_arrays() -> None:
    x = floats(1)
    held = c7x.nd.array(x)
    x[:] = 0
    assert np.array_equal(held.numpy(), floats(1)), "it has memory of its own"
    held.numpy()[:] = 0
    assert np.array_equal(held.asnumpy(), floats(1)), "numpy() copies"
    assert (held.shape, held.dtype, held.ndim) == ((1, 4), "float32", 2)
    assert np.array_equal(np.asarray(held), floats(1))
    assert np.array_equal(np.from_dlpack(held), floats(1))
    assert np.asarray(held, dtype=np.float64).dtype == np.float64
    assert np.array_equal(held[0, 1:], floats(1)[0, 1:])
    held[:] = floats(2)
    assert np.array_equal(c7x.nd.array(held).numpy(), floats(2))
    with pytest.raises(InputShapeError):
        held[0] = floats(2)
    with pytest.raises(InputShapeError, match="does not go into"):
        held.copyfrom(floats(1, (4,)))
    assert not c7x.nd.empty((2, 3), "int8").numpy().any()
    assert isinstance(held, c7x.nd.NDArray)


@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        ([1.0, 2.0], "float64"),
        ([[1, 2], [3, 4]], "int64"),
        ((1, 2.5), "float64"),
        (3.5, "float64"),
        (7, "int64"),
        ([np.float32(1), np.float32(2)], "float32"),
        ([c7x.nd.array(floats(1)), c7x.nd.array(floats(2))], "float32"),
    ],
)
def test_nd_arrays_of_lists_and_numbers(source: Any, dtype: str) -> None:
    held = c7x.nd.array(source)
    assert held.dtype == dtype == np.array(source).dtype
    assert np.array_equal(held.numpy(), np.array(source))


@pytest.mark.parametrize("source", [[[1, 2], [3]], ["a"], [True], [1j], [None], {}, {1}, object(), 1 << 70])
def test_no_nd_arrays(source: Any) -> None:
    with pytest.raises(InputTypeError):
        c7x.nd.array(source)


@few
def test_lists_are_copied_in(make: Make) -> None:
    vm = make(affine())
    staged = vm.create_input((1, 4)).copyfrom([[1, 2.5, 3, 4]])
    assert vm["main"](staged).numpy().tolist() == [[2, 5, 6, 8]]
    staged[:] = [[True, False, 1, 0]]
    assert staged.numpy().tolist() == [[1, 0, 1, 0]]
    for wrong in ([1, 2, 3, 4], 1, [[1, 2, 3]]):
        with pytest.raises(InputShapeError):
            staged.copyfrom(wrong)
    assert staged.numpy().tolist() == [[1, 0, 1, 0]]
    assert c7x.nd.empty(()).copyfrom(2.5).numpy() == 2.5


@few
def test_copyto(make: Make) -> None:
    vm = make(affine())
    staged, held = vm.create_input((1, 4)), c7x.nd.array(floats(1))
    assert held.copyto(staged) is staged
    assert np.array_equal(staged.numpy(), floats(1))
    other = c7x.nd.empty((1, 4), "float64")
    staged.copyto(other)
    assert np.array_equal(other.numpy(), floats(1))
    with pytest.raises(InputShapeError):
        held.copyto(c7x.nd.empty((4,)))
    with pytest.raises(InputTypeError, match="ndarray"):
        held.copyto(np.zeros((1, 4)))  # type: ignore[arg-type]
    assert staged.device == held.device == "cpu"


def pickled(held: Any) -> Any:
    return pickle.loads(pickle.dumps(held))


@few
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
def test_duplicates_have_memory_of_their_own(make: Make, duplicate: Callable[[Any], Any]) -> None:
    vm = make(affine())
    staged = vm.create_input((1, 4)).copyfrom(floats(1))
    for held in (staged, c7x.nd.array(floats(1))):
        other = duplicate(held)
        assert type(other) is HostArray
        other.copyfrom(floats(2))
        assert np.array_equal(held.numpy(), floats(1))
        assert np.array_equal(other.numpy(), floats(2))
    vm.close()
    with pytest.raises(StaleInput):
        duplicate(staged)


def test_rows_are_of_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    held = c7x.nd.array(floats(1, (5, 2)))
    copies: list[Array] = []
    numpy = HostArray.numpy

    def noted(self: HostArray) -> Array:
        copies.append(numpy(self))
        return copies[-1]

    monkeypatch.setattr(HostArray, "numpy", noted)
    assert [row.tolist() for row in held] == floats(1, (5, 2)).tolist()
    assert len(copies) == 1
    with pytest.raises(TypeError):
        iter(c7x.nd.empty(()))
