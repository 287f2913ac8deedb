"""`.xmm` files made by hand: FlatBuffers by the numbers of their fields, without any package."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any

__all__ = [
    "CODE",
    "GARBAGE",
    "PARAMS",
    "Table",
    "built",
    "file",
    "patched",
    "root",
    "sealed",
    "shape",
    "tensor",
]

GARBAGE = 0xDEADBEEF
CODE = bytes(range(32))
PARAMS = bytes(range(100, 124))


class Table(dict[int, Any]):
    """Fields by number: packed bytes stand for scalars, str for strings, lists for vectors."""


def built(root: Table) -> bytes:
    """Lay out a FlatBuffer, every table behind what points to it."""
    out = bytearray(4)
    _point(out, 0, root)
    return bytes(out)


def _point(out: bytearray, at: int, value: Any) -> None:
    """Lay a value at the end, and write at a place how far it is from there."""
    out += bytes(-len(out) % 4)
    if isinstance(value, Table):
        target = _table(out, value)
    elif isinstance(value, str | bytes):
        target = len(out)
        data = value.encode() if isinstance(value, str) else value
        out += struct.pack("<I", len(data)) + data + b"\0"
    else:
        target = len(out)
        out += struct.pack("<I", len(value)) + bytes(4 * len(value))
        for place, entry in enumerate(value, 1):
            if isinstance(entry, int):
                struct.pack_into("<I", out, target + 4 * place, entry)
            else:
                _point(out, target + 4 * place, entry)
    struct.pack_into("<I", out, at, target - at)


def _table(out: bytearray, fields: Mapping[int, Any]) -> int:
    vtable, count = len(out), max(fields, default=-1) + 1
    out += bytes(4 + 2 * count)
    out += bytes(-len(out) % 4)
    position = len(out)
    out += struct.pack("<i", position - vtable) + bytes(4 * len(fields))
    struct.pack_into("<HH", out, vtable, 4 + 2 * count, 4 + 4 * len(fields))
    for slot, (number, value) in enumerate(fields.items(), 1):
        struct.pack_into("<H", out, vtable + 4 + 2 * number, 4 * slot)
        if isinstance(value, Packed):
            out[position + 4 * slot : position + 4 * slot + len(value.data)] = value.data
        else:
            _point(out, position + 4 * slot, value)
    return position


class Packed:
    """A scalar."""

    def __init__(self, form: str, value: float) -> None:
        self.data = struct.pack(form, value)


def u8(value: int) -> Packed:
    return Packed("<B", value)


def u32(value: int) -> Packed:
    return Packed("<I", value)


def f32(value: float) -> Packed:
    return Packed("<f", value)


def s32(value: int) -> Packed:
    return Packed("<i", value)


def shape(dims: list[int], pitches: list[int], dtype: int = 0, ndims: int | None = None) -> Table:
    made = Table({0: dims, 1: pitches})
    if dtype:
        made[2] = u8(dtype)
    if ndims is not None:
        made[3] = u32(ndims)
    return made


def tensor(name: str, layout: Table, *, size: int, **more: float) -> Table:
    """Make a tensor, without the fields that have their defaults."""
    made = Table({3: layout, 6: u32(size), 11: name})
    made.update({number: u32(int(more[key])) for key, number in _NUMBERS.items() if key in more})
    if "kind" in more:
        made[2] = u8(int(more["kind"]))
    if "scale" in more:
        made[4] = f32(more["scale"])
    if "zero_point" in more:
        made[5] = s32(int(more["zero_point"]))
    return made


_NUMBERS = {"id": 0, "offset": 1, "at": 7, "crc": 8}


def root(**changes: Any) -> Table:
    """A model with one of everything, and fields that nobody knows; garbage lies behind what is valid."""
    spare = [GARBAGE] * 4
    weights = zlib.crc32(PARAMS[:16])
    bias = zlib.crc32(PARAMS[16:20])
    fields = {
        "info": Table({0: "net", 1: "b581eee4c  Dec 15 2025", 2: u32(3)}),
        "inputs": [0],
        "outputs": [7, 5],
        "tensors": [
            tensor("image", shape([1, 2, 2, 3, *spare], [16, 8, 3, 1, *spare], 1, 4), size=16),
            tensor("weights", shape([4, 4], [4, 1]), size=16, kind=1, id=1, at=48, crc=weights),
            tensor("bias", shape([1], [4], 5), size=4, kind=1, id=2, offset=16, at=64, crc=bias),
            tensor("middle", shape([1, 8], []), size=8, kind=3, id=3, offset=40),
            tensor("scores", shape([1, 3], [6, 2], 4), size=6, kind=2, id=5, offset=16),
            tensor(
                "boxes",
                shape([1, 10, *spare], [10, 1, *spare], 1, 2),
                size=10,
                kind=2,
                id=7,
                scale=0.25,
                zero_point=192,
            ),
        ],
        "nodes": [Table({0: "tvmgen_default_fused_xm_conv2d", 3: u8(1), 4: [0, 1, 2], 5: [7]})],
        "programs": [Table({0: "main", 1: u32(32), 2: u32(16), 3: u32(zlib.crc32(CODE)), 4: u32(128)})],
    } | changes
    numbers = {"info": 0, "inputs": 1, "outputs": 2, "tensors": 3, "nodes": 4, "programs": 6}
    known = {numbers[key]: value for key, value in fields.items() if value is not None}
    return Table(known | {7: [Table({0: "subgraph"})], 14: u32(123456), 15: Table(), 16: u32(7), 18: "what"})


def file(tail: bytes | None = None, *, body: bytes = CODE + PARAMS + bytes(8)) -> bytes:
    """A whole file: header, code, parameters, tail."""
    tail = built(root()) if tail is None else tail
    return sealed(bytes(16) + body + tail, 16 + len(body))


def sealed(data: bytes, body: int) -> bytes:
    """Write the header that belongs to a file whose tail begins at `body`."""
    sizes = struct.pack("<II", body, len(data) - body)
    return b"ZZZZ" + struct.pack("<I", zlib.crc32(sizes)) + sizes + data[16:]


def patched(data: bytes, at: int, part: bytes) -> bytes:
    return data[:at] + part + data[at + len(part) :]
