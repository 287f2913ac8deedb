from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repertory.models import formats, layout
from repertory.models.errors import ArtifactError, ContractError
from repertory.models.formats import PortFormat, Shape
from repertory.models.hpoc import DUMMY
from repertory.models.port import Hpoc, Port, RangeConvert

from .slow_formats import bf16, gbf80_frame

some = settings(derandomize=True, deadline=None, max_examples=250)
CONVERTED = [form for form in PortFormat if formats.convertible(form)]
FLOATS = [form for form in CONVERTED if formats.native_dtype(form) == np.float32]


@st.composite
def ports(draw: st.DrawFn, forms: list[PortFormat] = CONVERTED, *, hpoc: bool = False) -> Port:
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 17)))
    wanted = [
        letter for letter, extent in zip("HWZC", shape, strict=True) if extent > 1 or draw(st.booleans())
    ]
    axes = "N" + "".join(draw(st.permutations(wanted)))
    dummies = None
    if hpoc:
        wire = shape[3] + draw(st.integers(1, 9))
        dropped = draw(st.permutations(range(wire)))[: wire - shape[3]]
        dummies = Hpoc((*shape[:3], wire), tuple(dropped))
    return Port(
        0, layer_name="x", format=draw(st.sampled_from(forms)), shape=shape, layout=axes, hpoc=dummies
    )


def extents(port: Port) -> tuple[int, ...]:
    return tuple(int(extent) for extent in port.spec.shape)


def tensor(port: Port, seed: int = 0) -> Any:
    drawn = np.random.default_rng(seed).integers(0, 256, extents(port))
    return drawn.astype(port.spec.dtype)


@st.composite
def callers(draw: st.DrawFn, port: Port) -> Any:
    """A caller's tensor in any memory: turned, reversed, with gaps, not aligned, read-only."""
    wanted = tensor(port, draw(st.integers(0, 9)))
    order = draw(st.permutations(range(wanted.ndim)))
    steps = [draw(st.sampled_from([1, 2, -1, -2])) for _ in order]
    turned = [wanted.shape[axis] * abs(step) for axis, step in zip(order, steps, strict=True)]
    offset = draw(st.sampled_from([0, 0, 1]))
    memory = np.zeros(math.prod(turned) * wanted.itemsize + offset, np.uint8)[offset:].view(wanted.dtype)
    spread = memory.reshape(turned)[tuple(slice(None, None, step) for step in steps)]
    array = spread.transpose(np.argsort(order))
    array[...] = wanted
    array.flags.writeable = draw(st.booleans())
    return array


def encoded(port: Port, array: Any) -> bytes:
    """The frame, written into the middle of other memory at an odd address."""
    memory = np.full(port.nbytes + 5, 0xEE, np.uint8)
    port.encode(array, memory[3:-2])
    assert {*memory[:3].tolist(), *memory[-2:].tolist()} == {0xEE}
    return memory[3:-2].tobytes()


def decoded(port: Port, frame: bytes) -> Any:
    memory = np.zeros(port.nbytes + 1, np.uint8)
    memory[1:] = np.frombuffer(frame, np.uint8)
    array = port.decode(memory[1:])
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert not np.shares_memory(array, memory)
    assert (array.shape, array.dtype) == (extents(port), port.spec.dtype)
    return array


def on_the_wire(port: Port, array: Any) -> list[list[list[float]]]:
    """Rows of pixels of channels, by looking each number up under its letters."""
    height, width, z, channels = port.shape

    def at(h: int, w: int, zed: int, c: int) -> float:
        place = {"N": 0, "H": h, "W": w, "Z": zed, "C": c}
        return float(array[tuple(place[letter] for letter in port.axes)])

    return [
        [[at(h, w, zed, c) for c in range(channels)] for w in range(width) for zed in range(z)]
        for h in range(height)
    ]


def frame_by_the_rules(port: Port, rows: Any) -> bytes:
    if port.format is PortFormat.RGB888:
        frame = np.array(rows, np.uint8).tobytes()
    elif port.format is PortFormat.FLOAT32:
        frame = np.array(rows, "<f4").tobytes()
    else:
        bits = np.array(rows, np.float32).view(np.uint32)
        if port.format is not PortFormat.BF16:
            return gbf80_frame(bits.tolist(), pad_rows=port.format is PortFormat.GBF80_ROW)
        frame = b"".join(bf16(number).to_bytes(2, "little") for number in bits.reshape(-1).tolist())
    return frame + bytes(-len(frame) % 4)


@some
@given(st.data(), ports())
def test_any_memory_is_written_as_the_rules_say_and_left_alone(data: st.DataObject, port: Port) -> None:
    array = data.draw(callers(port))
    before = array.copy()
    frame = encoded(port, array)
    assert frame == frame_by_the_rules(port, on_the_wire(port, before))
    assert np.array_equal(array, before)


@some
@given(ports())
def test_whole_numbers_of_eight_bits_come_back_through_every_format(port: Port) -> None:
    array = tensor(port)
    assert np.array_equal(decoded(port, encoded(port, array)), array)


