"""How results lie in memory: every tensor aligned, and descriptors of many behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from repertory.models.spec import Array
from repertory.transports.rpmsg.memory import ALIGNMENT, aligned

from .protocol import DESCRIPTOR_SIZE, INLINE_OUTPUTS, write_tensor

__all__ = ["Layout", "lay_out"]

_CODES: Final = {"i": 0, "u": 1, "f": 2, "b": 1}


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """A result on its way to memory.

    Attributes:
        parts: address and bytes of each stretch.
        count: of outputs.
        inline: descriptors for the reply, where they go there.
        table: address and bytes of the descriptors in memory, or zeros.
        size: bytes from the result's start to its end.
    """

    parts: tuple[tuple[int, memoryview], ...]
    count: int
    inline: bytes
    table: tuple[int, int]
    size: int


def lay_out(outputs: Sequence[Array], start: int) -> Layout:
    """Place outputs from `start` on."""
    parts: list[tuple[int, memoryview]] = []
    described: list[bytes] = []
    at = start
    for index, output in enumerate(outputs):
        array = np.ascontiguousarray(output)
        parts.append((at, array.reshape(-1).view(np.uint8).data))
        code, bits = _CODES[array.dtype.kind], array.dtype.itemsize * 8
        described.append(write_tensor(at, array.nbytes, output.shape, code=code, bits=bits, index=index))
        at += aligned(array.nbytes, ALIGNMENT)
    descriptors = b"".join(described)
    if len(outputs) <= INLINE_OUTPUTS:
        return Layout(tuple(parts), len(outputs), descriptors, (0, 0), at - start)
    parts.append((at, memoryview(descriptors)))
    table = (at, len(outputs) * DESCRIPTOR_SIZE)
    return Layout(tuple(parts), len(outputs), b"", table, at + table[1] - start)
