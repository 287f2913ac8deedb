"""Inputs as the DSP finds them, results as it leaves them, and answers that cannot be true."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from repertory.models.errors import DeviceError
from repertory.transports.rpmsg.memory import Window, aligned
from repertory.transports.rpmsg.simulator.outputs import lay_out
from repertory.transports.rpmsg.tensors import read_outputs, room_for, stage, table_size
from repertory.transports.rpmsg.wire.messages import INLINE_INPUTS, Descriptor, Inferred, Span
from repertory.transports.rpmsg.wire.v2 import V2
from tests.rpmsg.scripted import NOTHING, Plain, ScriptedDsp, silent
from tests.rpmsg.wire.by_hand import build, table

DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
KINDS = {0: "i", 1: "u", 2: "f"}
BASE = 0xC0001000
POISON = 0xA5

shapes = hnp.array_shapes(min_dims=0, max_dims=6, min_side=0, max_side=4)
dtypes = st.sampled_from([order + dtype for dtype in DTYPES for order in "<>"]).map(np.dtype)
arrays = dtypes.flatmap(lambda dtype: hnp.arrays(dtype, shapes))


def window(size: int, *, offset: int = 4096) -> Window:
    """Return a stretch within a larger buffer, which is full of poison."""
    whole = Plain(ScriptedDsp(silent), BASE - offset, size + 2 * 4096)
    whole.view[:] = bytes([POISON]) * whole.size
    return Window(whole, offset, size)


def room(inputs: Sequence[np.ndarray[Any, Any]]) -> int:
    return room_for(array.nbytes for array in inputs) + table_size(len(inputs), INLINE_INPUTS)


def seen(area: Window, tensor: Descriptor) -> np.ndarray[Any, Any]:
    """Return an input as a little-endian DSP reads it."""
    start = tensor.address - area.address
    assert 0 <= start <= start + tensor.size <= area.size
    data = bytes(area.view[start : start + tensor.size])
    return np.frombuffer(data, f"<{KINDS[tensor.code]}{tensor.bits // 8}").reshape(tensor.shape)


def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return one.shape == other.shape and one.tobytes() == other.astype(one.dtype).tobytes()


def untouched(area: Window) -> bool:
    """Whether the poison around a window is whole."""
    whole = area.buffer.view
    around = bytes(whole[: area.offset]) + bytes(whole[area.offset + area.size :])
    return around == bytes([POISON]) * len(around)


@given(st.lists(arrays, min_size=1, max_size=8), st.data())
def test_the_dsp_sees_what_the_caller_gave(inputs: list[Any], data: st.DataObject) -> None:
    """Whatever the byte order and the strides, in no more room than was foreseen for it."""
    turned = [
        data.draw(st.sampled_from([array, array.T, array[..., ::-1] if array.ndim else array]))
        for array in inputs
    ]
    area = window(room(turned))
    staged = stage(turned, area)
    assert all(
        same(seen(area, tensor), array) for tensor, array in zip(staged.descriptors, turned, strict=True)
    )
    assert all(tensor.address % 64 == 0 for tensor in staged.descriptors)
    ends = [tensor.address + tensor.size for tensor in staged.descriptors]
    assert all(end <= nxt.address for end, nxt in zip(ends, staged.descriptors[1:], strict=False))
    assert untouched(area)
    buffer = area.buffer
    assert isinstance(buffer, Plain)
    assert (buffer.flushes, buffer.invalidates) == (1, 0)


def inferred(
    outputs: Sequence[Descriptor], *, count: int | None = None, place: Span | None = None
) -> Inferred:
    inline = () if place else tuple(outputs)
    return Inferred(1, 0, 0, 0, len(outputs) if count is None else count, inline, place, 0, NOTHING)


@given(
    st.lists(
        dtypes.map(lambda d: d.newbyteorder("<")).flatmap(lambda d: hnp.arrays(d, shapes)),
        min_size=1,
        max_size=9,
    )
)
def test_results_are_read_as_the_firmware_lays_them(outputs: list[Any]) -> None:
    layout = lay_out(outputs, BASE)
    area = window(room_for(array.nbytes for array in outputs) + table_size(len(outputs), 5))
    assert layout.size <= area.size
    for address, data in layout.parts:
        area.view[address - BASE : address - BASE + len(data)] = data
    place = Span(*layout.table) if layout.table[0] else None
    found = read_outputs(inferred(described(layout.inline), count=len(outputs), place=place), area)
    assert all(
        same(one, other) and one.dtype == other.dtype for one, other in zip(found, outputs, strict=True)
    )
    buffer = area.buffer
    assert isinstance(buffer, Plain)
    assert (buffer.flushes, buffer.invalidates) == (0, 1)


def described(inline: bytes) -> list[Descriptor]:
    """Read descriptors by the codec's own reply."""
    reply = Inferred(1, 0, 0, 0, len(inline) // 80, (), None, 0, NOTHING)
    parsed = V2().parse(build(reply, 2) + inline)
    assert isinstance(parsed, Inferred)
    return list(parsed.outputs)


def test_128_inputs_are_described_in_memory() -> None:
    inputs = [np.full(3, place, np.float32) for place in range(128)]
    area = window(128 * 64 + aligned(128 * 80))
    staged = stage(inputs, area)
    assert staged.table == Span(BASE + 128 * 64, 128 * 80)
    written = bytes(area.view[128 * 64 :])[: 128 * 80]
    assert written == table(staged.descriptors)


@pytest.mark.parametrize("count", [4, 5])
def test_a_table_exists_only_where_a_message_is_too_short(count: int) -> None:
    staged = stage([np.zeros(1, np.uint8)] * count, window(64 * count + 512))
    assert (staged.table is not None) == (count == 5)


@pytest.mark.parametrize("size", [127, 64 * 5 + 399])
def test_what_does_not_fit_is_an_error_and_writes_nothing_beyond(size: int) -> None:
    """The second tensor here, the table there."""
    area = window(size)
    inputs = [np.zeros(64, np.uint8)] * 2 if size == 127 else [np.zeros(1, np.uint8)] * 5
    with pytest.raises(ValueError, match=rf"do not fit into {size}"):
        stage(inputs, area)
    assert untouched(area)


@pytest.mark.parametrize("dtype", ["bool", "complex64"])
def test_the_wire_has_no_such_elements(dtype: str) -> None:
    with pytest.raises(KeyError):
        stage([np.zeros(1, dtype)], window(64))


AREA = 4096
FLOATS = Descriptor(BASE, 16, 2, 32, (4,))


def claim(**changes: Any) -> Descriptor:
    told = {name: getattr(FLOATS, name) for name in ("address", "size", "code", "bits", "shape", "position")}
    return Descriptor(**{**told, **changes})


HUGE = 1 << 62

ABSURD = {
    "too many": (inferred([FLOATS], count=10**9), "1000000000 outputs, and 64 are possible"),
    "one too many": (inferred([FLOATS], count=65), "65 outputs, and 64 are possible"),
    "more than described": (inferred([FLOATS], count=2), "2 outputs, and describes 1"),
    "before": (inferred([claim(address=BASE - 1)]), "16 bytes at 0xc0000fff, outside the result's 4096"),
    "behind": (inferred([claim(address=BASE + AREA - 15)]), "16 bytes at 0xc0001ff1, outside"),
    "far away": (inferred([claim(address=(1 << 64) - 8)]), "outside"),
    "null": (inferred([claim(address=0)]), "outside"),
    "larger than all": (inferred([claim(size=AREA + 4, shape=(AREA // 4 + 1,))]), "4100 bytes at"),
    "wrong size": (inferred([claim(size=20)]), r"20 bytes for float32\[4\]"),
    "no size": (inferred([claim(size=0)]), r"0 bytes for float32\[4\]"),
    "a product that wraps": (inferred([claim(size=0, shape=(1 << 32, 1 << 32))]), "0 bytes for float32"),
    "no such code": (inferred([claim(code=3)]), "type code 3 with 32 bits"),
    "no such bits": (inferred([claim(bits=24)]), "type code 2 with 24 bits"),
    "an empty monster": (inferred([claim(size=0, shape=(HUGE, 0, HUGE))]), f"shape .{HUGE}, 0"),
    "overlapping": (inferred([FLOATS, claim(address=BASE + 8)]), "outputs that overlap at 0xc0001008"),
    "twice the same": (inferred([FLOATS, FLOATS]), "outputs that overlap at 0xc0001000"),
    "one within another": (
        inferred([claim(size=256, shape=(64,)), claim(address=BASE + 64), claim(address=BASE + 128)]),
        "overlap at 0xc0001040",
    ),
    "an empty one between": (
        inferred(
            [
                claim(size=256, shape=(64,)),
                claim(address=BASE + 64, size=0, shape=(0,)),
                claim(address=BASE + 128),
            ]
        ),
        "overlap at 0xc0001080",
    ),
    "table before": (inferred([], count=6, place=Span(BASE - 80, 480)), "a table of 480 bytes at 0xc0000fb0"),
    "table behind": (inferred([], count=6, place=Span(BASE + AREA - 479, 480)), "a table of 480 bytes"),
    "table short": (inferred([], count=6, place=Span(BASE, 479)), "a table of 479 bytes .* for 6 outputs"),
}


@pytest.mark.parametrize("name", ABSURD)
def test_answers_that_cannot_be_true(name: str) -> None:
    reply, text = ABSURD[name]
    area = window(AREA)
    with pytest.raises(DeviceError, match=text) as caught:
        read_outputs(reply, area)
    assert str(caught.value).startswith("the DSP's answer claims ")
    assert (caught.value.family, caught.value.call) == ("c7x", "INFER")


@pytest.mark.parametrize(
    ("bad", "text"), [(claim(shape=(-4,)), "negative extent"), (claim(shape=(1,) * 7), "7 extents")]
)
def test_tables_that_cannot_be_read(bad: Descriptor, text: str) -> None:
    area = window(AREA)
    good = [claim(address=BASE + 1024 + 64 * place) for place in range(5)]
    # the last one, so that seven extents do not run into the next
    data = table((*good, bad))[: 6 * 80]
    area.view[: len(data)] = data
    reply = inferred([], count=6, place=Span(BASE, 480))
    with pytest.raises(DeviceError, match=rf"claims a table that cannot be read: .*{text}"):
        read_outputs(reply, area)


def test_the_very_edges() -> None:
    area = window(AREA)
    edges = [FLOATS, claim(address=BASE + AREA - 16), claim(address=BASE + AREA, size=0, shape=(0, 3))]
    assert [array.shape for array in read_outputs(inferred(edges), area)] == [(4,), (4,), (0, 3)]


def test_outputs_that_touch_and_empty_ones_do_not_overlap() -> None:
    empty = claim(size=0, shape=(0,))
    reply = inferred([claim(address=BASE + 16), empty, FLOATS, claim(size=0, shape=(0,), address=BASE + 4)])
    assert len(read_outputs(reply, window(AREA))) == 4


def test_outputs_come_in_the_modules_order() -> None:
    area = window(AREA)
    area.view[:8] = np.arange(2, dtype="<f4").tobytes()
    first, second = (
        claim(size=4, shape=(1,), position=1),
        claim(size=4, shape=(1,), address=BASE + 4, position=0),
    )
    assert [float(array[0]) for array in read_outputs(inferred([first, second]), area)] == [1.0, 0.0]


def test_an_address_need_not_be_aligned() -> None:
    area = window(AREA)
    area.view[1:17] = np.arange(4, dtype="<f4").tobytes()
    (found,) = read_outputs(inferred([claim(address=BASE + 1)]), area)
    assert found.copy().tolist() == [0, 1, 2, 3]


def test_room_is_counted_in_whole_lines() -> None:
    assert (room_for([1, 64, 65, 0]), room_for([])) == (64 + 64 + 128, 0)
    assert (table_size(4, 4), table_size(5, 4), table_size(128, 4)) == (0, aligned(400), 128 * 80)
