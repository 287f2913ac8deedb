from __future__ import annotations

from typing import Any, final

import numpy as np
import pytest

from repertory.models.errors import InvalidInput
from repertory.models.sketch import read_sketch
from repertory.models.spec import Array, Quantisation, TensorSpec
from repertory.runtime.model import Model
from repertory.transports.answers import hash_answer

from .support import Memory, answer, open_virtual, outstanding, sketched, tensor

pytestmark = pytest.mark.virtual

F32, U8 = np.dtype(np.float32), np.dtype(np.uint8)
PAIR = sketched(
    "pair",
    inputs=(TensorSpec("image", (2, 3), U8), TensorSpec("mask", ("N", 3), F32)),
    outputs=(TensorSpec("boxes", (4, 4), F32), TensorSpec("scores", (4,), U8)),
)
QUANTISED = sketched("quantised", inputs=(TensorSpec("x", (4,), U8, quantisation=Quantisation(0.5, 10)),))


@final
class Exported:
    """What a foreign library's tensor looks like by DLPack."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


@final
class Convertible:
    """What numpy converts by `__array__`."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __array__(self, dtype: object = None, *, copy: bool | None = None) -> Array:
        return self._array


@final
class Broken:
    def __array__(self, dtype: object = None, *, copy: bool | None = None) -> Array:
        raise RuntimeError("on another planet")


def _read_only() -> Array:
    array = tensor(1)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "given",
    [
        tensor(1),
        np.repeat(tensor(1), 2)[::2],
        np.ones((4, 7), F32)[:, 3],
        _read_only(),
        tensor(1).view(np.memmap),
        Exported(tensor(1)),
        Convertible(tensor(1)),
        {"x": tensor(1)},
        {"x": Exported(tensor(1))},
    ],
    ids=[
        "array",
        "stride",
        "column",
        "read-only",
        "subclass",
        "dlpack",
        "__array__",
        "dict",
        "dict of dlpack",
    ],
)
async def test_every_form_of_an_input_gives_the_same_answer(given: object) -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(sketched("net"))
        np.testing.assert_array_equal(await model.infer(given), answer("net", 1))


async def test_native_array_reaches_the_device_without_a_copy() -> None:
    memory = Memory()
    seen: list[Array] = []
    async with open_virtual(memory) as rt:
        model = await rt.load(sketched("net"))

        def compute(frame: Any) -> tuple[Array, ...]:
            seen.extend(frame.inputs)
            return hash_answer(frame.network, frame.inputs)

        memory.device.compute = compute
        given = tensor(1)
        await model.infer(given)
    assert len(seen) == 1
    assert np.shares_memory(seen[0], given)


async def test_several_inputs_and_outputs_go_by_name() -> None:
    image, mask = np.arange(6, dtype=U8).reshape(2, 3), np.ones((5, 3), F32)
    async with open_virtual("sim://") as rt:
        model = await rt.load(PAIR)
        assert [spec.name for spec in model.inputs] == ["image", "mask"]
        assert [spec.name for spec in model.outputs] == ["boxes", "scores"]
        result = await model.infer({"mask": mask, "image": image})
    network, _ = read_sketch(PAIR)
    boxes, scores = hash_answer(network, [image, mask])
    assert list(result) == ["boxes", "scores"]
    np.testing.assert_array_equal(result["boxes"], boxes)
    np.testing.assert_array_equal(result["scores"], scores)


async def test_quantised_port_takes_stored_integers_and_real_numbers() -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(QUANTISED)
        stored = await model.infer(np.array([10, 12, 0, 255], U8))
        real = await model.infer(np.array([0, 1, -99, 999], F32))
        np.testing.assert_array_equal(stored, real)


async def test_null_device_answers_zeros_of_the_right_shape() -> None:
    async with open_virtual("null://") as rt:
        model = await rt.load(sketched("net"))
        result = await model.infer(tensor(1))
    assert result.shape == (16,)
    assert result.dtype == F32
    assert not result.any()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros(5, F32), r"net: x: shape \(5,\) came, float32\[4\] is wanted"),
        (np.zeros((1, 4), F32), r"net: x: shape \(1, 4\) came, float32\[4\] is wanted"),
        (np.zeros(4), r"net: x: dtype float64 came, float32 is wanted"),
        (np.zeros(4, ">f4"), r"net: x: dtype >f4 came, float32 is wanted"),
        (np.zeros(4, object), r"net: x: dtype object came, float32 is wanted"),
        ([0.0] * 4, r"net: x: a list came, an array of float32\[4\] is wanted"),
        (None, r"net: x: a NoneType came, an array of float32\[4\] is wanted"),
        (np.float32(1), r"net: x: shape \(\) came, float32\[4\] is wanted"),
        (Broken(), r"net: x: the Broken could not be read as an array: on another planet"),
        ({"y": tensor(1)}, r"net: inputs \['y'\] came, \['x'\] are wanted"),
        ({}, r"net: inputs \[\] came, \['x'\] are wanted"),
        ({"x": tensor(1), 3: None}, r"net: inputs \['3', 'x'\] came, \['x'\] are wanted"),
        ({"x": np.zeros(3, F32)}, r"net: x: shape \(3,\) came, float32\[4\] is wanted"),
    ],
)
async def test_wrong_input_names_the_tensor_what_came_and_what_was_wanted(
    given: object, message: str
) -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(sketched("net"))
        with pytest.raises(InvalidInput, match=message):
            await model.infer(given)
        statistics = rt.statistics().models["net"]
        assert statistics.refused == {"invalid": 1}
        assert (statistics.admitted, outstanding(statistics)) == (0, 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((2, 3), U8), r"pair: a ndarray came, a mapping with \['image', 'mask'\] is wanted"),
        ({"image": np.zeros((2, 3), U8)}, r"pair: inputs \['image'\] came, \['image', 'mask'\] are wanted"),
        (
            {"image": np.zeros((2, 3), U8), "mask": np.zeros((2, 4), F32)},
            r"pair: mask: shape \(2, 4\) came, float32\[N, 3\] is wanted",
        ),
    ],
)
async def test_wrong_inputs_of_several_are_named_too(given: object, message: str) -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(PAIR)
        with pytest.raises(InvalidInput, match=message):
            await model.infer(given)


async def test_quantised_port_says_that_it_takes_float32_too() -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(QUANTISED)
        with pytest.raises(InvalidInput, match="dtype int32 came, uint8 or float32 is wanted"):
            await model.infer(np.zeros(4, np.int32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": float("nan")}, "net: timeout is not a number"),
        ({"deadline": float("nan")}, "net: deadline is not a number"),
        ({"priority": 128}, "net: priority 128 came, -128 to 127 is wanted"),
        ({"priority": -129}, "net: priority -129 came"),
        ({"priority": 0.5}, "net: priority 0.5 came"),
    ],
)
async def test_options_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(sketched("net"))
        with pytest.raises(InvalidInput, match=message):
            await model.infer(tensor(1), **options)
        assert rt.statistics().models["net"].admitted == 0


async def test_answers_belong_to_their_callers() -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(sketched("net"))
        first = await model.infer(tensor(1))
        first[:] = 0
        np.testing.assert_array_equal(await model.infer(tensor(1)), answer("net", 1))


async def test_refused_input_harms_no_neighbour() -> None:
    async with open_virtual("sim://") as rt:
        model: Model = await rt.load(sketched("net"))
        with pytest.raises(InvalidInput):
            await model.infer(np.zeros(9, F32))
        np.testing.assert_array_equal(await model.infer(tensor(2)), answer("net", 2))
