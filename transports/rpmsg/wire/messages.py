"""What is said between host and firmware, whatever the version: requests' contents and replies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeAlias, final

import numpy as np

from repertory.transports.rpmsg.errors import OutOfMemory

__all__ = [
    "DTYPE_CODES",
    "INLINE_INPUTS",
    "MAX_DIMS",
    "MAX_INPUTS",
    "MAX_OUTPUTS",
    "MAX_REPEAT",
    "Descriptor",
    "Done",
    "Inferred",
    "IoMeta",
    "Job",
    "Loaded",
    "Malformed",
    "Opcode",
    "Pong",
    "Reply",
    "Span",
    "StatusReply",
    "WeightsLoaded",
]

INLINE_INPUTS: Final = 4
"""Inputs that fit into an INFER; the firmware refuses more there, so more go by INFER_LARGE."""

MAX_INPUTS: Final = 128
MAX_OUTPUTS: Final = 64
MAX_DIMS: Final = 6
MAX_REPEAT: Final = 0xFFFF

DTYPE_CODES: Final = {"i": 0, "u": 1, "f": 2}
"""DLPack's type codes by numpy's kind; there is none for bool."""

_DTYPES: Final = {
    (code, 8 * size): np.dtype(f"{kind}{size}")
    for kind, code in DTYPE_CODES.items()
    for size in (1, 2, 4, 8)
    if (kind, size) != ("f", 1)
}


@final
class Opcode(IntEnum):
    """Requests; a reply's opcode is the request's with `REPLY` set, INFER_LARGE's that of INFER."""

    PING = 0x0001
    GET_STATUS = 0x0003
    DYN_LOAD = 0x0010
    DYN_UNLOAD = 0x0012
    MODEL_LOAD = 0x0020
    INFER = 0x0021
    MODEL_UNLOAD = 0x0022
    INFER_LARGE = 0x0023
    SET_PRINTF_BUF = 0x0030


@final
@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of memory, by the DSP's address."""

    address: int
    size: int


@final
@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor in memory.

    Attributes:
        address: of its first byte, for the DSP.
        size: bytes.
        code: DLPack's type code: 0 int, 1 uint, 2 float.
        bits: of one element.
        shape: up to `MAX_DIMS` extents.
        position: among the outputs of a tuple, as the module had it; 0 for inputs.
    """

    address: int
    size: int
    code: int
    bits: int
    shape: tuple[int, ...]
    position: int = 0

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The element type, or None for one that numpy does not have."""
        return _DTYPES.get((self.code, self.bits))


@final
@dataclass(frozen=True, slots=True)
class Job:
    """One inference.

    Attributes:
        handle: of the loaded module.
        inputs: 1 to `MAX_INPUTS` tensors.
        repeat: how often it runs, 1 to `MAX_REPEAT`.
        model: of weights that were loaded apart; 0 where the module holds them.
        kv_resident: keep the KV cache from the run before.
        table: where the descriptors of more than `INLINE_INPUTS` inputs lie.
        input: what holds all inputs (told to the firmware from version 3 on).
        result: where outputs may go (likewise; version 2 writes at its fixed place).
    """

    handle: int
    inputs: tuple[Descriptor, ...]
    repeat: int = 1
    model: int = 0
    kv_resident: bool = False
    table: Span | None = None
    input: Span = Span(0, 0)
    result: Span = Span(0, 0)


@final
@dataclass(frozen=True, slots=True)
class IoMeta:
    """What a module of version 3 tells of its tensors: how many, and their bytes together."""

    inputs: int
    outputs: int
    input_bytes: int
    output_bytes: int
    exact: bool


@final
@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to PING. `version` is 0xMMmmpp; `uptime_ms` wraps after 49 days."""

    seq: int
    status: int
    version: int
    uptime_ms: int


@final
@dataclass(frozen=True, slots=True)
class StatusReply:
    """The answer to GET_STATUS. Jobs that were refused count in neither sum."""

    seq: int
    status: int
    version: int
    uptime_ms: int
    jobs_completed: int
    jobs_failed: int


@final
@dataclass(frozen=True, slots=True)
class Loaded:
    """The answer to DYN_LOAD; `io` is None in version 2 and where the module tells nothing."""

    seq: int
    status: int
    handle: int
    oom: OutOfMemory
    io: IoMeta | None = None


@final
@dataclass(frozen=True, slots=True)
class WeightsLoaded:
    """The answer to MODEL_LOAD."""

    seq: int
    status: int
    model: int
    constants: int
    oom: OutOfMemory


@final
@dataclass(frozen=True, slots=True)
class Done:
    """An answer that is a status alone: of unloads, SET_PRINTF_BUF, and of anything refused in 16 bytes.

    `opcode` is the request's, as the reply tells it: without the reply bit.
    """

    seq: int
    status: int
    opcode: int


@final
@dataclass(frozen=True, slots=True)
class Inferred:
    """The answer to INFER and INFER_LARGE.

    Attributes:
        return_value: of the module's entry point.
        cycles: of the DSP's counter: of the last repeat (INFER), or of all (INFER_LARGE).
        count: outputs that the firmware claims; nothing bounds it.
        outputs: descriptors that the message itself holds.
        table: where all descriptors lie, if they are not in the message.
        printf_size: bytes of text that the module printed.
        required: bytes that the result wants, where it did not fit (version 3), else None.
    """

    seq: int
    status: int
    return_value: int
    cycles: int
    count: int
    outputs: tuple[Descriptor, ...]
    table: Span | None
    printf_size: int
    oom: OutOfMemory
    required: int | None = None


Reply: TypeAlias = Pong | StatusReply | Loaded | WeightsLoaded | Done | Inferred


@final
class Malformed(Exception):
    """These bytes are no reply: too short, of an unknown kind, or contradicting themselves."""
