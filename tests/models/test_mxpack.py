from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repertory.models import mxpack
from repertory.models.errors import ArtifactError

from .mutate import mutations

few = settings(derandomize=True, deadline=None, max_examples=200)

integers = st.integers(-(2**63), 2**64 - 1)
floats = st.floats(width=32, allow_nan=False)
keys = st.text(st.characters(min_codepoint=1, max_codepoint=127), max_size=mxpack.KEY_BYTES)
scalars = st.booleans() | integers | floats | st.text() | st.binary()


def lists_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    kinds = [
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        floats,
        st.text(),
        st.binary(),
        st.lists(values),
    ]
    return st.one_of([st.lists(kind, max_size=4) for kind in kinds[:5]]) | st.lists(
        st.dictionaries(keys, values, max_size=2), max_size=3
    )


values = st.recursive(
    scalars, lambda inner: lists_of(inner) | st.dictionaries(keys, inner, max_size=3), max_leaves=12
)


def key(name: bytes) -> bytes:
    return name + bytes(64 - len(name))


# Written by hand from the description of the format, entry by entry.
GOLDEN = [
    (key(b"model") + b"\x10" + b"\x07", "model", 7),
    (key(b"i8") + b"\x11" + b"\xff", "i8", -1),
    (key(b"u16") + b"\x20" + b"\x2c\x01", "u16", 300),
    (key(b"i16") + b"\x21" + b"\xd4\xfe", "i16", -300),
    (key(b"u32") + b"\x30" + b"\x00\x00\x01\x00", "u32", 65536),
    (key(b"i32") + b"\x31" + b"\xff\x7f\xff\xff", "i32", -32769),
    (key(b"u64") + b"\x40" + bytes(4) + b"\x01" + bytes(3), "u64", 2**32),
    (key(b"i64") + b"\x41" + b"\xff" * 3 + b"\x7f" + b"\xff" * 4, "i64", -(2**31) - 1),
    (key(b"f32") + b"\x50" + b"\x00\x00\xc0\x3f", "f32", 1.5),
    (key(b"ascii") + b"\x60" + b"\x03\x00\x00\x00hi\x00", "ascii", "hi"),
    (key(b"utf8") + b"\x61" + b"\x02" + bytes(7) + b"\xc3\xa9", "utf8", "é"),
    (key(b"flag") + b"\x70" + b"\x01", "flag", True),
    (key(b"bytes") + b"\x03" + b"\x03" + bytes(7) + b"abc", "bytes", b"abc"),
    (key(b"list") + b"\x02" + b"\x20" + b"\x02\x00\x00\x00" + b"\x01\x00\x2c\x01", "list", [1, 300]),
    (
        key(b"nested") + b"\x02\x02" + b"\x02\x00\x00\x00" + b"\x10\x01\x00\x00\x00\x05" + b"\x10" + bytes(4),
        "nested",
        [[5], []],
    ),
    (key(b"dict") + b"\x01" + b"\x01\x00\x00\x00" + key(b"a") + b"\x10\x01", "dict", {"a": 1}),
    (
        key(b"dicts")
        + b"\x02\x01"
        + b"\x02\x00\x00\x00"
        + bytes(4)
        + b"\x01\x00\x00\x00"
        + key(b"a")
        + b"\x10\x09",
        "dicts",
        [{}, {"a": 9}],
    ),
]


@pytest.mark.parametrize(("raw", "name", "value"), GOLDEN, ids=[entry[1] for entry in GOLDEN])
def test_golden_entries_in_both_directions(raw: bytes, name: str, value: Any) -> None:
    data = b"\x01\x00\x00\x00" + raw
    decoded = mxpack.decode(data)
    assert decoded == {name: value}
    assert type(decoded[name]) is type(value) or isinstance(decoded[name], memoryview)
    assert mxpack.encode({name: value}) == data


def test_golden_file_of_all_entries() -> None:
    data = struct.pack("<I", len(GOLDEN)) + b"".join(raw for raw, _, _ in GOLDEN)
    assert mxpack.decode(b"head" + data + b"tail", 4) == {name: value for _, name, value in GOLDEN}


def test_array_is_read_without_a_copy_and_written_with_its_dtype() -> None:
    raw = key(b"a") + b"\xa2" + b"\x21" + b"\x02\x00\x00\x00" + b"\x01\x00\xff\xff"
    array = mxpack.decode(b"\x01\x00\x00\x00" + raw)["a"]
    assert isinstance(array, np.ndarray)
    assert array.dtype == np.int16
    assert array.tolist() == [1, -1]
    assert not array.flags.owndata
    assert mxpack.encode({"a": array}) == b"\x01\x00\x00\x00" + raw


def test_two_dimensional_array_becomes_its_rows() -> None:
    rows = mxpack.decode(mxpack.encode({"a": np.array([[1, 2], [3, 4]], np.float32)}))["a"]
    assert isinstance(rows, list)
    assert np.array_equal(np.array(rows), [[1, 2], [3, 4]])


