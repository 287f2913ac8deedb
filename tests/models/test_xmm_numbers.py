"""Numbers of an NPU's tensors against an oracle that goes from element to element, and from bit to bit."""

from __future__ import annotations

import itertools
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repertory.models.errors import ArtifactError, ContractError, InvalidInput
from repertory.models.spec import Array, Quantisation
from repertory.models.xmm_layout import BITS, axes, layout, packed_pitches, packed_size
from repertory.models.xmm_numbers import fitted, native_dtype, read, read_as, tensor_spec, write
from repertory.models.xmm_tensor import NpuType, Region, XmmTensor

FORMS = {
    NpuType.INT8: "<b",
    NpuType.UINT8: "<B",
    NpuType.INT16: "<h",
    NpuType.UINT16: "<H",
    NpuType.FP16: "<e",
    NpuType.INT32: "<i",
    NpuType.FP32: "<f",
}
RANGES = {
    NpuType.INT8: (-128, 127),
    NpuType.UINT8: (0, 255),
    NpuType.INT16: (-32768, 32767),
    NpuType.UINT16: (0, 65535),
    NpuType.INT32: (-(1 << 31), (1 << 31) - 1),
    NpuType.INT4: (-8, 7),
    NpuType.UINT12: (0, 4095),
    NpuType.UINT10: (0, 1023),
}


