"""Where the tensors of a network lie in a slot of shared memory; both processes work it out alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from mmap import mmap
from typing import Final, final

import numpy as np

from repertory.models.program import Network
from repertory.models.spec import Array, TensorSpec

from .messages import Inline

__all__ = ["Area", "Layout", "slot_size"]

_LINE: Final = 64
"""Bytes of a cache line: tensors begin at its multiples."""


@final
class Area:
    """The inputs of a network, or its outputs.

    Args:
        specs: in order; those with open extents have no place here.
        begin: offset in the slot.

    Attributes:
        end: offset behind the last tensor.
    """

    def __init__(self, specs: Sequence[TensorSpec], begin: int) -> None:
        self._places: list[tuple[TensorSpec, int | None]] = []
        self.end = begin
        for spec in specs:
            self._places.append((spec, self.end if spec.fixed else None))
            if spec.fixed:
                self.end += -(-spec.nbytes // _LINE) * _LINE

    def store(self, arrays: Sequence[Array], memory: mmap, base: int) -> list[Inline | None]:
        """Copy tensors into the slot at `base`; return those that have no place there, by position.

        Raises:
            ValueError: their number is not that of the specs.
        """
        rest: list[Inline | None] = []
        for (spec, offset), array in zip(self._places, arrays, strict=True):
            if offset is not None and array.shape == spec.shape and array.dtype == spec.dtype:
                np.copyto(_view(spec, memory, base + offset), array)
                rest.append(None)
            else:
                rest.append(Inline(array.dtype.str, array.shape, array.tobytes()))
        return rest if any(rest) else []

    def load(self, inline: Sequence[Inline | None], memory: mmap, base: int) -> Iterator[Array]:
        """Yield the tensors of the slot at `base`: those in memory as views, which the slot outlives."""
        for index, (spec, offset) in enumerate(self._places):
            beside = inline[index] if inline else None
            if beside is not None:
                yield np.frombuffer(bytearray(beside.data), beside.dtype).reshape(beside.shape)
            else:
                assert offset is not None, "what has no place comes beside"
                yield _view(spec, memory, base + offset)


@final
class Layout:
    """The areas of one network in a slot: inputs first."""

    def __init__(self, network: Network) -> None:
        self.inputs = Area(network.inputs, 0)
        self.outputs = Area(network.outputs, self.inputs.end)


def slot_size(layouts: Sequence[Layout]) -> int:
    """Return the bytes that a slot needs for any of these networks; never none."""
    return max(_LINE, *(layout.outputs.end for layout in layouts))


def _view(spec: TensorSpec, memory: mmap, offset: int) -> Array:
    shape = [dim for dim in spec.shape if isinstance(dim, int)]
    return np.ndarray(shape, spec.dtype, memory, offset)
