"""Where the elements of an NPU's tensor lie: bits of a type, pitches, padding.

INT4, UINT10 and UINT12 have names in the vendor's header and no description. That they are packed as one
stream of bits, the lowest first, is INFERRED: the one public model with UINT10 takes 2592000 bytes, which are
1920 x 1080 elements of 10 bits. The pitches decide which axes such a stream spans, so that each element lies
in bytes of its own where the pitch of the last axis says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

from .errors import ArtifactError
from .xmm_tensor import NpuType, XmmTensor, aligned

__all__ = ["BITS", "Layout", "axes", "layout", "packed_pitches", "packed_size", "row_axis"]

BITS: Final = {
    NpuType.INT8: 8,
    NpuType.UINT8: 8,
    NpuType.INT16: 16,
    NpuType.UINT16: 16,
    NpuType.FP16: 16,
    NpuType.INT32: 32,
    NpuType.FP32: 32,
    NpuType.INT4: 4,
    NpuType.UINT12: 12,
    NpuType.UINT10: 10,
}
"""Of an element."""

_CHANNELS = 3  # by which the layout of an image is told


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """Runs of elements, and where they begin.

    Attributes:
        outer: extents of the axes that pitches are for.
        strides: bytes between neighbours along each of them.
        run: elements that lie one behind the other without a gap: 1 where an element fills its bytes.
        run_bytes: that they take, the last of them rounded up.
    """

    outer: tuple[int, ...]
    strides: tuple[int, ...]
    run: int
    run_bytes: int


def layout(tensor: XmmTensor) -> Layout:
    """Return where a tensor's elements lie.

    Raises:
        ArtifactError: its pitches let elements overlap, or leave its size; names it.
    """
    found = _layout(tensor.dims, tensor.pitches, tensor.type, tensor.size)
    if found is None:
        raise ArtifactError(
            f"tensor {tensor.name!r}: {tensor.type.name}{list(tensor.dims)} does not lie in"
            f" {tensor.size} bytes with pitches of {list(tensor.pitches)} bytes"
        )
    return found


def packed_pitches(dims: Sequence[int], type: NpuType, *, row: int = 1) -> tuple[int, ...]:  # noqa: A002
    """Return the pitches of a tensor whose rows begin at multiples of `row` bytes, without other gaps.

    The last pitch is 0 for types that do not fill bytes: their rows are streams of bits.
    """
    bits, pitches, at = BITS[type], [0] * len(dims), row_axis(dims)
    size = bits // 8 if bits % 8 == 0 else 0
    for axis in reversed(range(len(dims))):
        pitches[axis] = size = aligned(size, row) if axis == at else size
        size = size * dims[axis] if size else -(-bits * dims[axis] // 8)
    return tuple(pitches)


def packed_size(dims: Sequence[int], pitches: Sequence[int], type: NpuType) -> int:  # noqa: A002
    """Return the bytes of a tensor with these pitches, with the padding of its last row."""
    return max(pitches[0] * dims[0], -(-BITS[type] * math.prod(dims) // 8))


def row_axis(dims: Sequence[int]) -> int:
    """Return the axis of which rows are the items: the last but one, or that before it in an NHWC image."""
    return 1 if axes(dims) == "NHWC" else len(dims) - 2


def axes(dims: Sequence[int]) -> str:
    """Tell `NCHW` from `NHWC` by the extent of 3; empty where it does not tell."""
    if len(dims) != len("NCHW") or dims[1] == dims[3] or _CHANNELS not in (dims[1], dims[3]):
        return ""
    return "NCHW" if dims[1] == _CHANNELS else "NHWC"


@lru_cache(maxsize=1024)
def _layout(dims: tuple[int, ...], pitches: tuple[int, ...], kind: NpuType, size: int) -> Layout | None:
    """Find the fewest axes that a stream of bits may span; types of whole bytes have no stream."""
    bits = BITS[kind]
    last = 0 if bits % 8 else len(dims)
    for axis in range(len(dims), last - 1, -1):
        run = math.prod(dims[axis:])
        found = Layout(dims[:axis], pitches[:axis], run, -(-run * bits // 8))
        if _fits(found, size):
            return found
    return None


def _fits(found: Layout, size: int) -> bool:
    """Whether no two runs overlap, and all lie in so many bytes; pitches may be in any order."""
    extent = found.run_bytes
    for pitch, count in sorted(zip(found.strides, found.outer, strict=True)):
        if count > 1:
            if pitch < extent:
                return False
            extent += pitch * (count - 1)
    return extent <= size
