"""What the tail of an `.xmm` file tells, part by part: its tables, by the numbers of their fields.

The numbers were observed in six public files; names are inferred. Where private data and the type of memory
reuse lie is not known: `REUSE` and `PRIVATE` are numbers of our choice, which this package writes into models
for simulators, and reads in no others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from .errors import ArtifactError
from .xmm_layout import layout
from .xmm_numbers import native_dtype
from .xmm_tail import Fields
from .xmm_tensor import MAX_DIMS, NpuType, Region, XmmTensor

__all__ = [
    "INFO",
    "INFO_FIELDS",
    "INPUTS",
    "MAX_PROGRAMS",
    "NODES",
    "NODE_FIELDS",
    "OUTPUTS",
    "PRIVATE",
    "PROGRAMS",
    "PROGRAM_FIELDS",
    "REUSE",
    "ROOT_FIELDS",
    "SHAPE_FIELDS",
    "TENSORS",
    "TENSOR_FIELDS",
    "Placed",
    "XmmNode",
    "XmmProgram",
    "read_nodes",
    "read_programs",
    "read_tensors",
]

# fields of the root, and how many fields of each table are of interest
INFO: Final = 0
INPUTS: Final = 1
OUTPUTS: Final = 2
TENSORS: Final = 3
NODES: Final = 4
PROGRAMS: Final = 6
REUSE: Final = 15
PRIVATE: Final = 16
ROOT_FIELDS: Final = 17
INFO_FIELDS: Final = 3
SHAPE_FIELDS: Final = 4
TENSOR_FIELDS: Final = 12
NODE_FIELDS: Final = 6
PROGRAM_FIELDS: Final = 5

MAX_PROGRAMS: Final = 4
"""Programs of a file."""

_ADDRESSES: Final = 1 << 32
_KINDS: Final = tuple(Region)  # by number: they count from 0
_TYPES: Final = tuple(NpuType)
_CALLERS: Final = (Region.INPUT, Region.OUTPUT)


@final
@dataclass(frozen=True, slots=True)
class XmmProgram:
    """Instructions of an NPU.

    Attributes:
        name: as the file has it.
        offset: in the file.
        size: bytes.
        crc: CRC-32 of them.
        total: bytes of memory that a run takes beside them, as the file tells: parameters, workspace, inputs
            and outputs, each rounded up to 16. That was seen in four files; another sum is no error.
    """

    name: str
    offset: int
    size: int
    crc: int
    total: int


@final
@dataclass(frozen=True, slots=True)
class XmmNode:
    """One operator.

    Attributes:
        name: as the file has it.
        device: that runs it; 1 is an NPU.
        inputs: numbers of tensors.
        outputs: likewise.
    """

    name: str
    device: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor, and where its bytes lie in the file if it is constant.

    Attributes:
        tensor: it.
        at: offset in the file.
        crc: CRC-32 of the bytes.
    """

    tensor: XmmTensor
    at: int
    crc: int


def read_programs(root: Fields) -> tuple[XmmProgram, ...]:
    """Read what the file tells of its programs.

    Raises:
        ArtifactError: there are none, or more than four, or one has no code.
    """
    programs = tuple(
        XmmProgram(each.text(0), each.u32(2), each.u32(1), each.u32(3), each.u32(4))
        for each in root.tables(PROGRAMS, PROGRAM_FIELDS)
    )
    if not 1 <= len(programs) <= MAX_PROGRAMS:
        raise ArtifactError(f".xmm: {len(programs)} programs, 1 to {MAX_PROGRAMS} are possible")
    for program in programs:
        if not program.size:
            raise ArtifactError(f".xmm: program {program.name!r} has no code")
    return programs


def read_nodes(root: Fields) -> tuple[XmmNode, ...]:
    """Read what the file tells of its operators."""
    return tuple(
        XmmNode(each.text(0), each.u8(3), each.numbers(4), each.numbers(5))
        for each in root.tables(NODES, NODE_FIELDS)
    )


def read_tensors(root: Fields) -> tuple[Placed, ...]:
    """Read what the file tells of its tensors.

    Inputs and outputs must have extents of 1 or more, pitches under which no elements overlap, a size, and,
    where they are integers, a scale that is finite and above 0. Nobody reads elements of constants and
    workspace by their pitches, which may therefore be missing or anything, and their extents and sizes 0.

    Raises:
        ArtifactError: a tensor is of an unknown type or kind, or is malformed; names it.
    """
    return tuple(_placed(each) for each in root.tables(TENSORS, TENSOR_FIELDS))


def _placed(fields: Fields) -> Placed:
    name = fields.text(11)
    kind = fields.u8(2)
    if kind >= len(_KINDS):
        raise fields.tail.error(f"tensor {name!r}: kind {kind} is not known", fields.position)
    region = _KINDS[kind]
    dims, pitches, dtype = _shape(fields, name, region)
    scale, zero_point = fields.f32(4, 1.0), fields.s32(5)
    if native_dtype(dtype).kind == "f":
        scale, zero_point = 1.0, 0
    tensor = XmmTensor(
        name, region, fields.u32(1), dims, pitches, dtype, fields.u32(6), scale, zero_point, fields.u32(0)
    )
    _check(tensor)
    return Placed(tensor, fields.u32(7), fields.u32(8))


def _shape(fields: Fields, name: str, region: Region) -> tuple[tuple[int, ...], tuple[int, ...], NpuType]:
    """Read extents and pitches; behind those that are told to be valid lies garbage."""
    shape = fields.table(3, SHAPE_FIELDS)
    if shape is None:
        raise fields.tail.error(f"tensor {name!r} has no shape", fields.position)
    dtype, told = shape.u8(2), shape.u32(3)
    if dtype >= len(_TYPES):
        raise fields.tail.error(f"tensor {name!r}: element type {dtype} is not known", shape.position)
    dims = shape.numbers(0, most=min(told or MAX_DIMS + 1, MAX_DIMS + 1))
    pitches = shape.numbers(1, most=len(dims))
    if max(told, len(dims)) > MAX_DIMS:
        raise fields.tail.error(f"tensor {name!r}: more than {MAX_DIMS} axes", shape.position)
    missing = len(pitches) < len(dims) and (pitches or region in _CALLERS)
    if len(dims) < told or missing:
        raise fields.tail.error(
            f"tensor {name!r}: {told or len(dims)} axes, but {len(dims)} extents and {len(pitches)} pitches",
            shape.position,
        )
    return dims, pitches, _TYPES[dtype]


def _check(tensor: XmmTensor) -> None:
    if tensor.offset + tensor.size > _ADDRESSES:
        raise ArtifactError(f".xmm: tensor {tensor.name!r}: {tensor.size} bytes at {tensor.offset}")
    if tensor.region not in _CALLERS:
        return
    if not tensor.dims or not tensor.elements or not tensor.size:
        raise ArtifactError(
            f".xmm: tensor {tensor.name!r} is {list(tensor.dims)}, {tensor.size} bytes: empty"
        )
    if not (0 < tensor.scale < math.inf):
        raise ArtifactError(f".xmm: tensor {tensor.name!r} has a scale of {tensor.scale}")
    layout(tensor)
