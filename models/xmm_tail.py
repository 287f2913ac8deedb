"""Bounded access to a FlatBuffer by the numbers of its fields, for nobody has published its schema.

The flatbuffers package checks nothing. Here every offset is held against the buffer before something is read
there, and what is read is counted, as what it costs here: tables that point at one another, or a thousand
times at the same bytes, end in an error and not in a loop.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, TypeVar, final

from .errors import ArtifactError
from .extras import load_flatbuffers

__all__ = ["MAX_NUMBERS", "MAX_TABLES", "Fields", "Tail"]

MAX_NUMBERS: Final = 1024
"""Numbers of one list: inputs or outputs of a model or of a node. Public samples hold 16 for a model."""

MAX_TABLES: Final = 8192
"""Tables of one vector: tensors, nodes, programs. Real files have hundreds."""

_Number = TypeVar("_Number", int, float)

_OFFSET: Final = struct.Struct("<I")
_BACK: Final = struct.Struct("<i")
_VTABLE: Final = struct.Struct("<HH")
_WORD: Final = 4
_SHARED: Final = 8  # times the buffer's size may be read: strings and vtables may be shared
_SMALL: Final = 4096
# what is made of a thing takes more memory than the thing; bytes that it counts for beside its own
_TABLE_COST: Final = 64
_NUMBER_COST: Final = 12
_CHARACTER_COST: Final = 1


@final
class Tail:
    """A FlatBuffer.

    Args:
        data: it.
        at: where it lies in the file, for errors.

    Raises:
        ConfigError: flatbuffers is not installed.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.package: Any = load_flatbuffers()
        self._at = at
        self._left = _SHARED * len(data) + _SMALL

    def root(self, wanted: int) -> Fields:
        """Return the root table; see `Fields`.

        Raises:
            ArtifactError: it does not lie within the buffer.
        """
        return Fields(self, self.pointed(0, "the root"), wanted)

    def pointed(self, position: int, what: str) -> int:
        """Follow the offset that is stored at a position."""
        (distance,) = self.unpacked(_OFFSET, position, what)
        return position + distance

    def unpacked(self, form: struct.Struct, position: int, what: str) -> tuple[int, ...]:
        """Read numbers at a position."""
        self.check(position, form.size, what)
        return form.unpack_from(self.data, position)

    def check(self, position: int, size: int, what: str) -> None:
        """Hold a stretch against the buffer, and count it.

        Raises:
            ArtifactError: it does not lie within, or too much was counted.
        """
        if position < 0 or position + size > len(self.data):
            raise self.error(f"{what} does not lie within the tail", position)
        self.count(size, position)

    def count(self, cost: int, position: int) -> None:
        """Count what is made of something.

        Raises:
            ArtifactError: it was too much by now.
        """
        self._left -= cost
        if self._left < 0:
            raise self.error("costs too much to read: the tail refers to the same bytes too often", position)

    def error(self, message: str, position: int) -> ArtifactError:
        """Make an error that tells where in the file it is."""
        return ArtifactError(f".xmm: {message}", offset=self._at + max(0, min(position, len(self.data))))


