"""Writes `.xmm` files as the real ones are: by the numbers of the fields, with the flatbuffers package."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

from .errors import ArtifactError
from .extras import load_flatbuffers
from .npu_code import Sizes
from .xmm import HIGH, Xmm, extent
from .xmm_header import XmmHeader
from .xmm_parts import (
    INFO,
    INFO_FIELDS,
    INPUTS,
    NODE_FIELDS,
    NODES,
    OUTPUTS,
    PRIVATE,
    PROGRAM_FIELDS,
    PROGRAMS,
    REUSE,
    ROOT_FIELDS,
    SHAPE_FIELDS,
    TENSOR_FIELDS,
    TENSORS,
    XmmNode,
)
from .xmm_tensor import Region, XmmTensor, aligned

__all__ = ["Draft", "redraft", "write_xmm"]

_ALIGNMENT: Final = 16  # of programs, parameters and tail
_MAX_SIZE: Final = 1 << 30
_WORD: Final = 4

_Builder: TypeAlias = Any  # flatbuffers has no types


@final
@dataclass(frozen=True, slots=True)
class Draft:
    """What is to be written.

    Attributes:
        name: of the model.
        version: of what makes it.
        codes: name and instructions of each program.
        params: the region of parameters.
        tensors: all of them, each with a number of its own.
        inputs: numbers of tensors.
        outputs: likewise.
        nodes: operators.
        reuse: type of memory reuse.
        private_data: or None.
        model_type: as the file has it.
    """

    name: str
    version: str
    codes: tuple[tuple[str, bytes], ...]
    params: bytes
    tensors: tuple[XmmTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[XmmNode, ...] = ()
    reuse: int = 0
    private_data: bytes | None = None
    model_type: int = HIGH

    @property
    def sizes(self) -> Sizes:
        """Bytes of the regions."""
        reach = (
            extent(each for each in self.tensors if each.region == region)
            for region in (Region.CONST, Region.WORKSPACE, Region.INPUT, Region.OUTPUT)
        )
        return Sizes(*reach)


def redraft(xmm: Xmm) -> Draft:
    """Return what to write for a file like one that was read."""
    return Draft(
        xmm.name,
        xmm.version,
        tuple((program.name, bytes(xmm.code(program))) for program in xmm.programs),
        bytes(xmm.parameters()),
        xmm.tensors,
        tuple(each.id for each in xmm.inputs),
        tuple(each.id for each in xmm.outputs),
        xmm.nodes,
        xmm.reuse,
        xmm.private_data,
        xmm.model_type,
    )


def write_xmm(draft: Draft) -> bytes:
    """Write a file that `Xmm.read` reads back: the same bytes for the same draft.

    Raises:
        ArtifactError: it would be larger than any that is read.
        ConfigError: flatbuffers is not installed.
    """
    body, offsets = b"", list[int]()
    for _, code in draft.codes:
        offsets.append(XmmHeader.SIZE + len(body))
        body += _filled(code)
    params = XmmHeader.SIZE + len(body)
    body += _filled(draft.params)
    tail = _Writer(draft, offsets, params).tail()
    header = XmmHeader(XmmHeader.SIZE + len(body), len(tail))
    if (size := header.body + header.tail) > _MAX_SIZE:
        raise ArtifactError(f".xmm: it would have {size} bytes, {_MAX_SIZE} are possible")
    return header.write() + body + tail


def _filled(part: bytes) -> bytes:
    return part + bytes(aligned(len(part), _ALIGNMENT) - len(part))


@final
class _Writer:
    """Makes the tail of one file; `at` are offsets in the file: of each program's code, and of parameters."""

    def __init__(self, draft: Draft, codes_at: Sequence[int], params_at: int) -> None:
        self._draft = draft
        self._codes_at = codes_at
        self._params_at = params_at
        self._b: _Builder = load_flatbuffers().Builder(1024)

    def tail(self) -> bytes:
        draft, b = self._draft, self._b
        parts = [
            (INFO, self._info()),
            (INPUTS, self._numbers(draft.inputs)),
            (OUTPUTS, self._numbers(draft.outputs)),
            (TENSORS, self._offsets([self._tensor(each) for each in draft.tensors])),
            (NODES, self._offsets([self._node(each) for each in draft.nodes])),
            (PROGRAMS, self._offsets([self._program(number) for number in range(len(draft.codes))])),
        ]
        if draft.private_data:
            parts.append((PRIVATE, b.CreateByteVector(draft.private_data)))

        def fill() -> None:
            b.PrependUint8Slot(REUSE, draft.reuse, 0)
            for field, offset in parts:
                b.PrependUOffsetTRelativeSlot(field, offset, 0)

        b.Finish(self._table(ROOT_FIELDS, fill))
        return bytes(b.Output())

    def _info(self) -> int:
        draft, b = self._draft, self._b
        name, version = b.CreateString(draft.name), b.CreateString(draft.version)

        def fill() -> None:
            b.PrependUOffsetTRelativeSlot(0, name, 0)
            b.PrependUOffsetTRelativeSlot(1, version, 0)
            b.PrependUint32Slot(2, draft.model_type, 0)

        return self._table(INFO_FIELDS, fill)

    def _tensor(self, tensor: XmmTensor) -> int:
        b = self._b
        name, shape = b.CreateString(tensor.name), self._shape(tensor)
        at, crc = self._stored(tensor)

        def fill() -> None:
            for field, number in ((0, tensor.id), (1, tensor.offset), (6, tensor.size), (7, at), (8, crc)):
                b.PrependUint32Slot(field, number, 0)
            b.PrependUint8Slot(2, int(tensor.region), 0)
            b.PrependUOffsetTRelativeSlot(3, shape, 0)
            b.PrependFloat32Slot(4, tensor.scale, None)
            b.PrependInt32Slot(5, tensor.zero_point, 0)
            b.PrependUOffsetTRelativeSlot(11, name, 0)

        return self._table(TENSOR_FIELDS, fill)

    def _stored(self, tensor: XmmTensor) -> tuple[int, int]:
        """Return where a constant lies in the file, and its checksum; zeros for other tensors."""
        if tensor.region != Region.CONST:
            return 0, 0
        content = self._draft.params[tensor.offset : tensor.offset + tensor.size]
        return self._params_at + tensor.offset, zlib.crc32(content)

    def _shape(self, tensor: XmmTensor) -> int:
        b = self._b
        dims, pitches = self._numbers(tensor.dims), self._numbers(tensor.pitches)

        def fill() -> None:
            b.PrependUOffsetTRelativeSlot(0, dims, 0)
            b.PrependUOffsetTRelativeSlot(1, pitches, 0)
            b.PrependUint8Slot(2, int(tensor.type), 0)
            b.PrependUint32Slot(3, len(tensor.dims), 0)

        return self._table(SHAPE_FIELDS, fill)

    def _node(self, node: XmmNode) -> int:
        b = self._b
        name = b.CreateString(node.name)
        inputs, outputs = self._numbers(node.inputs), self._numbers(node.outputs)

        def fill() -> None:
            b.PrependUOffsetTRelativeSlot(0, name, 0)
            b.PrependUint8Slot(3, node.device, 0)
            b.PrependUOffsetTRelativeSlot(4, inputs, 0)
            b.PrependUOffsetTRelativeSlot(5, outputs, 0)

        return self._table(NODE_FIELDS, fill)

    def _program(self, number: int) -> int:
        b, (name, code) = self._b, self._draft.codes[number]
        text = b.CreateString(name)
        sizes = self._draft.sizes
        regions = (sizes.params, sizes.work, sizes.inputs, sizes.outputs)
        total = sum(aligned(each, _ALIGNMENT) for each in regions)
        numbers = ((1, len(code)), (2, self._codes_at[number]), (3, zlib.crc32(code)), (4, total))

        def fill() -> None:
            b.PrependUOffsetTRelativeSlot(0, text, 0)
            for field, value in numbers:
                b.PrependUint32Slot(field, value, 0)

        return self._table(PROGRAM_FIELDS, fill)

    def _table(self, fields: int, fill: Callable[[], None]) -> int:
        self._b.StartObject(fields)
        fill()
        return int(self._b.EndObject())

    def _numbers(self, numbers: Sequence[int]) -> int:
        return self._vector(numbers, self._b.PrependUint32)

    def _offsets(self, offsets: Sequence[int]) -> int:
        return self._vector(offsets, self._b.PrependUOffsetTRelative)

    def _vector(self, entries: Sequence[int], prepend: Callable[[int], None]) -> int:
        self._b.StartVector(_WORD, len(entries), _WORD)
        for entry in reversed(entries):
            prepend(entry)
        return int(self._b.EndVector())
