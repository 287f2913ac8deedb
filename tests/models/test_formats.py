from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repertory.models import formats
from repertory.models.errors import ArtifactError, ContractError
from repertory.models.formats import PortFormat, Shape, frame_bytes

few = settings(derandomize=True, deadline=None, max_examples=100)
extents = st.integers(1, 9)
shapes = st.tuples(extents, extents, extents, extents)


# Worked out by hand from the rules: (3, 5, 1, 3) has 15 pixels and 45 numbers; (2, 3, 1, 17) needs three
# words of ten bytes a pixel; (3, 1, 1, 8) pads each row of 10 bytes to 12, and the whole 30 to 32.
@pytest.mark.parametrize(
    ("shape", "form", "size"),
    [
        ((3, 5, 1, 3), PortFormat.FLOAT32, 180),
        ((3, 5, 1, 3), PortFormat.BF16, 92),
        ((3, 5, 1, 3), PortFormat.RGB888, 48),
        ((3, 5, 1, 3), PortFormat.RGB565, 30),
        ((3, 5, 1, 3), PortFormat.YUV422, 30),
        ((3, 5, 1, 3), PortFormat.GBF80, 152),
        ((3, 5, 1, 3), PortFormat.GBF80_ROW, 156),
        ((2, 3, 1, 17), PortFormat.GBF80, 180),
        ((2, 3, 1, 17), PortFormat.GBF80_ROW, 184),
        ((3, 1, 1, 8), PortFormat.GBF80, 32),
        ((3, 1, 1, 8), PortFormat.GBF80_ROW, 36),
        ((1, 1, 1, 9), PortFormat.GBF80, 20),
        ((2, 2, 3, 1), PortFormat.BF16, 24),
        ((2, 2, 3, 1), PortFormat.GBF80, 120),
        ((640, 640, 1, 3), PortFormat.FLOAT32, 4_915_200),
    ],
)
def test_frame_bytes(shape: Shape, form: PortFormat, size: int) -> None:
    assert frame_bytes(shape, form) == size


def test_the_device_numbers_its_formats() -> None:
    assert [form.value for form in PortFormat] == [0, 1, 2, 3, 4, 5, 6]
    assert PortFormat(5).name == "FLOAT32"


@few
@given(shapes, st.sampled_from(PortFormat))
def test_frames_are_padded_to_words_where_pixels_are_not(shape: Shape, form: PortFormat) -> None:
    size = frame_bytes(shape, form)
    assert size > 0
    assert size % (2 if form in (PortFormat.RGB565, PortFormat.YUV422) else 4) == 0


@few
@given(shapes, st.sampled_from([PortFormat.FLOAT32, PortFormat.RGB888]), st.booleans())
def test_round_trip(shape: Shape, form: PortFormat, turned: bool) -> None:
    numbers = np.random.default_rng(7).integers(0, 256, shape[::-1] if turned else shape)
    array = numbers.astype(formats.native_dtype(form))
    array = array.T if turned else array
    frame = np.full(frame_bytes(shape, form), 0xEE, np.uint8)
    formats.encode(array, form, frame)
    assert np.array_equal(formats.decode(frame, shape, form), array)
    assert not frame[array.nbytes :].any()


def test_float32_lies_little_endian_with_the_channel_last() -> None:
    frame = np.empty(16, np.uint8)
    formats.encode(np.array([1.0, -2.0, 0.5, 0.0], np.float32).reshape(1, 2, 1, 2), PortFormat.FLOAT32, frame)
    assert frame.tobytes() == bytes.fromhex("0000803f 000000c0 0000003f 00000000")


def test_decoding_is_a_view_where_nothing_is_converted() -> None:
    frame = np.zeros(16, np.uint8)
    array = formats.decode(frame, (1, 2, 1, 2), PortFormat.FLOAT32)
    frame[3] = 0x80
    assert np.signbit(array.reshape(-1)[0])


@pytest.mark.parametrize("form", [PortFormat.BF16, PortFormat.GBF80, PortFormat.GBF80_ROW])
def test_formats_without_conversion_say_so(form: PortFormat) -> None:
    assert not formats.convertible(form)
    assert formats.native_dtype(form) == np.float32
    frame = np.zeros(frame_bytes((1, 1, 1, 8), form), np.uint8)
    with pytest.raises(ArtifactError, match=f"{form.name} ports cannot be converted"):
        formats.decode(frame, (1, 1, 1, 8), form)
    with pytest.raises(ArtifactError, match=form.name):
        formats.encode(np.zeros((1, 1, 1, 8), np.float32), form, frame)


@pytest.mark.parametrize("form", [PortFormat.RGB565, PortFormat.YUV422])
def test_packed_pixels_have_no_array(form: PortFormat) -> None:
    assert formats.input_only(form)
    with pytest.raises(ArtifactError, match=f"{form.name} ports are not supported"):
        formats.native_dtype(form)


@pytest.mark.parametrize(
    ("array", "size"),
    [
        (np.zeros((1, 2, 1, 2), np.float64), 16),
        (np.zeros((1, 2, 2), np.float32), 16),
        (np.zeros((1, 2, 1, 2), np.float32), 15),
        (np.zeros((1, 2, 1, 2), np.float32), 20),
    ],
)
def test_what_the_port_does_not_have_is_a_bug_of_the_driver(array: np.ndarray, size: int) -> None:
    with pytest.raises(ContractError, match="came"):
        formats.encode(array, PortFormat.FLOAT32, np.zeros(size, np.uint8))


def test_a_buffer_of_another_size_is_not_decoded() -> None:
    with pytest.raises(ContractError, match="16 bytes"):
        formats.decode(np.zeros(17, np.uint8), (1, 2, 1, 2), PortFormat.FLOAT32)