@final
class Fields:
    """A table: its fields by number, each read when it is asked for.

    Args:
        tail: the buffer.
        position: of the table.
        wanted: how many fields are of interest; the others may be anything.

    Raises:
        ArtifactError: the table or the list of its fields does not lie within the buffer.
    """

    __slots__ = ("_size", "_slots", "_table", "position", "tail")

    def __init__(self, tail: Tail, position: int, wanted: int) -> None:
        self.tail, self.position = tail, position
        tail.count(_TABLE_COST, position)
        (distance,) = tail.unpacked(_BACK, position, "a table")
        vtable, what = position - distance, "the list of a table's fields"
        length, self._size = tail.unpacked(_VTABLE, vtable, what)
        count = min((length - _VTABLE.size) // 2, wanted)
        if count < 0:
            raise tail.error(f"{what} has {length} bytes", vtable)
        self._slots = tail.unpacked(struct.Struct(f"<{count}H"), vtable + _VTABLE.size, what)
        tail.check(position, self._size, "a table")
        self._table = tail.package.Table(tail.data, position)

    def u8(self, number: int) -> int:
        """Return a byte; 0 where it is absent."""
        return self._scalar(number, self.tail.package.number_types.Uint8Flags, 0)

    def u32(self, number: int) -> int:
        """Return a number of 32 bits; 0 where it is absent."""
        return self._scalar(number, self.tail.package.number_types.Uint32Flags, 0)

    def s32(self, number: int) -> int:
        """Return a signed number of 32 bits; 0 where it is absent."""
        return self._scalar(number, self.tail.package.number_types.Int32Flags, 0)

    def f32(self, number: int, default: float) -> float:
        """Return a float."""
        return self._scalar(number, self.tail.package.number_types.Float32Flags, default)

    def text(self, number: int) -> str:
        """Return a string, what is no UTF-8 in it escaped; empty where it is absent."""
        octets = self.octets(number)
        self.tail.count(_CHARACTER_COST * len(octets), self.position)
        return octets.decode("utf-8", "backslashreplace")

    def octets(self, number: int) -> bytes:
        """Return a vector of bytes; empty where it is absent."""
        start, count = self._vector(number, 1)
        return self.tail.data[start : start + count]

    def numbers(self, number: int, *, most: int | None = None) -> tuple[int, ...]:
        """Return a vector of u32, or so many of its first entries; empty where it is absent.

        Raises:
            ArtifactError: there are more than `MAX_NUMBERS`, and all are asked for.
        """
        start, count = self._vector(number, _WORD)
        if most is None and count > MAX_NUMBERS:
            raise self.tail.error(f"a list of {count} numbers; {MAX_NUMBERS} are possible", start)
        count = count if most is None else min(count, most)
        self.tail.count(_NUMBER_COST * count, start)
        found: tuple[int, ...] = struct.unpack_from(f"<{count}I", self.tail.data, start)
        return found

    def table(self, number: int, wanted: int) -> Fields | None:
        """Return a table, or None where it is absent."""
        slot = self._slot(number, _WORD)
        return Fields(self.tail, self.tail.pointed(self.position + slot, "a table"), wanted) if slot else None

    def tables(self, number: int, wanted: int) -> Iterator[Fields]:
        """Give a vector of tables one by one; empty where it is absent.

        Raises:
            ArtifactError: there are more than `MAX_TABLES`: each costs much more than its bytes in the file.
        """
        start, count = self._vector(number, _WORD)
        if count > MAX_TABLES:
            raise self.tail.error(f"a vector of {count} tables; {MAX_TABLES} are possible", start)
        for place in range(start, start + count * _WORD, _WORD):
            yield Fields(self.tail, self.tail.pointed(place, "a table"), wanted)

    def _slot(self, number: int, size: int) -> int:
        """Return where a field lies in the table; 0 where it is absent."""
        slot = self._slots[number] if number < len(self._slots) else 0
        if slot and not _WORD <= slot <= self._size - size:
            raise self.tail.error(f"field {number} does not lie within its table", self.position)
        return slot

    def _scalar(self, number: int, flags: Any, default: _Number) -> _Number:
        slot = self._slot(number, flags.bytewidth)
        found: _Number = self._table.Get(flags, self.position + slot) if slot else default
        return found

    def _vector(self, number: int, width: int) -> tuple[int, int]:
        """Return where the first entry lies, and how many there are."""
        slot = self._slot(number, _WORD)
        if not slot:
            return 0, 0
        at = self.tail.pointed(self.position + slot, "a vector")
        (count,) = self.tail.unpacked(_OFFSET, at, "a vector")
        self.tail.check(at + _WORD, count * width, "a vector")
        return at + _WORD, count
