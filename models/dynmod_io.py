"""The record by which a module for wire version 3 tells how much it takes and gives ("TIOM")."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from .errors import ArtifactError
from .program import Network
from .spec import TensorSpec

__all__ = ["DynmodIo", "room"]

_RECORD: Final = struct.Struct("<IIIIQQII")
_MAGIC = 0x4D4F4954
_VERSION = 1
_EXACT = 1
_ALIGNMENT = 64


def room(specs: Sequence[TensorSpec]) -> int:
    """Bytes of these tensors one behind the other, each rounded up to 64."""
    return sum(-(-spec.nbytes // _ALIGNMENT) * _ALIGNMENT for spec in specs)


@final
@dataclass(frozen=True, slots=True)
class DynmodIo:
    """Counts and bytes of a module's tensors; there are no shapes and no dtypes in it.

    Attributes:
        inputs: how many.
        outputs: likewise.
        input_bytes: room for all inputs.
        output_bytes: likewise.
        exact: whether the bytes are what one run moves, and not only a bound.
    """

    SIZE = _RECORD.size
    """Bytes of a record."""

    inputs: int
    outputs: int
    input_bytes: int
    output_bytes: int
    exact: bool

    @classmethod
    def of(cls, network: Network) -> DynmodIo:
        """Tell what a network takes and gives."""
        return cls(
            len(network.inputs), len(network.outputs), room(network.inputs), room(network.outputs), exact=True
        )

    @classmethod
    def read(cls, data: bytes) -> DynmodIo:
        """Read a record.

        Raises:
            ArtifactError: it is none, or is of another version than 1.
        """
        if len(data) < _RECORD.size:
            raise ArtifactError(f"the record of tensors has {len(data)} bytes, {_RECORD.size} are wanted")
        magic, version, inputs, outputs, input_bytes, output_bytes, flags, _ = _RECORD.unpack_from(data)
        if magic != _MAGIC:
            raise ArtifactError(f"the record of tensors begins with {magic:#010x}, {_MAGIC:#010x} is wanted")
        if version != _VERSION:
            raise ArtifactError(f"the record of tensors has version {version}, {_VERSION} is known")
        return cls(inputs, outputs, input_bytes, output_bytes, bool(flags & _EXACT))

    def write(self) -> bytes:
        """Write a record that `read` reads back."""
        counts = (self.inputs, self.outputs, self.input_bytes, self.output_bytes)
        return _RECORD.pack(_MAGIC, _VERSION, *counts, _EXACT if self.exact else 0, 0)

    def check(self, network: Network) -> None:
        """Compare with a description of the tensors.

        Bytes contradict where the tensors need more than the record tells, or, if it is exact, less even
        with each rounded up to 64 bytes: whether real modules count that padding is not known.

        Raises:
            ArtifactError: says what contradicts.
        """
        sides = (
            ("inputs", self.inputs, self.input_bytes, network.inputs),
            ("outputs", self.outputs, self.output_bytes, network.outputs),
        )
        for what, count, size, specs in sides:
            if len(specs) != count:
                raise ArtifactError(
                    f"{network.name}: {len(specs)} {what} are described, the module tells {count}"
                )
            needed = sum(spec.nbytes for spec in specs)
            if needed > size or (self.exact and room(specs) < size):
                raise ArtifactError(
                    f"{network.name}: the {what} described are {needed} bytes, the module tells {size}"
                )