def padded(
    dims: tuple[int, ...],
    kind: NpuType,
    *,
    gaps: tuple[int, ...] = (),
    scale: float = 1.0,
    zero_point: int = 0,
) -> XmmTensor:
    """A tensor with gaps, each axis' more than the last one's."""
    unit = BITS[kind] // 8 if BITS[kind] % 8 == 0 else 0
    pitches, size = [unit], unit * dims[-1] or -(-BITS[kind] * dims[-1] // 8)
    for dim, gap in zip(reversed(dims[:-1]), itertools.chain(gaps, itertools.repeat(0)), strict=False):
        pitches.append(size + gap)
        size = (size + gap) * dim
    return XmmTensor("t", Region.INPUT, 0, dims, tuple(reversed(pitches)), kind, size, scale, zero_point)


def oracle(data: bytes | bytearray, tensor: XmmTensor) -> list[float]:
    """Read element by element; types that fill no bytes bit by bit along the last axis."""
    found: list[float] = []
    for index in itertools.product(*map(range, tensor.dims)):
        if tensor.type in FORMS:
            at = sum(step * pitch for step, pitch in zip(index, tensor.pitches, strict=True))
            found.append(struct.unpack_from(FORMS[tensor.type], data, at)[0])
            continue
        at = sum(step * pitch for step, pitch in zip(index[:-1], tensor.pitches[:-1], strict=True))
        number, bits = 0, BITS[tensor.type]
        for bit in range(bits):
            place = 8 * at + index[-1] * bits + bit
            number |= (data[place // 8] >> (place % 8) & 1) << bit
        found.append(number - (1 << bits) if tensor.type == NpuType.INT4 and number >> 3 else number)
    return found


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@settings(max_examples=60, deadline=None)
@given(shapes, st.sampled_from(NpuType), st.tuples(st.integers(0, 9), st.integers(0, 5)), st.data())
def test_bytes_are_what_the_oracle_reads(
    dims: tuple[int, ...], kind: NpuType, gaps: tuple[int, ...], data: st.DataObject
) -> None:
    tensor = padded(dims, kind, gaps=gaps)
    native = native_dtype(kind)
    count = math.prod(dims)
    if kind in RANGES:
        elements: st.SearchStrategy[float] = st.integers(*RANGES[kind])
    else:
        elements = st.floats(-100, 100, width=16)
    numbers = data.draw(st.lists(elements, min_size=count, max_size=count))
    array = np.array(numbers, native).reshape(dims)
    out = bytearray(b"\xaa" * (tensor.size + 3))
    write(array, tensor, memoryview(out))
    assert oracle(out, tensor) == list(array.reshape(-1))
    assert bytes(out[tensor.size :]) == b"\xaa" * 3
    back = read(memoryview(out), tensor, native=True)
    assert back.dtype == native
    assert back.flags.c_contiguous
    np.testing.assert_array_equal(back, array)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([*RANGES]),
    st.floats(2**-10, 1024, width=32),
    st.integers(-300, 300),
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=8),
)
def test_reals_become_clamp_of_round(
    kind: NpuType, scale: float, zero_point: int, reals: list[float]
) -> None:
    tensor = padded((len(reals),), kind, scale=scale, zero_point=zero_point)
    out = memoryview(bytearray(tensor.size))
    write(np.array(reals, np.float32), tensor, out)
    low, high = RANGES[kind]
    stored = oracle(bytes(out), tensor)
    for got, real in zip(stored, reals, strict=True):
        exact = real / scale + zero_point
        assert low <= got <= high
        assert abs(got - min(max(exact, low), high)) <= 0.5 + abs(exact) * 2**-22
    back = read(out, tensor, native=False)
    assert back.dtype == np.float32
    wanted = [(got - zero_point) * scale for got in stored]
    np.testing.assert_allclose(back, np.array(wanted, np.float32), rtol=1e-6, atol=1e-30)


def test_numbers_of_the_vendors_rule() -> None:
    tensor = padded((6,), NpuType.UINT8, scale=0.5, zero_point=192)
    out = memoryview(bytearray(6))
    write(np.array([0, 0.25, 0.75, -96, -1e9, np.inf], np.float32), tensor, out)
    assert list(out) == [192, 192, 194, 0, 0, 255]
    assert list(read(out, tensor, native=False)) == [0, 0, 1, -96, -96, 31.5]


def test_a_nan_counts_as_0_to_the_npu_and_is_refused_from_a_caller() -> None:
    tensor = padded((2,), NpuType.UINT8, scale=0.5, zero_point=7)
    out = memoryview(bytearray(2))
    write(np.array([np.nan, 1], np.float32), tensor, out)
    assert list(out) == [7, 9]
    with pytest.raises(InvalidInput, match="NaN"):
        tensor_spec(tensor, output=False).check(np.array([np.nan, 1], np.float32))


def test_32_bits_stay_exact() -> None:
    tensor = padded((3,), NpuType.INT32, scale=1.0, zero_point=-3)
    out = memoryview(bytearray(12))
    write(np.array([1 << 24, 4e9, -4e9], np.float32), tensor, out)
    assert struct.unpack("<3i", out) == ((1 << 24) - 3, (1 << 31) - 1, -(1 << 31))
    plain = padded((2,), NpuType.INT32)
    write(np.array([(1 << 31) - 1, -5], np.int64), plain, out)
    assert list(read_as(out, plain, np.dtype(np.int64))) == [(1 << 31) - 1, -5]


@pytest.mark.parametrize(
    ("dtype", "wanted"), [("uint8", [0, 255]), ("int64", [-5, 300]), ("float64", [-5, 300])]
)
def test_a_graph_gets_its_own_dtype(dtype: str, wanted: list[int]) -> None:
    tensor = padded((2,), NpuType.INT16)
    data = memoryview(struct.pack("<2h", -5, 300))
    got = read_as(data, tensor, np.dtype(dtype))
    assert (got.dtype, list(got)) == (np.dtype(dtype), wanted)
    halved = padded((2,), NpuType.INT16, scale=0.5)
    assert list(read_as(data, halved, np.dtype(np.int8))) == [-2, 127]


@pytest.mark.parametrize(
    ("kind", "value"), [(NpuType.INT4, 8), (NpuType.UINT10, 1024), (NpuType.UINT12, 4096)]
)
def test_integers_that_a_narrow_type_has_not(kind: NpuType, value: int) -> None:
    tensor = padded((2,), kind, scale=0.5)
    out = memoryview(bytearray(tensor.size))
    with pytest.raises(InvalidInput, match=rf"t: {kind.name} holds"):
        write(np.array([0, value], native_dtype(kind)), tensor, out)
    checked = tensor_spec(tensor, output=False).check(np.array([0, 1e9], np.float32))
    assert list(checked) == [0, RANGES[kind][1]]


def test_a_frame_of_10_bits_has_the_size_of_the_public_model() -> None:
    dims = (1, 1, 1080, 1920)
    pitches = packed_pitches(dims, NpuType.UINT10)
    assert packed_size(dims, pitches, NpuType.UINT10) == 2592000


def test_pitches_tell_whether_narrow_elements_have_bytes_of_their_own() -> None:
    array = np.array([[1023, 1, 2]], np.uint16)
    loose = XmmTensor("t", Region.INPUT, 0, (1, 3), (6, 2), NpuType.UINT10, 6)
    out = memoryview(bytearray(6))
    write(array, loose, out)
    assert struct.unpack("<3H", out) == (1023, 1, 2)
    tight = XmmTensor("t", Region.INPUT, 0, (1, 3), (4, 2), NpuType.UINT10, 4)
    write(array, tight, out)
    assert int.from_bytes(out[:4], "little") == 1023 | 1 << 10 | 2 << 20


def test_rows_of_80_stored_as_96() -> None:
    dims = (1, 3, 60, 80)
    pitches = packed_pitches(dims, NpuType.UINT8, row=96)
    assert pitches == (17280, 5760, 96, 1)
    assert packed_pitches((1, 4, 5, 3), NpuType.UINT8, row=16) == (64, 16, 3, 1)
    tensor = XmmTensor("t", Region.INPUT, 0, dims, pitches, NpuType.UINT8, 17280)
    out = memoryview(bytearray(17280))
    write(np.full(dims, 7, np.uint8), tensor, out)
    rows = np.frombuffer(out, np.uint8).reshape(-1, 96)
    assert (rows[:, :80] == 7).all()
    assert not rows[:, 80:].any()


def test_axes_in_another_order_of_memory() -> None:
    tensor = XmmTensor("t", Region.INPUT, 0, (1, 2, 3), (6, 1, 2), NpuType.UINT8, 6)
    out = memoryview(bytearray(6))
    write(np.arange(6, dtype=np.uint8).reshape(1, 2, 3), tensor, out)
    assert list(out) == [0, 3, 1, 4, 2, 5]


def test_what_is_read_is_the_callers_own() -> None:
    out = memoryview(bytearray(struct.pack("<f", 1.5)))
    got = read(out, padded((1,), NpuType.FP32), native=False)
    out[:] = bytes(4)
    assert list(got) == [1.5]


def test_fp16_overflows_to_infinity() -> None:
    tensor = padded((2,), NpuType.FP16)
    out = memoryview(bytearray(4))
    write(np.array([1e9, 0.5], np.float32), tensor, out)
    assert list(read(out, tensor, native=False)) == [np.inf, 0.5]


def test_what_callers_see() -> None:
    quantised = padded((1, 3, 2, 2), NpuType.UINT8, scale=0.5, zero_point=3)
    given, taken, native = (
        tensor_spec(quantised, output=output, native=native)
        for output, native in ((False, False), (True, False), (True, True))
    )
    assert (given.dtype, given.layout, given.quantisation) == (
        np.dtype(np.uint8),
        "NCHW",
        Quantisation(0.5, 3),
    )
    assert (taken.dtype, taken.quantisation) == (np.dtype(np.float32), None)
    assert native == given
    plain = tensor_spec(padded((1, 2, 2, 3), NpuType.UINT8), output=False)
    assert (plain.layout, plain.quantisation) == ("NHWC", None)
    with pytest.raises(InvalidInput, match="uint8 is wanted"):
        plain.check(np.zeros((1, 2, 2, 3), np.float32))


@pytest.mark.parametrize(
    ("dims", "letters"), [((1, 3, 3, 3), ""), ((1, 4, 4, 1), ""), ((3, 3), ""), ((1, 3, 4, 5), "NCHW")]
)
def test_axes_that_dims_tell(dims: tuple[int, ...], letters: str) -> None:
    assert axes(dims) == letters


@pytest.mark.parametrize("shape", [(1, 4), (4,), (1, 4, 1, 1)])
def test_extents_of_1_are_fitted(shape: tuple[int, ...]) -> None:
    assert fitted(np.zeros((1, 4)), shape).shape == shape


def test_bytes_and_arrays_that_do_not_fit() -> None:
    tensor = padded((2, 3), NpuType.UINT8)
    array: Array = np.zeros((2, 3), np.uint8)
    with pytest.raises(ContractError, match="5 bytes came, 6 are wanted"):
        write(array, tensor, memoryview(bytearray(5)))
    with pytest.raises(ContractError, match="5 bytes came"):
        read(memoryview(bytes(5)), tensor, native=True)
    wrong: Any = array[:1]
    with pytest.raises(ContractError, match=r"an array of \(1, 3\) came"):
        write(wrong, tensor, memoryview(bytearray(6)))
    with pytest.raises(ArtifactError, match="does not lie in 5 bytes"):
        layout(XmmTensor("t", Region.INPUT, 0, (2, 3), (3, 1), NpuType.UINT8, 5))
