"""The firmware's side of the wire: requests that come in, and replies out of one static buffer.

The client's codec is not used here on purpose: a mistake in one shows against the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final, Literal, final

__all__ = [
    "DESCRIPTOR_SIZE",
    "HEADER_SIZE",
    "INFER_RESPONSE",
    "INLINE_OUTPUTS",
    "MAX_TENSORS",
    "RESPONSE",
    "Code",
    "Infer",
    "Outcome",
    "Replies",
    "Request",
    "Tensor",
    "header",
    "read_infer",
    "read_tensors",
    "read_words",
    "write_tensor",
]

HEADER_SIZE: Final = 16
DESCRIPTOR_SIZE: Final = 80
RESPONSE: Final = 0x1000
INLINE_OUTPUTS: Final = 5
"""Outputs that a reply holds; of more, the descriptors go into the result memory."""
MAX_TENSORS: Final = 128

_HEADER: Final = Struct("<IIIi")
_DESCRIPTOR: Final = Struct("<QQiiii6q")
_BUFFER_SIZE: Final = 512


@final
class Request(IntEnum):
    """What the firmware is asked."""

    PING = 0x01
    GET_STATUS = 0x03
    DYN_LOAD = 0x10
    DYN_UNLOAD = 0x12
    MODEL_LOAD = 0x20
    INFER = 0x21
    MODEL_UNLOAD = 0x22
    INFER_LARGE = 0x23
    SET_PRINTF_BUF = 0x30


INFER_RESPONSE: Final = Request.INFER | RESPONSE
"""The reply to INFER, and to INFER_LARGE too."""


@final
class Code(IntEnum):
    """Statuses that this firmware sends."""

    OK = 0
    BAD_REQUEST = -2
    OUT_OF_MEMORY = -3
    BAD_ADDRESS = -6
    BAD_SIZE = -7
    LOAD_FAILED = -9
    NO_SYMBOL = -10
    CALL_FAILED = -11
    BAD_HANDLE = -12
    BAD_WEIGHTS = -13
    BAD_TENSOR = -14


_BODIES: Final[dict[int, Struct]] = {
    Request.PING: Struct("<"),
    Request.GET_STATUS: Struct("<"),
    Request.DYN_LOAD: Struct("<II8x"),
    Request.DYN_UNLOAD: Struct("<I"),
    Request.MODEL_LOAD: Struct("<II8x"),
    Request.MODEL_UNLOAD: Struct("<I"),
}
_PRINTF_BODY: Final = Struct("<QI4x")
_INFER_BODY: Final = {2: Struct("<4I"), 3: Struct("<4I4Q")}
_LARGE_BODY: Final = {2: Struct("<4IQI4x"), 3: Struct("<4IQI4x4Q")}
_LOAD_REPLY: Final = {2: (Struct("<6I"), 6), 3: (Struct("<6IQQIII"), 11)}
_WEIGHTS_REPLY: Final = Struct("<5I")
_INFER_REPLY: Final = {2: (Struct("<iQIIQI3I"), 9), 3: (Struct("<iQIIQI3IQ"), 10)}
"""Layout of a body, and how many of the fields it has."""


@final
@dataclass(frozen=True, slots=True)
class Tensor:
    """One descriptor as it lies in a message or a table."""

    address: int
    size: int
    ndim: int
    code: int
    bits: int
    index: int
    shape: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Infer:
    """INFER or INFER_LARGE.

    Attributes:
        large: which of them.
        handle: of a module; only 0 is looked at.
        model: of weights that were loaded apart, or 0.
        count: of inputs, as claimed.
        repeat: runs, at least 1.
        inline: descriptors in the message.
        table: address and bytes of the descriptors (INFER_LARGE).
        inputs: address and bytes of the memory that holds the inputs (version 3).
        result: address and bytes of the memory for the outputs (version 3).
    """

    large: bool
    handle: int
    model: int
    count: int
    repeat: int
    inline: bytes
    table: tuple[int, int]
    inputs: tuple[int, int]
    result: tuple[int, int]


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reply to INFER says."""

    status: int
    returned: int = 0
    cycles: int = 0
    count: int = 0
    printed: int = 0
    table: tuple[int, int] = (0, 0)
    oom: tuple[int, int, int] = (0, 0, 0)
    required: int = 0
    inline: bytes = b""


def header(message: bytes) -> tuple[int, int]:
    """Return a message's type and seq; its `len` is not looked at."""
    kind, seq, _, _ = _HEADER.unpack_from(message)
    return kind, seq


def read_words(kind: int, message: bytes, wire: Literal[2, 3]) -> tuple[int, ...] | None:
    """Return the body's fields of any request but those for inference; None if it is unknown or short."""
    body = _BODIES.get(kind)
    if kind == Request.SET_PRINTF_BUF and wire == 3:  # noqa: PLR2004  (versions are named by their number)
        body = _PRINTF_BODY
    if body is None or len(message) < HEADER_SIZE + body.size:
        return None
    return body.unpack_from(message, HEADER_SIZE)


