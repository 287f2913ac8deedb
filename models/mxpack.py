"""MxPack: the tagged binary dictionary that a DFP file is made of.

All is little-endian. A dictionary is a u32 count and, for each entry, a key of 64 bytes padded with NUL,
one type byte and the value. A list (0x02) and an array (0xA2) are one element type, a u32 count and the
elements without tags. No length in a file is believed: each is held against the bytes that remain before
anything is made of it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeAlias, final

import numpy as np

from .errors import ArtifactError
from .spec import Array

__all__ = ["KEY_BYTES", "MAX_DEPTH", "MAX_VALUES", "Buffer", "Value", "decode", "encode"]

KEY_BYTES = 64
"""Width of a key on the wire."""
MAX_DEPTH = 16
"""Dictionaries and lists within each other; the outermost dictionary is the first."""
MAX_VALUES = 1 << 20
"""Values in a file. The elements of a numeric array (0xA2) stay packed and count as one."""

Buffer: TypeAlias = bytes | bytearray | memoryview
Value: TypeAlias = "dict[str, Value] | list[Value] | memoryview | str | int | float | bool | Array"
"""What `decode` makes: bytes are read-only views of the file, numeric arrays likewise."""


@final
class _Type(IntEnum):
    DICT = 0x01
    LIST = 0x02
    BYTES = 0x03
    U8 = 0x10
    I8 = 0x11
    U16 = 0x20
    I16 = 0x21
    U32 = 0x30
    I32 = 0x31
    U64 = 0x40
    I64 = 0x41
    F32 = 0x50
    ASCII = 0x60
    UTF8 = 0x61
    BOOL = 0x70
    ARRAY = 0xA2


_DTYPES: dict[_Type, np.dtype[Any]] = {
    _Type.U8: np.dtype("u1"),
    _Type.I8: np.dtype("i1"),
    _Type.U16: np.dtype("<u2"),
    _Type.I16: np.dtype("<i2"),
    _Type.U32: np.dtype("<u4"),
    _Type.I32: np.dtype("<i4"),
    _Type.U64: np.dtype("<u8"),
    _Type.I64: np.dtype("<i8"),
    _Type.F32: np.dtype("<f4"),
    _Type.BOOL: np.dtype("?"),
}
_SCALARS = {kind: struct.Struct(f"<{dtype.char}") for kind, dtype in _DTYPES.items()} | {
    _Type.U64: struct.Struct("<Q"),  # numpy's L and l are the machine's long: 4 bytes in struct's `<`
    _Type.I64: struct.Struct("<q"),
}
_UNSIGNED = (_Type.U8, _Type.U16, _Type.U32, _Type.U64)
_SIGNED = (_Type.I8, _Type.I16, _Type.I32, _Type.I64)
_KINDS: tuple[tuple[type | tuple[type, ...], _Type], ...] = (
    (bool, _Type.BOOL),  # before int, which it is
    (float, _Type.F32),
    ((bytes, bytearray, memoryview), _Type.BYTES),
    (np.ndarray, _Type.ARRAY),
    (Mapping, _Type.DICT),
    ((list, tuple), _Type.LIST),
)
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_ENTRY = KEY_BYTES + 1
_SMALLEST = {kind: scalar.size for kind, scalar in _SCALARS.items()} | {
    _Type.DICT: 4,
    _Type.LIST: 5,
    _Type.BYTES: 8,
    _Type.ASCII: 4,
    _Type.UTF8: 8,
    _Type.ARRAY: 5,
}


def decode(data: Buffer, offset: int = 0) -> dict[str, Value]:
    """Read the dictionary that begins at byte `offset`; what follows it is not looked at.

    Memory and time are bounded by the size of `data`, `MAX_VALUES` and `MAX_DEPTH`. Bytes and numeric
    arrays are views that keep `data` alive; everything else is new.

    Raises:
        ArtifactError: with the offset at which the bytes stop making sense.
    """
    return _Reader(memoryview(data).cast("B").toreadonly(), offset).dictionary(1)


def encode(value: Mapping[str, object]) -> bytes:
    """Write a dictionary, each integer in the smallest type that holds it (a list: all its elements).

    Floats become float32. Lists hold elements of one kind; numpy arrays keep their dtype.

    Raises:
        ArtifactError: a value or a key has no form in MxPack.
    """
    out = bytearray()
    _write_dictionary(out, value)
    return bytes(out)


@final
class _Reader:
    __slots__ = ("at", "values", "view")

    def __init__(self, view: memoryview, at: int) -> None:
        self.view = view
        self.at = at
        self.values = 0

    def dictionary(self, depth: int) -> dict[str, Value]:
        self.descend(depth)
        result: dict[str, Value] = {}
        for _ in range(self.count(_ENTRY, "entries")):
            start = self.at
            key = self.key()
            if key in result:
                raise ArtifactError(f"MxPack: the key {key!r} comes twice", offset=start)
            result[key] = self.value(self.kind(), depth)
        return result

    def key(self) -> str:
        start = self.at
        return self.text(bytes(self.take(KEY_BYTES)).partition(b"\0")[0], "ascii", start)

    def kind(self) -> _Type:
        tag = self.take(1)[0]
        try:
            return _Type(tag)
        except ValueError:
            raise ArtifactError(f"MxPack: {tag:#04x} is no type", offset=self.at - 1) from None

    def value(self, kind: _Type, depth: int) -> Value:
        self.values += 1
        if self.values > MAX_VALUES:
            raise ArtifactError(f"MxPack: more than {MAX_VALUES} values", offset=self.at)
        if (scalar := _SCALARS.get(kind)) is not None:
            number: int | float | bool = scalar.unpack(self.take(scalar.size))[0]
            return number
        match kind:
            case _Type.DICT:
                return self.dictionary(depth + 1)
            case _Type.BYTES:
                return self.take(self.length(_U64))
            case _Type.ASCII:
                return self.ascii()
            case _Type.UTF8:
                start = self.at
                return self.text(bytes(self.take(self.length(_U64))), "utf-8", start)
            case _:
                return self.elements(kind, depth + 1)

    def elements(self, kind: _Type, depth: int) -> Value:
        self.descend(depth)
        element = self.kind()
        count = self.count(_SMALLEST[element], "elements")
        dtype = _DTYPES.get(element)
        if kind is _Type.LIST or dtype is None:
            return [self.value(element, depth) for _ in range(count)]
        packed: Array = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        # a byte that is neither 0 nor 1 is no valid element of a bool array
        return np.not_equal(packed.view(np.uint8), 0) if element is _Type.BOOL else packed

    def ascii(self) -> str:
        # The length counts the closing NUL; where a writer did not count it, it still follows.
        start = self.at
        raw = bytes(self.take(self.length(_U32)))
        if not raw.endswith(b"\0"):
            raw += bytes(self.take(1))
        if not raw.endswith(b"\0"):
            raise ArtifactError("MxPack: a string does not end with NUL", offset=self.at - 1)
        return self.text(raw[:-1], "ascii", start)

    def text(self, raw: bytes, encoding: str, start: int) -> str:
        try:
            return raw.decode(encoding)
        except UnicodeDecodeError:
            raise ArtifactError(f"MxPack: text that is not {encoding}", offset=start) from None

    def descend(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise ArtifactError(f"MxPack: nested deeper than {MAX_DEPTH}", offset=self.at)

    def count(self, smallest: int, what: str) -> int:
        start = self.at
        count = self.length(_U32)
        if count * smallest > len(self.view) - self.at:
            raise ArtifactError(f"MxPack: {count} {what} do not fit in what is left", offset=start)
        return count

    def length(self, form: struct.Struct) -> int:
        length: int = form.unpack(self.take(form.size))[0]
        return length

    def take(self, size: int) -> memoryview:
        end = self.at + size
        if end > len(self.view):
            raise ArtifactError(
                f"MxPack: {size} bytes are wanted, {max(0, len(self.view) - self.at)} are left",
                offset=self.at,
            )
        taken = self.view[self.at : end]
        self.at = end
        return taken


def _write_dictionary(out: bytearray, value: Mapping[str, object]) -> None:
    out += _U32.pack(len(value))
    for key, item in value.items():
        if not key.isascii() or "\0" in key or len(key) > KEY_BYTES:
            raise ArtifactError(f"MxPack: {key!r} is no key: ASCII of at most {KEY_BYTES} bytes is")
        kind = _kind(item)
        out += key.encode().ljust(KEY_BYTES, b"\0")
        out.append(kind)
        _write(out, kind, item)


def _kind(value: object) -> _Type:
    for python, kind in _KINDS:
        if isinstance(value, python):
            return kind
    if isinstance(value, int):
        return _integer(value, value)
    if isinstance(value, str):
        return _Type.ASCII if value.isascii() and "\0" not in value else _Type.UTF8
    raise ArtifactError(f"MxPack: a {type(value).__name__} has no form")


def _integer(low: int, high: int) -> _Type:
    reach = max(high, -1 - low)  # i8 reaches 127 in both directions, by this measure
    for kind in _UNSIGNED if low >= 0 else _SIGNED:
        if reach >> (8 * _SCALARS[kind].size - (low < 0)) == 0:
            return kind
    raise ArtifactError(f"MxPack: no integer type holds {low} to {high}")


def _element(values: Sequence[object]) -> _Type:
    """The one type that every element of a list has."""
    numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
    if numbers and len(numbers) == len(values):
        return _integer(min(numbers), max(numbers))
    kinds = {_kind(value) for value in values} or {_Type.U8}
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == {_Type.ASCII, _Type.UTF8}:
        return _Type.UTF8
    raise ArtifactError(f"MxPack: a list holds {' and '.join(sorted(kind.name for kind in kinds))}")


def _write(out: bytearray, kind: _Type, value: Any) -> None:
    """Append a value that `_kind` or `_element` has found to be of this kind."""
    match kind:
        case _Type.DICT:
            _write_dictionary(out, value)
        case _Type.LIST:
            element = _element(value)
            out += bytes([element]) + _U32.pack(len(value))
            for item in value:
                _write(out, element, item)
        case _Type.ARRAY:
            _write_array(out, value)
        case _Type.BYTES:
            out += _U64.pack(memoryview(value).nbytes)
            out += value
        case _Type.ASCII:
            out += _U32.pack(len(value) + 1) + value.encode() + b"\0"
        case _Type.UTF8:
            raw = value.encode()
            out += _U64.pack(len(raw)) + raw
        case _:
            out += _pack_scalar(kind, value)


def _pack_scalar(kind: _Type, value: float) -> bytes:
    try:
        return _SCALARS[kind].pack(value)
    except OverflowError:
        raise ArtifactError(f"MxPack: float32 does not hold {value}") from None


def _write_array(out: bytearray, value: Array) -> None:
    if value.ndim == 1:
        little = value.dtype.newbyteorder("<")
        element = next((kind for kind, dtype in _DTYPES.items() if dtype == little), None)
        if element is None:
            raise ArtifactError(f"MxPack: an array of {value.dtype} has no form")
        out += bytes([element]) + _U32.pack(len(value)) + value.astype(little).tobytes()
        return
    if value.ndim == 0:
        raise ArtifactError("MxPack: an array without a dimension has no form")
    out += bytes([_Type.ARRAY]) + _U32.pack(len(value))
    for row in value:
        _write_array(out, row)
