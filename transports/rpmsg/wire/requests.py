"""Requests as bytes: those that are the same in all versions, and what INFER has in common.

Every function is pure, and raises ValueError for a number that its field cannot hold. `seq` is a u32 that
the reply repeats.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from .messages import (
    INLINE_INPUTS,
    MAX_DIMS,
    MAX_INPUTS,
    MAX_REPEAT,
    Descriptor,
    Job,
    Malformed,
    Opcode,
)

__all__ = [
    "DESCRIPTOR_SIZE",
    "HEADER",
    "dyn_load",
    "dyn_unload",
    "get_status",
    "infer",
    "model_load",
    "model_unload",
    "pack_descriptors",
    "ping",
    "set_printf_buf",
    "unpack_descriptors",
]

HEADER: Final = "<IIIi"
"""How every message begins: opcode, seq, bytes in all, status (0 in requests)."""

_BARE: Final = Struct(HEADER)
_LOAD: Final = Struct(HEADER + "II8x")
_UNLOAD: Final = Struct(HEADER + "I")
_PRINTF: Final = Struct(HEADER + "QI4x")
_DESCRIPTOR: Final = Struct("<QQiiii6q")
_KV_RESIDENT: Final = 1 << 16
_UNUSED: Final = (0,) * MAX_DIMS

DESCRIPTOR_SIZE: Final = _DESCRIPTOR.size
"""Bytes of one packed descriptor."""


def ping(seq: int) -> bytes:
    """PING, 16 bytes; answered by `Pong`."""
    return _pack(_BARE, Opcode.PING, seq, _BARE.size)


def get_status(seq: int) -> bytes:
    """GET_STATUS, 16 bytes; answered by `StatusReply`."""
    return _pack(_BARE, Opcode.GET_STATUS, seq, _BARE.size)


def dyn_load(seq: int, elf_size: int) -> bytes:
    """DYN_LOAD, 32 bytes, of the `elf_size` bytes at the staging area's start; answered by `Loaded`."""
    return _pack(_LOAD, Opcode.DYN_LOAD, seq, _LOAD.size, elf_size, 0)


def dyn_unload(seq: int, handle: int) -> bytes:
    """DYN_UNLOAD, 20 bytes; answered by `Done`."""
    return _pack(_UNLOAD, Opcode.DYN_UNLOAD, seq, _UNLOAD.size, handle)


def model_load(seq: int, weights_size: int) -> bytes:
    """MODEL_LOAD, 32 bytes, of `weights_size` bytes of staged weights; answered by `WeightsLoaded`."""
    return _pack(_LOAD, Opcode.MODEL_LOAD, seq, _LOAD.size, weights_size, 0)


def model_unload(seq: int, model: int) -> bytes:
    """MODEL_UNLOAD, 20 bytes; answered by `Done`."""
    return _pack(_UNLOAD, Opcode.MODEL_UNLOAD, seq, _UNLOAD.size, model)


def set_printf_buf(seq: int, address: int, size: int) -> bytes:
    """SET_PRINTF_BUF, 32 bytes: from version 3 on, text goes to `size` bytes at `address`; `Done`."""
    return _pack(_PRINTF, Opcode.SET_PRINTF_BUF, seq, _PRINTF.size, address, size)


def infer(seq: int, job: Job, inline: Struct, large: Struct, *spans: int) -> bytes:
    """INFER, or INFER_LARGE where `job.table` is given, by the formats of one version.

    Args:
        seq: repeated by the reply, which is `Inferred`.
        job: what is to run.
        inline: of INFER, up to its descriptors.
        large: of INFER_LARGE.
        spans: what the version appends to the fields that all have.

    Raises:
        ValueError: as `Wire.infer` says.
    """
    _check(job)
    flags = job.repeat | (_KV_RESIDENT if job.kv_resident else 0)
    head = (job.handle, job.model, len(job.inputs), flags)
    if job.table is not None:
        table = (job.table.address, job.table.size, 0)
        return _pack(large, Opcode.INFER_LARGE, seq, large.size, *head, *table, *spans)
    descriptors = pack_descriptors(job.inputs)
    size = inline.size + len(descriptors)
    return _pack(inline, Opcode.INFER, seq, size, *head, *spans) + descriptors


def pack_descriptors(descriptors: tuple[Descriptor, ...]) -> bytes:
    """Return 80 bytes for each; what an INFER ends with, and what a table is.

    Raises:
        ValueError: a shape of more than 6 extents or with a negative one, or a number beyond its field.
    """
    return b"".join([_packed(descriptor) for descriptor in descriptors])


def unpack_descriptors(data: bytes | memoryview, count: int) -> tuple[Descriptor, ...]:
    """Read the first `count` descriptors of `data`; what follows them is left alone.

    Raises:
        Malformed: `data` is too short, or a shape has not 0 to 6 extents, none of them negative.
    """
    if len(data) < count * DESCRIPTOR_SIZE:
        raise Malformed(f"{len(data)} bytes do not hold {count} descriptors of {DESCRIPTOR_SIZE}")
    return tuple([_unpacked(data, index * DESCRIPTOR_SIZE) for index in range(count)])


def _check(job: Job) -> None:
    count = len(job.inputs)
    if not 1 <= count <= MAX_INPUTS:
        raise ValueError(f"{count} inputs: an inference takes 1 to {MAX_INPUTS}")
    if count > INLINE_INPUTS and job.table is None:
        raise ValueError(f"{count} inputs: more than {INLINE_INPUTS} need a table")
    if not 1 <= job.repeat <= MAX_REPEAT:
        raise ValueError(f"repeat {job.repeat}: not within 1 to {MAX_REPEAT}")


def _packed(descriptor: Descriptor) -> bytes:
    shape = descriptor.shape
    if len(shape) > MAX_DIMS or min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}: not up to {MAX_DIMS} extents of 0 or more")
    try:
        return _DESCRIPTOR.pack(
            descriptor.address,
            descriptor.size,
            len(shape),
            descriptor.code,
            descriptor.bits,
            descriptor.position,
            *shape,
            *_UNUSED[len(shape) :],
        )
    except error as problem:
        raise ValueError(f"{descriptor} has a number beyond its field") from problem


def _unpacked(data: bytes | memoryview, offset: int) -> Descriptor:
    address, size, dims, code, bits, position, *extents = _DESCRIPTOR.unpack_from(data, offset)
    if not 0 <= dims <= MAX_DIMS:
        raise Malformed(f"the descriptor at byte {offset} claims {dims} extents, not 0 to {MAX_DIMS}")
    shape = tuple(extents[:dims])
    if min(shape, default=0) < 0:
        raise Malformed(f"the descriptor at byte {offset} has a negative extent in {shape}")
    return Descriptor(address, size, code, bits, shape, position)


def _pack(layout: Struct, opcode: Opcode, seq: int, size: int, *fields: int) -> bytes:
    try:
        return layout.pack(opcode, seq, size, 0, *fields)
    except error as problem:
        raise ValueError(f"{opcode.name} {seq}: a number of {fields} is beyond its field") from problem
