"""The first 16 bytes of an `.xmm` file: what tells how long its two halves are."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final, final

from .errors import ArtifactError

__all__ = ["XmmHeader", "is_xmm"]

_MAGIC: Final = b"ZZZZ"
_WORDS: Final = struct.Struct("<4sIII")
_SIZES_AT: Final = 8


def is_xmm(data: bytes | bytearray | memoryview) -> bool:
    """Whether a file begins as an `.xmm` does; one that ends in `.bin` may be one."""
    return bytes(data[: len(_MAGIC)]) == _MAGIC


@final
@dataclass(frozen=True, slots=True)
class XmmHeader:
    """How long the halves of a file are.

    Attributes:
        body: bytes of header, code and parameters: where the tail begins.
        tail: bytes of the tail, a FlatBuffer.
    """

    SIZE = _WORDS.size
    """Bytes of a header."""

    body: int
    tail: int

    @classmethod
    def read(cls, data: bytes) -> XmmHeader:
        """Read a file's header and hold it against the file's size.

        Raises:
            ArtifactError: it is no `.xmm`, its checksum is wrong, or the file is longer or shorter.
        """
        if not is_xmm(data):
            raise ArtifactError("no .xmm file: it does not begin with ZZZZ", offset=0)
        if len(data) < _WORDS.size:
            raise ArtifactError(f".xmm: {len(data)} bytes, its header alone has {_WORDS.size}")
        _, crc, body, tail = _WORDS.unpack_from(data)
        if crc != (actual := zlib.crc32(data[_SIZES_AT : _WORDS.size])):
            raise ArtifactError(
                f".xmm: the header's checksum is {actual:#010x}, it tells {crc:#010x}", offset=4
            )
        if body < _WORDS.size or body + tail != len(data):
            raise ArtifactError(
                f".xmm: {len(data)} bytes, the header tells {body} and a tail of {tail}", offset=_SIZES_AT
            )
        return cls(body, tail)

    def write(self) -> bytes:
        """Write a header that `read` reads back."""
        sizes = struct.pack("<II", self.body, self.tail)
        return struct.pack("<4sI", _MAGIC, zlib.crc32(sizes)) + sizes
