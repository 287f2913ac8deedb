"""Replies from bytes: the kinds that are the same in all versions, and what the others have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias, final

from repertory.transports.rpmsg.errors import OutOfMemory, Status

from .messages import (
    MAX_OUTPUTS,
    Descriptor,
    Done,
    Inferred,
    IoMeta,
    Loaded,
    Malformed,
    Opcode,
    Pong,
    Reply,
    Span,
    StatusReply,
    WeightsLoaded,
)
from .requests import DESCRIPTOR_SIZE, HEADER, unpack_descriptors

__all__ = ["KINDS", "REPLY", "Kind", "inferred", "loaded", "parse"]

REPLY: Final = 0x1000
"""What a reply's opcode has, and its request's has not."""

Read: TypeAlias = Callable[[bytes, int, int], Reply]

_HEADER: Final = Struct(HEADER)
_BODY: Final = _HEADER.size
_PONG: Final = Struct("<II")
_STATUS: Final = Struct("<IIII")
_WEIGHTS: Final = Struct("<IIIII")
_NOTHING: Final = Struct("<")
_OPCODES: Final = frozenset(Opcode)


@final
@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of reply.

    Attributes:
        body: the least that follows the header; a later minor version may append to it.
        read: makes the reply of a message that is long enough, its seq and its status.
    """

    body: Struct
    read: Read


def parse(message: bytes, kinds: Mapping[int, Kind]) -> Reply:
    """Read a reply by the kinds of one version, keyed by the request's opcode.

    A refusal of 16 bytes is `Done`, whatever was asked. The length in the header proves nothing: the
    firmware does not look at it either; only one beyond the message tells that something is missing.

    Raises:
        Malformed: as `Wire.parse` says.
    """
    if len(message) < _BODY:
        raise Malformed(f"a message of {len(message)} bytes is shorter than its header of {_BODY}")
    kind, seq, claimed, status = _HEADER.unpack_from(message)
    opcode = kind ^ REPLY
    if opcode not in _OPCODES:
        raise Malformed(f"0x{kind:04X} is the opcode of no reply")
    if claimed > len(message):
        raise Malformed(f"{Opcode(opcode).name}: {claimed} bytes announced, {len(message)} arrived")
    if len(message) == _BODY and status < 0:
        return Done(seq, status, opcode)
    known = kinds.get(opcode)
    if known is None:
        raise Malformed(f"{Opcode(opcode).name} has no reply of its own but a refusal")
    if len(message) < _BODY + known.body.size:
        raise Malformed(
            f"{Opcode(opcode).name}: a reply of {len(message)} bytes, not {_BODY + known.body.size}"
        )
    return known.read(message, seq, status)


def loaded(body: Struct) -> Kind:
    """Return the answer to DYN_LOAD; what `body` has beyond version 2 is the module's io."""

    def read(message: bytes, seq: int, status: int) -> Loaded:
        handle, _text, _data, requested, free, total, *io = body.unpack_from(message, _BODY)
        return Loaded(seq, status, handle, OutOfMemory(requested, free, total), _io(*io) if any(io) else None)

    return Kind(body, read)


def inferred(body: Struct) -> Kind:
    """Return the answer to INFER and INFER_LARGE; `body` ends where its descriptors begin.

    What `body` has beyond version 2 is the size that the result should have had.
    """

    def read(message: bytes, seq: int, status: int) -> Inferred:
        value, cycles, count, text, address, size, requested, free, total, *required = body.unpack_from(
            message, _BODY
        )
        fine = status >= 0
        at_table = fine and address != 0
        return Inferred(
            seq,
            status,
            value,
            cycles,
            count,
            _inline(message, _BODY + body.size, count) if fine and not at_table else (),
            Span(address, size) if at_table else None,
            text,
            OutOfMemory(requested, free, total),
            required[0] if required and status == Status.SIZE else None,
        )

    return Kind(body, read)


def _inline(message: bytes, start: int, count: int) -> tuple[Descriptor, ...]:
    if count > MAX_OUTPUTS:
        return ()
    held = (len(message) - start) // DESCRIPTOR_SIZE
    if count > held:
        raise Malformed(f"INFER: {count} outputs, {held} of them in the message, and no table")
    return unpack_descriptors(memoryview(message)[start:], count)


def _io(input_bytes: int, output_bytes: int, inputs: int, outputs: int, flags: int) -> IoMeta:
    return IoMeta(inputs, outputs, input_bytes, output_bytes, exact=bool(flags & 1))


def _pong(message: bytes, seq: int, status: int) -> Pong:
    return Pong(seq, status, *_PONG.unpack_from(message, _BODY))


def _status(message: bytes, seq: int, status: int) -> StatusReply:
    return StatusReply(seq, status, *_STATUS.unpack_from(message, _BODY))


def _weights(message: bytes, seq: int, status: int) -> WeightsLoaded:
    model, constants, *oom = _WEIGHTS.unpack_from(message, _BODY)
    return WeightsLoaded(seq, status, model, constants, OutOfMemory(*oom))


def _done(opcode: Opcode) -> Kind:
    return Kind(_NOTHING, lambda _message, seq, status: Done(seq, status, opcode))


KINDS: Final[Mapping[int, Kind]] = {
    Opcode.PING: Kind(_PONG, _pong),
    Opcode.GET_STATUS: Kind(_STATUS, _status),
    Opcode.DYN_UNLOAD: _done(Opcode.DYN_UNLOAD),
    Opcode.MODEL_LOAD: Kind(_WEIGHTS, _weights),
    Opcode.MODEL_UNLOAD: _done(Opcode.MODEL_UNLOAD),
    Opcode.SET_PRINTF_BUF: _done(Opcode.SET_PRINTF_BUF),
}
"""The kinds that no version changed, by the request's opcode."""
