"""Stage 4: what may be asked for, checked before the library sees it: a block's name and its size."""

from __future__ import annotations

import operator
from typing import Final, SupportsIndex, cast

from repertory.models.checks import is_a

from .statuses import misuse

__all__ = ["block_name", "block_size"]

_CALL: Final = "xmedia_mmz_alloc"
_NAME: Final = 15  # bytes, without the NUL
_SIZES: Final = 1 << 32


def block_name(name: str) -> bytes:
    """Return a block's name for the library, which would cut off what is too long.

    Raises:
        NpuRefusal: it is no text of 1 to 15 bytes, or holds a NUL.
    """
    data = name.encode(errors="replace") if is_a(name, str) else b""
    if not 0 < len(data) <= _NAME or b"\0" in data:
        raise misuse(4, _CALL, f"name {name!r} came, a text of 1 to {_NAME} bytes is wanted")
    return data


def block_size(name: str, size: int) -> int:
    """Return a block's size, 0 included, as Python's own number.

    Raises:
        NpuRefusal: it is no whole number, negative, or more than 32 bits tell.
    """
    if is_a(size, bool) or not is_a(size, SupportsIndex):
        raise misuse(4, _CALL, f"{name}: size {size!r} came, a whole number of bytes is wanted")
    whole = operator.index(cast("SupportsIndex", size))
    if not 0 <= whole < _SIZES:
        raise misuse(4, _CALL, f"{name}: {whole} bytes; 0 to {_SIZES - 1} are possible")
    return whole
