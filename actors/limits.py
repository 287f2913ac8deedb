"""The bounds of one model, and those of all together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Final, Self, TypedDict, final

import numpy as np

from repertory.models.checks import is_a
from repertory.models.errors import ConfigError
from repertory.models.spec import TensorSpec

__all__ = [
    "LONGEST",
    "MAX_WAIT",
    "MAX_WEIGHT",
    "MIN_WEIGHT",
    "PRIORITIES",
    "QUEUE",
    "QUEUE_BYTES",
    "LimitChanges",
    "Limits",
    "Overflow",
    "check_holds_one",
    "whole",
]

QUEUE: Final = 1024
"""Frames that may wait for a model."""

QUEUE_BYTES: Final = 256 * 2**20
"""Bytes of their inputs."""

PRIORITIES: Final = range(-128, 128)
"""Priorities that a request may have; larger is more urgent, 0 is the default."""

MAX_WAIT: Final = 1.0
"""Seconds within which a model is to get its turn."""

LONGEST: Final = 1e9
"""Seconds that a timeout or a wait may be: some thirty years."""

MIN_WEIGHT: Final = 1e-6
"""The least weight."""

MAX_WEIGHT: Final = 1e6
"""The largest weight."""

_WHOLE: Final = (int, np.integer)
_REAL: Final = (int, float, np.integer, np.floating)


@final
class Overflow(Enum):
    """What a full queue does with one more frame."""

    REFUSE = "refuse"
    """Raise QueueFull at once."""
    WAIT = "wait"
    """Let the caller wait for a place, first come first served."""
    DROP_OLDEST = "drop_oldest"
    """Admit it and end the oldest waiting frame in Superseded: the latest frame wins."""


@final
class LimitChanges(TypedDict, total=False):
    """Some of `Limits`, by name."""

    queue: int
    queue_bytes: int
    overflow: Overflow
    max_in_flight: int | None
    weight: float
    priority: int
    timeout: float | None
    max_wait: float


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """What one model may take, and what it is due.

    A number may be one of numpy's, and is kept as Python's own; what is no number, or out of its range, is
    refused with a ConfigError that names it.

    Attributes:
        queue: frames that may wait, those not counted that a device has started.
        queue_bytes: bytes of their inputs.
        overflow: what a full queue does.
        max_in_flight: frames that may be started and not completed, over all groups; one whose caller gave
            up counts until its completion. None: as many as the devices take.
        weight: its share among models of one priority, in proportion; 1e-6 to 1e6.
        priority: of requests that name none; -128 to 127, larger is more urgent.
        timeout: seconds, of requests that name neither timeout nor deadline; None for no end.
        max_wait: seconds within which it is to get a turn, where that is feasible.
    """

    queue: int = QUEUE
    queue_bytes: int = QUEUE_BYTES
    overflow: Overflow = Overflow.REFUSE
    max_in_flight: int | None = None
    weight: float = 1.0
    priority: int = 0
    timeout: float | None = None
    max_wait: float = MAX_WAIT

    def __post_init__(self) -> None:
        found = {
            "queue": whole("queue", self.queue),
            "queue_bytes": whole("queue_bytes", self.queue_bytes),
            "overflow": _overflow(self.overflow),
            "max_in_flight": None
            if self.max_in_flight is None
            else whole("max_in_flight", self.max_in_flight),
            "weight": _real("weight", self.weight, MIN_WEIGHT, MAX_WEIGHT),
            "priority": _priority(self.priority),
            "timeout": None if self.timeout is None else _seconds("timeout", self.timeout),
            "max_wait": _seconds("max_wait", self.max_wait),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def changed(self, changes: LimitChanges) -> Self:
        """Return these with some changed.

        Raises:
            ConfigError: there is no such limit, or its value is wrong.
        """
        known = [field.name for field in fields(self)]
        unknown = sorted(changes.keys() - set(known))
        if unknown:
            raise ConfigError(f"{unknown[0]!r} is no limit of a model; there are {', '.join(known)}")
        return replace(self, **changes)

    def check_request(self, name: str, inputs: Sequence[TensorSpec]) -> None:
        """Check that the queue holds one request at least, where its size is known.

        Raises:
            ConfigError: names both numbers.
        """
        check_holds_one(name, f"queue_bytes {self.queue_bytes}", self.queue_bytes, inputs)


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number as Python's own.

    Raises:
        ConfigError: it is none, or less than `least`.
    """
    if is_a(value, bool) or not is_a(value, *_WHOLE) or value < least:
        raise ConfigError(f"{name} {value!r} came, a whole number from {least} on is wanted")
    return int(value)


def _real(name: str, value: Any, least: float, most: float) -> float:
    found = _number(value)
    if found is None or not least <= found <= most:
        raise ConfigError(f"{name} {value!r} came, a number from {least:g} to {most:g} is wanted")
    return found


def _seconds(name: str, value: Any) -> float:
    found = _number(value)
    if found is None or not 0 < found <= LONGEST:
        raise ConfigError(f"{name} {value!r} came, seconds above 0 and up to {LONGEST:g} are wanted")
    return found


def _number(value: Any) -> float | None:
    """Return a number as Python's own, or None where it is none."""
    if is_a(value, bool) or not is_a(value, *_REAL):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _priority(value: Any) -> int:
    if is_a(value, bool) or not is_a(value, *_WHOLE) or value not in PRIORITIES:
        raise ConfigError(f"priority {value!r} came, -128 to 127 is wanted")
    return int(value)


def _overflow(value: object) -> Overflow:
    try:
        return Overflow(value)
    except ValueError:
        choices = ", ".join(choice.value for choice in Overflow)
        raise ConfigError(f"overflow {value!r} came, one of {choices} is wanted") from None


def check_holds_one(name: str, bound: str, nbytes: float, inputs: Sequence[TensorSpec]) -> None:
    """Check that so many bytes, which `bound` names, hold one request of a model, where its size is known.

    Raises:
        ConfigError: names both numbers.
    """
    needed = sum(spec.nbytes for spec in inputs)
    if needed > nbytes:
        raise ConfigError(
            f"{name}: {bound} came, and one request has {needed} bytes: none would ever be admitted"
        )
