"""What can go wrong between host and DSP, decided message by message."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from struct import Struct
from typing import Final, TypeAlias, final

from .protocol import HEADER_SIZE, INFER_RESPONSE, RESPONSE, Request

__all__ = ["Fault", "Faults", "Kind", "Rule", "Seen", "bent", "scripted", "seeded"]

_U32: Final = Struct("<I")
_TYPE_AT, _SEQ_AT, _STATUS_AT, _COUNT_AT = 0, 4, 12, 28
_MANY: Final = 10**9


@final
class Kind(Enum):
    """Faults of replies, and from `HANG` on of requests."""

    DROP = auto()
    """The message is lost; a request too."""
    DELAY = auto()
    """It comes later by `seconds`, and so does what follows it: rpmsg keeps the order."""
    DUPLICATE = auto()
    STALE = auto()
    """It carries the seq of the request before."""
    WRONG_TYPE = auto()
    """It says that it answers another kind of request."""
    TRUNCATE = auto()
    MANY_OUTPUTS = auto()
    """It claims 10^9 outputs; the firmware's counter is not bounded."""
    HANG = auto()
    """The request never ends, and what waits behind it never begins."""
    STOP = auto()
    """Linux stops the core in order: every endpoint is gone; it boots again after `seconds`."""
    CRASH = auto()
    """The core falls silent, and nobody is told; it boots again after `seconds`."""


@final
@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; `seconds` as its kind says, and for ever without."""

    kind: Kind
    seconds: float = math.inf


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """A message that a rule decides about.

    Attributes:
        number: how many the rule has seen before, over all boots.
        opcode: its type; replies have bit 12 set.
        seq: its number.
        at: when, in seconds of the world's clock.
    """

    number: int
    opcode: int
    seq: int
    at: float


Rule: TypeAlias = Callable[[Seen], Fault | None]


def scripted(faults: Mapping[int, Fault]) -> Rule:
    """Return a rule that lets a fault befall the message with that number."""
    return lambda seen: faults.get(seen.number)


def seeded(seed: int, rate: float, faults: Sequence[Fault]) -> Rule:
    """Return a rule that lets any of the faults befall a message, at that rate."""
    draw = random.Random(seed)  # noqa: S311  (faults are to be repeatable)
    return lambda _seen: draw.choice(faults) if draw.random() < rate else None


def bent(reply: bytes, kind: Kind) -> list[bytes]:
    """Return what arrives in the place of a reply."""
    if kind is Kind.DROP:
        return []
    if kind is Kind.DUPLICATE:
        return [reply, reply]
    return [_changed(reply, kind)]


def _changed(reply: bytes, kind: Kind) -> bytes:
    if kind is Kind.STALE:
        return _with(reply, _SEQ_AT, (_U32.unpack_from(reply, _SEQ_AT)[0] - 1) % (1 << 32))
    if kind is Kind.WRONG_TYPE:
        is_ping = _U32.unpack_from(reply)[0] == Request.PING | RESPONSE
        return _with(reply, _TYPE_AT, (Request.DYN_UNLOAD if is_ping else Request.PING) | RESPONSE)
    if kind is Kind.TRUNCATE:
        body = len(reply) - HEADER_SIZE
        return reply[: HEADER_SIZE + body // 2 if body else HEADER_SIZE // 2]
    if kind is Kind.MANY_OUTPUTS and _succeeded(reply):
        return _with(reply, _COUNT_AT, _MANY)
    return reply


def _succeeded(reply: bytes) -> bool:
    return _U32.unpack_from(reply)[0] == INFER_RESPONSE and not _U32.unpack_from(reply, _STATUS_AT)[0]


def _with(reply: bytes, offset: int, word: int) -> bytes:
    return reply[:offset] + _U32.pack(word) + reply[offset + 4 :]


@final
@dataclass(slots=True)
class Faults:
    """Switches of a simulated DSP; set them at any time.

    Attributes:
        on_request: asked as the firmware takes a request.
        on_reply: asked as the firmware sends a reply.
        refused_sends: how many sends from now on find no free buffer.
        reader_delay: asked at each reply for how many seconds the host's reader is late; the order stays,
            and the firmware goes on.
    """

    on_request: Rule | None = None
    on_reply: Rule | None = None
    refused_sends: int = 0
    reader_delay: Callable[[], float] | None = None
    _requests: int = field(default=0, repr=False)
    _replies: int = field(default=0, repr=False)

    def request(self, opcode: int, seq: int, at: float) -> Fault | None:
        """Decide about a request that the firmware takes."""
        number, self._requests = self._requests, self._requests + 1
        return None if self.on_request is None else self.on_request(Seen(number, opcode, seq, at))

    def reply(self, opcode: int, seq: int, at: float) -> Fault | None:
        """Decide about a reply."""
        number, self._replies = self._replies, self._replies + 1
        return None if self.on_reply is None else self.on_reply(Seen(number, opcode, seq, at))

    def refuse_send(self) -> bool:
        """Whether this send finds no free buffer."""
        if not self.refused_sends:
            return False
        self.refused_sends -= 1
        return True