def read_infer(kind: int, message: bytes, wire: Literal[2, 3]) -> Infer | None:
    """Read INFER or INFER_LARGE; None where the message is too short for its body."""
    large = kind == Request.INFER_LARGE
    body = (_LARGE_BODY if large else _INFER_BODY)[wire]
    end = HEADER_SIZE + body.size
    if len(message) < end:
        return None
    handle, model, count, flags, *rest = body.unpack_from(message, HEADER_SIZE)
    table = (rest.pop(0), rest.pop(0)) if large else (0, 0)
    input_address, input_size, result_address, result_size = rest or (0, 0, 0, 0)
    return Infer(
        large,
        handle,
        model,
        count,
        max(flags & 0xFFFF, 1),
        message[end:],
        table,
        (input_address, input_size),
        (result_address, result_size),
    )


def read_tensors(data: bytes, count: int) -> list[Tensor] | None:
    """Read descriptors; None where there are not as many."""
    if len(data) < count * DESCRIPTOR_SIZE:
        return None
    return [_tensor(data, place * DESCRIPTOR_SIZE) for place in range(count)]


def _tensor(data: bytes, offset: int) -> Tensor:
    address, size, ndim, code, bits, index, *shape = _DESCRIPTOR.unpack_from(data, offset)
    return Tensor(address, size, ndim, code, bits, index, tuple(shape))


def write_tensor(address: int, size: int, shape: Sequence[int], *, code: int, bits: int, index: int) -> bytes:
    """Return the 80 bytes that describe an output."""
    extents = (*shape, 0, 0, 0, 0, 0, 0)[:6]
    return _DESCRIPTOR.pack(address, size, len(shape), code, bits, index, *extents)


@final
class Replies:
    """Builds replies in one static buffer, which is never cleared: what a reply does not set is stale."""

    def __init__(self, wire: Literal[2, 3]) -> None:
        self._load, self._load_fields = _LOAD_REPLY[wire]
        self._infer, self._infer_fields = _INFER_REPLY[wire]
        self._static = bytearray(_BUFFER_SIZE)

    def status(self, kind: int, seq: int, status: int) -> bytes:
        """Answer with a header alone."""
        return self._sent(kind, seq, status, HEADER_SIZE)

    def words(self, kind: int, seq: int, *words: int) -> bytes:
        """Answer PING or GET_STATUS."""
        body = Struct(f"<{len(words)}I")
        body.pack_into(self._static, HEADER_SIZE, *words)
        return self._sent(kind, seq, Code.OK, HEADER_SIZE + body.size)

    def loaded(self, seq: int, handle: int, meta: tuple[int, int, int, int, int]) -> bytes:
        """Answer DYN_LOAD: done.

        Args:
            seq: of the request.
            handle: of the module.
            meta: bytes of inputs and outputs, their counts, and flags; version 2 does not send them.
        """
        words = (handle, 0, 0, 0, 0, 0, *meta)
        self._load.pack_into(self._static, HEADER_SIZE, *words[: self._load_fields])
        return self._sent(Request.DYN_LOAD, seq, Code.OK, HEADER_SIZE + self._load.size)

    def not_loaded(self, seq: int, status: int, oom: tuple[int, int, int] | None = None) -> bytes:
        """Answer DYN_LOAD: refused. Nothing but the status is set, and the triple where memory lacks."""
        if oom is not None:
            Struct("<3I").pack_into(self._static, HEADER_SIZE + 12, *oom)
        return self._sent(Request.DYN_LOAD, seq, status, HEADER_SIZE + self._load.size)

    def weights(self, seq: int, model: int, constants: int) -> bytes:
        """Answer MODEL_LOAD: done."""
        _WEIGHTS_REPLY.pack_into(self._static, HEADER_SIZE, model, constants, 0, 0, 0)
        return self._sent(Request.MODEL_LOAD, seq, Code.OK, HEADER_SIZE + _WEIGHTS_REPLY.size)

    def no_weights(self, seq: int, status: int) -> bytes:
        """Answer MODEL_LOAD: refused; everything but the status is stale."""
        return self._sent(Request.MODEL_LOAD, seq, status, HEADER_SIZE + _WEIGHTS_REPLY.size)

    def inferred(self, seq: int, outcome: Outcome) -> bytes:
        """Answer INFER and INFER_LARGE; there is room for one descriptor at least."""
        fields = [
            outcome.returned,
            outcome.cycles,
            outcome.count,
            outcome.printed,
            *outcome.table,
            *outcome.oom,
            outcome.required,
        ]
        fixed = HEADER_SIZE + self._infer.size
        self._infer.pack_into(self._static, HEADER_SIZE, *fields[: self._infer_fields])
        descriptors = outcome.inline or bytes(DESCRIPTOR_SIZE)
        self._static[fixed : fixed + len(descriptors)] = descriptors
        return self._sent(Request.INFER, seq, outcome.status, fixed + len(descriptors))

    def _sent(self, kind: int, seq: int, status: int, size: int) -> bytes:
        _HEADER.pack_into(self._static, 0, kind | RESPONSE, seq, size, status)
        return bytes(self._static[:size])