def test_bool_array_has_only_true_and_false() -> None:
    array = mxpack.decode(
        b"\x01\x00\x00\x00" + key(b"a") + b"\xa2\x70" + b"\x03\x00\x00\x00" + b"\x00\x01\x07"
    )["a"]
    assert isinstance(array, np.ndarray)
    assert array.tolist() == [False, True, True]
    assert array.view(np.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize("length", [b"\x02\x00\x00\x00", b"\x03\x00\x00\x00"])
def test_string_is_read_whether_or_not_its_length_counts_the_nul(length: bytes) -> None:
    raw = key(b"s") + b"\x60" + length + b"hi\x00" + key(b"t") + b"\x10\x05"
    assert mxpack.decode(b"\x02\x00\x00\x00" + raw) == {"s": "hi", "t": 5}


@few
@given(st.dictionaries(keys, values, max_size=4))
def test_round_trip(value: dict[str, Any]) -> None:
    assert mxpack.decode(mxpack.encode(value)) == value


@few
@given(st.integers(-(2**63), 2**64 - 1))
def test_an_integer_takes_the_fewest_bytes(value: int) -> None:
    size = len(mxpack.encode({"": value})) - 4 - 64 - 1
    assert size in (1, 2, 4, 8)
    holds = [n for n in (1, 2, 4, 8) if -(1 << 8 * n - 1) <= value < 0 or 0 <= value < 1 << 8 * n]
    assert size == holds[0]


def fails_cleanly(data: bytes) -> bool:
    try:
        mxpack.decode(data)
    except ArtifactError as error:
        return error.offset is not None
    return True


@given(st.binary(max_size=200))
@settings(derandomize=True, deadline=None, max_examples=500)
def test_random_bytes_give_only_artifact_errors(data: bytes) -> None:
    assert fails_cleanly(data)


def test_changed_bytes_give_only_artifact_errors() -> None:
    raw = struct.pack("<I", len(GOLDEN)) + b"".join(entry for entry, _, _ in GOLDEN)
    assert all(fails_cleanly(data) for data in mutations(raw, 5000))


HUGE = [
    b"\x01\x00\x00\x00" + key(b"a") + b"\x03" + struct.pack("<Q", 2**63),
    b"\x01\x00\x00\x00" + key(b"a") + b"\x61" + struct.pack("<Q", 2**63),
    b"\x01\x00\x00\x00" + key(b"a") + b"\x60" + b"\xff" * 4,
    b"\x01\x00\x00\x00" + key(b"a") + b"\x02\x10" + b"\xff" * 4,
    b"\x01\x00\x00\x00" + key(b"a") + b"\x02\x02" + b"\xff" * 4,
    b"\x01\x00\x00\x00" + key(b"a") + b"\xa2\x41" + b"\xff" * 4,
    b"\x01\x00\x00\x00" + key(b"a") + b"\x01" + b"\xff" * 4,
    b"\xff\xff\xff\xff",
]


@pytest.mark.parametrize("data", HUGE)
def test_a_huge_length_allocates_nothing(data: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(ArtifactError, match="at byte"):
        mxpack.decode(data + bytes(100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 16


def test_nesting_is_limited_at_exactly_the_limit() -> None:
    def nested(levels: int) -> dict[str, Any]:
        return {"a": nested(levels - 1)} if levels > 1 else {}

    value = nested(mxpack.MAX_DEPTH)
    assert mxpack.decode(mxpack.encode(value)) == value
    with pytest.raises(ArtifactError, match="nested deeper than 16"):
        mxpack.decode(mxpack.encode({"a": value}))


def test_lists_nested_for_ever_are_refused() -> None:
    data = b"\x01\x00\x00\x00" + key(b"a") + b"\x02" + b"\x02\x01\x00\x00\x00" * 100_000
    with pytest.raises(ArtifactError, match="nested deeper"):
        mxpack.decode(data)


def test_the_number_of_values_is_limited() -> None:
    count = mxpack.MAX_VALUES + 1
    data = b"\x01\x00\x00\x00" + key(b"a") + b"\x02\x10" + struct.pack("<I", count) + bytes(count)
    with pytest.raises(ArtifactError, match="more than"):
        mxpack.decode(data)


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (b"\x01\x00", "4 bytes are wanted, 2 are left", 0),
        (b"\x01\x00\x00\x00" + key(b"a") + b"\x02\x10" + b"\x03\x00\x00\x00ab", "3 elements do not fit", 70),
        (b"\x02\x00\x00\x00" + key(b"a") + b"\x10\x00", "2 entries do not fit", 0),
        (b"\x01\x00\x00\x00" + key(b"a") + b"\x99\x00", "0x99 is no type", 68),
        (b"\x02\x00\x00\x00" + (key(b"a") + b"\x10\x00") * 2, "'a' comes twice", 70),
        (b"\x01\x00\x00\x00" + key(b"\xff") + b"\x10\x00", "not ascii", 4),
        (b"\x01\x00\x00\x00" + key(b"a") + b"\x60\x02\x00\x00\x00hixy", "does not end with NUL", 75),
    ],
)
def test_errors_say_where(data: bytes, message: str, offset: int) -> None:
    with pytest.raises(ArtifactError, match=message) as caught:
        mxpack.decode(data)
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    "value",
    [2**64, -(2**63) - 1, 1e300, object(), [1, "a"], [2**63, -1], np.zeros(()), np.zeros(2, np.float64)],
)
def test_what_has_no_form_is_refused(value: object) -> None:
    with pytest.raises(ArtifactError):
        mxpack.encode({"a": value})


@pytest.mark.parametrize("name", ["é", "a" * 65, "a\0b"])
def test_what_is_no_key_is_refused(name: str) -> None:
    with pytest.raises(ArtifactError, match="no key"):
        mxpack.encode({name: 1})


def test_large_bytes_are_views_of_the_file() -> None:
    data = mxpack.encode({"a": bytes(1 << 20)})
    view = mxpack.decode(data)["a"]
    assert isinstance(view, memoryview)
    assert view.obj is data
    assert view.readonly
