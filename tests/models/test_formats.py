from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repertory.models import formats
from repertory.models.errors import ArtifactError, ContractError
from repertory.models.formats import PortFormat, Shape, frame_bytes

from .slow_formats import bf16, gbf80_frame, read_gbf80_word

few = settings(derandomize=True, deadline=None, max_examples=100)
many = settings(derandomize=True, deadline=None, max_examples=400)
extents = st.integers(1, 9)
shapes = st.tuples(extents, extents, extents, extents)
CONVERTED = [form for form in PortFormat if formats.convertible(form)]
SPECIAL = [
    *(0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x00008000, 0x00007FFF),
    *(0x3F800000, 0x3F808000, 0x3F807FFF, 0x3FFFFFFF, 0x3F7F8000, 0xBF800000),
    *(0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF, 0x7F800000, 0xFF800000),
    *(0x7FC00000, 0x7F800001, 0x7F807FFF, 0x7F808000, 0x7FFFFFFF, 0x7FFF8000, 0xFFFF8000, 0xFFFFFFFF),
]


@st.composite
def alike(draw: st.DrawFn) -> st.SearchStrategy[int]:
    """Numbers whose exponents lie so close together that all of a word's mantissas may live."""
    lowest = draw(st.integers(0, 243))
    exponents = st.integers(lowest, lowest + draw(st.integers(0, 12)))
    return st.builds(_bits, st.integers(0, 1), exponents, st.integers(0, 2**23 - 1))


def _bits(sign: int, exponent: int, fraction: int) -> int:
    return sign << 31 | exponent << 23 | fraction


@st.composite
def numbers(draw: st.DrawFn, shape: Shape) -> Any:
    """Float32 of this shape, of any bits."""
    bits = draw(st.one_of(st.just(st.integers(0, 2**32 - 1)), st.just(st.sampled_from(SPECIAL)), alike()))
    count = int(np.prod(shape))
    drawn = draw(
        st.lists(
            bits | st.sampled_from(SPECIAL) if draw(st.booleans()) else bits, min_size=count, max_size=count
        )
    )
    return np.array(drawn, np.uint32).view(np.float32).reshape(shape)


def encoded(array: Any, form: PortFormat) -> bytes:
    frame = np.full(frame_bytes(array.shape, form), 0xEE, np.uint8)
    formats.encode(array, form, frame)
    return frame.tobytes()


def decoded(frame: bytes, shape: Shape, form: PortFormat) -> Any:
    out = np.full(shape, 77, formats.native_dtype(form))
    formats.decode(np.frombuffer(frame, np.uint8), shape, form, out, slice(0, shape[3]))
    return out


def bits_of(array: Any) -> list[Any]:
    return list(array.view(np.uint32).tolist())


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
        ((1, 1, 1, 3), PortFormat.GBF80, 12),
        ((2, 2, 3, 1), PortFormat.BF16, 24),
        ((2, 2, 3, 1), PortFormat.GBF80, 120),
        ((2, 3, 3, 9), PortFormat.GBF80, 360),
        ((3, 1, 3, 9), PortFormat.GBF80_ROW, 180),
        ((224, 224, 1, 8), PortFormat.GBF80, 501_760),
        ((224, 224, 1, 3), PortFormat.GBF80_ROW, 501_760),
        ((640, 640, 1, 3), PortFormat.FLOAT32, 4_915_200),
    ],
)
def test_frame_bytes(shape: Shape, form: PortFormat, size: int) -> None:
    assert frame_bytes(shape, form) == size
    if formats.convertible(form):
        assert len(encoded(np.zeros(shape, formats.native_dtype(form)), form)) == size


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
def test_plain_numbers_come_back(shape: Shape, form: PortFormat, turned: bool) -> None:
    drawn = np.random.default_rng(7).integers(0, 256, shape[::-1] if turned else shape)
    array = drawn.astype(formats.native_dtype(form))
    array = array.T if turned else array
    frame = encoded(array, form)
    assert np.array_equal(decoded(frame, shape, form), array)
    assert not any(frame[array.nbytes :])


def test_float32_lies_little_endian_with_the_channel_last() -> None:
    frame = encoded(np.array([1.0, -2.0, 0.5, 0.0], np.float32).reshape(1, 2, 1, 2), PortFormat.FLOAT32)
    assert frame == bytes.fromhex("0000803f 000000c0 0000003f 00000000")


