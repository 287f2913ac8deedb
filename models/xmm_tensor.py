"""Tensors of an NPU: in which region they lie, how their elements look, and how their rows are padded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, final

__all__ = [
    "ALIGNMENT",
    "MAX_BATCH",
    "MAX_DIMS",
    "NpuType",
    "Region",
    "XmmTensor",
    "aligned",
    "batched",
    "packed_offsets",
]

MAX_DIMS: Final = 8
"""Axes of a tensor."""
MAX_BATCH: Final = 32
"""Items of a dynamic batch."""
ALIGNMENT: Final = 8
"""Bytes to which tensors of one side are packed, and the start of every buffer."""


@final
class Region(IntEnum):
    """What a tensor is, and so in which stretch of memory it lies; numbers are those of the file."""

    INPUT = 0
    CONST = 1
    OUTPUT = 2
    WORKSPACE = 3


@final
class NpuType(IntEnum):
    """Element types, as the library and the file number them."""

    INT8 = 0
    UINT8 = 1
    INT16 = 2
    UINT16 = 3
    FP16 = 4
    INT32 = 5
    FP32 = 6
    INT4 = 7
    UINT12 = 8
    UINT10 = 9


@final
@dataclass(frozen=True, slots=True)
class XmmTensor:
    """One tensor as it lies in memory.

    Attributes:
        name: as the file has it.
        region: where it lies.
        offset: of its first byte in its region.
        dims: extents, outermost first.
        pitches: bytes between neighbours along each axis; rows may be padded.
        type: of an element.
        size: bytes, padding included.
        scale: real = (stored - zero_point) * scale. 1 and 0 mean plain numbers.
        zero_point: likewise.
        id: its number in the file.
    """

    name: str
    region: Region
    offset: int
    dims: tuple[int, ...]
    pitches: tuple[int, ...]
    type: NpuType
    size: int
    scale: float = 1.0
    zero_point: int = 0
    id: int = 0

    @property
    def elements(self) -> int:
        """How many it has."""
        return math.prod(self.dims)


def aligned(size: int, to: int = ALIGNMENT) -> int:
    """Round up."""
    return -(-size // to) * to


def batched(size: int, batch: int) -> int:
    """Return the bytes of so many items of a tensor: each begins at a multiple of 8, if there are several."""
    return size if batch == 1 else aligned(size) * batch


def packed_offsets(sizes: list[int]) -> list[int]:
    """Return where tensors of these sizes lie behind their common base: each at the next multiple of 8."""
    offsets, at = list[int](), 0
    for size in sizes:
        offsets.append(at)
        at += aligned(size)
    return offsets