@some
@given(ports(FLOATS, hpoc=True))
def test_dummy_channels_are_on_the_wire_and_never_with_the_caller(port: Port) -> None:
    array = tensor(port) + 300  # nothing that could be taken for a dummy
    frame = encoded(port, array)
    whole = Port(0, format=port.format, shape=port.wire_shape, layout="NHWZC")
    wire = decoded(whole, frame)[0]
    assert port.hpoc is not None
    dropped = list(port.hpoc.channels)
    if not port.format.name.startswith("GBF"):
        assert (wire[..., dropped] == DUMMY).all()
    assert (np.abs(wire[..., dropped] - DUMMY) <= 2).all()
    kept = [channel for channel in range(wire.shape[-1]) if channel not in dropped]
    answer = decoded(port, frame)
    assert np.array_equal(layout.to_wire(answer, port.axes, port.shape), wire[..., kept])
    assert answer.min() > 290


def test_frames_whose_bytes_are_the_callers_need_no_copy() -> None:
    def verbatim(array: Any, **changes: Any) -> bool:
        frame = Port(0, **changes).verbatim(array)
        assert frame is None or (np.shares_memory(frame, array) and frame.tobytes() == array.tobytes())
        return frame is not None

    array = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    image = np.zeros((1, 2, 2, 3), np.uint8)
    assert verbatim(array, shape=(2, 3, 1, 4))
    assert verbatim(image, shape=(2, 2, 1, 3), format=PortFormat.RGB888)
    assert not verbatim(array, shape=(3, 4, 1, 2), layout="NCHW")
    assert not verbatim(array[:, :, ::-1], shape=(2, 3, 1, 4))
    assert not verbatim(array.astype(">f4"), shape=(2, 3, 1, 4))
    assert not verbatim(array, shape=(2, 3, 1, 4), hpoc=Hpoc((2, 3, 1, 5), (4,)))
    assert not verbatim(array, shape=(2, 3, 1, 4), range_convert=RangeConvert(0.0, 2.0))
    assert not verbatim(array, shape=(2, 3, 1, 4), format=PortFormat.BF16)
    assert not verbatim(image[:, :1, :1], shape=(1, 1, 1, 3), format=PortFormat.RGB888)
    # three channels of GBF80 are 12 bytes, as three floats are
    assert not verbatim(
        array.reshape(-1)[:3].reshape(1, 1, 1, 3), shape=(1, 1, 1, 3), format=PortFormat.GBF80
    )


def converting(form: PortFormat, shift: float, scale: float, shape: Shape = (1, 1, 1, 6)) -> Port:
    return Port(0, format=form, shape=shape, layout="NC", range_convert=RangeConvert(shift, scale))


def test_the_shift_comes_before_the_scale() -> None:
    array = np.array([[0, 1, 2, 3, -1, 0.5]], np.float32)
    frame = encoded(converting(PortFormat.FLOAT32, 2.0, 10.0), array)
    assert np.frombuffer(frame, "<f4").tolist() == [20, 30, 40, 50, 10, 25]
    assert array[0].tolist() == [0, 1, 2, 3, -1, 0.5]


def test_an_image_port_with_a_range_takes_floats_and_saturates() -> None:
    port = converting(PortFormat.RGB888, 1.0, 127.5)
    assert port.spec.dtype == np.float32
    array = np.array([[-1, 0, 1, 9, -9, np.nan]], np.float32)
    assert list(encoded(port, array)) == [0, 127, 255, 255, 0, 0, 0, 0]
    extreme = np.array([[np.inf, -np.inf, 3e38, -3e38, 0.999, -0.999]], np.float32)
    assert list(encoded(port, extreme)) == [255, 0, 255, 0, 254, 0, 0, 0]
    assert Port(0, format=PortFormat.RGB888).spec.dtype == np.uint8


@some
@given(ports(FLOATS), st.sampled_from([(0.0, 1.0), (-127.5, 1 / 128), (3.0, -4.0)]))
def test_what_was_converted_comes_back(port: Port, conversion: tuple[float, float]) -> None:
    shift, scale = conversion
    converted = Port(
        0, format=port.format, shape=port.shape, layout=port.layout, range_convert=RangeConvert(shift, scale)
    )
    array = tensor(port)
    wire = decoded(port, encoded(converted, array))
    within = np.abs(wire).max() * 2.0**-7
    assert np.abs(wire - (array + np.float32(shift)) * np.float32(scale)).max() <= within
    assert np.abs(decoded(converted, encoded(converted, array)) - array).max() <= within / abs(scale) + 1e-4


@pytest.mark.parametrize(
    ("shift", "scale"),
    [(0.0, 0.0), (math.nan, 1.0), (math.inf, 1.0), (1e39, 1.0), (0.0, math.nan), (0.0, 1e39)],
)
def test_a_range_that_nothing_comes_back_from(shift: float, scale: float) -> None:
    with pytest.raises(ArtifactError, match="no range is converted by"):
        RangeConvert(shift, scale)


@pytest.mark.parametrize("form", [PortFormat.FLOAT32, PortFormat.RGB888])
@pytest.mark.parametrize(
    "array",
    [
        np.zeros((1, 6), ">f4"),
        np.zeros((1, 6), np.float64),
        np.zeros((1, 6), np.uint8),
        np.zeros((1, 5), np.float32),
        np.zeros(6, np.float32),
        np.zeros((6, 1), np.float32),
    ],
)
def test_other_tensors_are_refused_before_anything_is_written(form: PortFormat, array: Any) -> None:
    port = converting(form, 0.0, 1.0)
    frame = np.full(port.nbytes, 0xEE, np.uint8)
    with pytest.raises(ContractError, match=r"came to the port of float32\[1, 6\]"):
        port.encode(array, frame)
    assert set(frame.tolist()) == {0xEE}