def test_every_bfloat16_and_its_roundings() -> None:
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    words = (high[:, None] | low).reshape(1024, 64, 1, 6)
    frame = np.frombuffer(encoded(words.view(np.float32), PortFormat.BF16), "<u2")
    assert frame.tolist() == [bf16(int(word)) for word in words.reshape(-1)]
    back = decoded(frame.tobytes(), words.shape, PortFormat.BF16)
    assert np.array_equal(back.view(np.uint32).reshape(-1), frame.astype(np.uint32) << 16)


@pytest.mark.parametrize(
    ("number", "half"),
    [
        (0x3F808000, 0x3F81),  # halves round away from zero
        (0xBF808000, 0xBF81),
        (0x7F7FFFFF, 0x7F80),  # the largest float32 becomes infinite
        (0x7F800001, 0x7F80),  # a NaN too, where only its lower bits tell
        (0x7FC00000, 0x7FC0),
        (0x7FFFFFFF, 0x8000),  # and one wraps into a zero
        (0xFFFFFFFF, 0x0000),
    ],
)
def test_how_bfloat16_rounds(number: int, half: int) -> None:
    array = np.array(number, np.uint32).view(np.float32).reshape(1, 1, 1, 1)
    assert encoded(array, PortFormat.BF16) == half.to_bytes(2, "little") + bytes(2)


def test_a_gbf80_word_worked_out_by_hand() -> None:
    # exponents 127 and 128: mantissas 0x80 >> 1 = 0x40 at bit 0, and 0xC0 at bit 9 with its sign at 17
    array = np.array([1.0, -3.0], np.float32).reshape(1, 1, 1, 2)
    word = (0x40 | 0xC0 << 9 | 1 << 17 | 128 << 72).to_bytes(10, "little")
    assert encoded(array, PortFormat.GBF80) == word + bytes(2)
    assert decoded(word + bytes(2), (1, 1, 1, 2), PortFormat.GBF80).reshape(-1).tolist() == [1.0, -3.0]


gbf80_shapes = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(1, 17))


@many
@given(st.data(), gbf80_shapes, st.booleans())
def test_gbf80_is_written_as_the_rules_say(data: st.DataObject, shape: Shape, pad_rows: bool) -> None:
    array = data.draw(numbers(shape))
    form = PortFormat.GBF80_ROW if pad_rows else PortFormat.GBF80
    rows = bits_of(array.reshape(shape[0], -1, shape[3]))
    assert encoded(array, form) == gbf80_frame(rows, pad_rows=pad_rows)


