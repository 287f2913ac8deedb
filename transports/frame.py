"""One inference: the same object from `Model.infer` down to the driver and back."""

from __future__ import annotations

import math
from enum import Enum, IntEnum, auto
from typing import Protocol, final

import msgspec

from repertory.models.program import Network, Program
from repertory.models.spec import Array

from .loop import Slot
from .wheel import Timed

__all__ = ["Fate", "Frame", "FrameOwner", "Outcome"]


class Outcome(IntEnum):
    """How a request ended for its caller: fixed once, when it settles."""

    ANSWERED = auto()
    FAILED = auto()
    EXPIRED = auto()
    CANCELLED = auto()
    SUPERSEDED = auto()
    WITHDRAWN = auto()


class Fate(Enum):
    """What became of a frame on the device; its caller may have been answered long before."""

    DONE = auto()
    """Its outputs are valid."""
    FAILED = auto()
    """It is to blame, or nobody knows who is."""
    UNDONE = auto()
    """It certainly had no effect and may run again."""


class FrameOwner(Protocol):
    """Who keeps the books of a frame: its model context."""

    def settled(self, frame: Frame, /) -> None:
        """Count the outcome, free the queue place, wake the caller. Called once a frame."""

    def expire(self, frame: Frame, /) -> None:
        """Settle a frame whose deadline has come."""


@final
class Frame(msgspec.Struct, eq=False):
    """A driver reads `program`, `network` and `inputs`; the rest belongs to the floors above.

    A msgspec struct, for one is made on every request's way; equal only to itself.

    Attributes:
        owner: the context that admitted it.
        network: what to run.
        inputs: one array for each of the network's inputs, in order; borrowed from the caller until the
            device's completion.
        slot: where the caller waits.
        deadline: absolute, on the loop's clock; `math.inf` without one.
        expires: when the runtime itself ends it: later than the deadline where that is the caller's own
            scope's, who ends it himself.
        priority: larger is more urgent.
        nbytes: bytes of the inputs.
        program: what holds the network on the device that takes it; set by the taker.
        seq: admission order within the owner.
        offered: when it was admitted, on the loop's clock.
        started: when the device took it, or None while it waits.
        attempts: how often a device has taken it.
        bucket: for the wheel.
        outcome: None until it settles.
        outputs: one array for each of the network's outputs, where it was answered.
        error: what to raise to the caller, where it was not.
    """

    owner: FrameOwner
    network: Network
    inputs: tuple[Array, ...]
    slot: Slot | None = None
    deadline: float = math.inf
    priority: int = 0
    nbytes: int = 0
    program: Program | None = None
    seq: int = 0
    offered: float = 0.0
    started: float | None = None
    attempts: int = 0
    expires: float = math.inf
    bucket: dict[Timed, None] | None = None
    outcome: Outcome | None = None
    outputs: tuple[Array, ...] | None = None
    error: Exception | None = None

    def settle(
        self, outcome: Outcome, outputs: tuple[Array, ...] | None = None, *, error: Exception | None = None
    ) -> bool:
        """Fix the outcome; the first call wins and returns True. Never frees a device slot."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        self.outputs = outputs
        self.error = error
        self.owner.settled(self)
        return True

    def due(self) -> None:
        """Its deadline has come."""
        self.owner.expire(self)

    def __repr__(self) -> str:
        where = self.outcome.name if self.outcome else "waiting" if self.started is None else "started"
        return f"<Frame {self.network.name}#{self.seq} {where.lower()}>"