@pytest.mark.parametrize("channels", range(1, 18))
def test_every_number_of_channels(channels: int) -> None:
    chance = np.random.default_rng(channels)
    exponents = chance.integers(0, 256, (40, 1, 1)) + chance.integers(-12, 1, (40, 1, channels))
    bits = np.clip(exponents, 0, 255) << 23 | chance.integers(0, 1 << 23, exponents.shape)
    array = (bits | chance.integers(0, 2, bits.shape) << 31).astype(np.uint32).view(np.float32)
    array = array.reshape(4, 5, 2, channels)
    for form in (PortFormat.GBF80, PortFormat.GBF80_ROW):
        rows = bits_of(array.reshape(4, 10, channels))
        frame = encoded(array, form)
        assert frame == gbf80_frame(rows, pad_rows=form is PortFormat.GBF80_ROW)
        row = len(frame) // 4
        first = [
            number
            for at in range(0, -(-channels // 8) * 10, 10)
            for number in read_gbf80_word(frame[at : at + 10])
        ]
        assert bits_of(decoded(frame, (4, 5, 2, channels), form))[0][0][0] == first[:channels]
        assert row * 4 == len(frame)


def test_every_mantissa_is_read_under_every_exponent() -> None:
    fields = np.arange(1 << 9, dtype=object).reshape(-1, 8)
    words = [sum(int(field) << 9 * k for k, field in enumerate(row)) for row in fields]
    frame = b"".join(
        (word | exponent << 72).to_bytes(10, "little") for exponent in range(256) for word in words
    )
    shape = (256, len(words), 1, 8)
    wanted = [number for at in range(0, len(frame), 10) for number in read_gbf80_word(frame[at : at + 10])]
    assert decoded(frame, shape, PortFormat.GBF80).view(np.uint32).reshape(-1).tolist() == wanted


@pytest.mark.parametrize(
    ("shape", "form"),
    [
        ((90, 100, 1, 11), PortFormat.GBF80),  # several blocks of rows, the last one smaller
        ((90, 101, 1, 11), PortFormat.GBF80_ROW),
        ((1, 70_000, 1, 3), PortFormat.GBF80),  # several blocks of one row
        ((2, 3, 5000, 9), PortFormat.GBF80_ROW),  # a column alone is more than a block
    ],
)
def test_large_frames_are_as_small_ones(shape: Shape, form: PortFormat) -> None:
    array = np.random.default_rng(3).standard_normal(shape, np.float32)
    frame = encoded(array, form)
    rows = [encoded(array[at : at + 1], form) for at in range(shape[0])]
    used = shape[1] * shape[2] * -(-shape[3] // 8) * 10
    size = len(rows[0]) if form is PortFormat.GBF80_ROW else used
    assert frame == b"".join(row[:size] for row in rows) + bytes(len(frame) - size * shape[0])
    pixel = used // shape[1]
    for column in (0, shape[1] // 2, shape[1] - 1):
        alone = encoded(array[:1, column : column + 1], form)
        assert rows[0][column * pixel : (column + 1) * pixel] == alone[:pixel]
    whole = decoded(frame, shape, form)
    for row in {0, shape[0] - 1}:
        assert np.array_equal(whole[row : row + 1], decoded(rows[row], (1, *shape[1:]), form))
    assert np.abs(whole - array).max() < 0.1


@few
@given(shapes, st.sampled_from([PortFormat.BF16, PortFormat.GBF80, PortFormat.GBF80_ROW]), st.integers(0, 99))
def test_what_is_lost_is_bounded(shape: Shape, form: PortFormat, seed: int) -> None:
    chance = np.random.default_rng(seed)
    array = (chance.standard_normal(shape) * 10.0 ** chance.integers(-12, 12, shape)).astype(np.float32)
    lost = np.abs(decoded(encoded(array, form), shape, form).astype(np.float64) - array)
    largest = np.stack(
        [np.abs(array[..., c // 8 * 8 : c // 8 * 8 + 8]).max(-1) for c in range(shape[3])], axis=-1
    )
    shared = 0 if form is PortFormat.BF16 else largest
    assert (lost <= (np.abs(array) + shared) * 2.0**-8).all()


@pytest.mark.parametrize("form", [PortFormat.RGB565, PortFormat.YUV422])
def test_packed_pixels_have_no_array(form: PortFormat) -> None:
    assert formats.input_only(form)
    assert not formats.convertible(form)
    frame = np.zeros(frame_bytes((1, 2, 1, 3), form), np.uint8)
    array = np.zeros((1, 2, 1, 3), np.uint8)
    for use in (
        lambda: formats.native_dtype(form),
        lambda: formats.encode(array, form, frame),
        lambda: formats.decode(frame, (1, 2, 1, 3), form, array, slice(0, 3)),
    ):
        with pytest.raises(ArtifactError, match=f"{form.name} ports are not supported"):
            use()


@pytest.mark.parametrize("form", CONVERTED)
def test_what_the_port_does_not_have_is_a_bug_of_the_driver(form: PortFormat) -> None:
    shape = (1, 2, 1, 3)
    size = frame_bytes(shape, form)
    good = np.zeros(shape, formats.native_dtype(form))
    cases: list[tuple[Any, Any]] = [
        (good.astype(np.float64), np.zeros(size, np.uint8)),
        (good.astype(">f4"), np.zeros(size, np.uint8)),
        (good[0], np.zeros(size, np.uint8)),
        (good, np.zeros(size - 1, np.uint8)),
        (good, np.zeros(size + 4, np.uint8)),
        (good, np.zeros((size, 1), np.uint8)),
        (good, np.zeros(size, np.int8)),
        (good, np.zeros(2 * size, np.uint8)[::2]),
    ]
    for array, frame in cases:
        with pytest.raises(ContractError, match="came"):
            formats.encode(array, form, frame)
    with pytest.raises(ContractError, match=f"{size} bytes"):
        formats.decode(np.zeros(size + 1, np.uint8), shape, form, good, slice(0, 3))
