"""What became of a load: its requests, and what the groups did."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, final

import msgspec

from repertory.runtime.timeline import Span

from .trace import Trace

__all__ = ["Fate", "Played", "Request"]


@final
class Fate(Enum):
    """What became of a request."""

    ON_TIME = "on_time"
    """Answered by its deadline, or it had none."""
    LATE = "late"
    """Answered after its deadline."""
    FULL = "full"
    """Refused: the queue was full."""
    UNREACHABLE = "unreachable"
    """Refused at once: its deadline could not be met."""
    WITHDRAWN = "withdrawn"
    """Admitted, and ended before its deadline, which could not be met any more."""
    EXPIRED = "expired"
    """Admitted, and ended by its deadline."""
    SUPERSEDED = "superseded"
    """Admitted, and replaced by a newer one."""
    FAILED = "failed"
    """Ended by an error of a device, a model or the runtime."""
    UNANSWERED = "unanswered"
    """Given up: no answer could be in time any more, or, without a deadline, none came in a minute."""


@final
class Request(NamedTuple):
    """One request, as its caller saw it; times in seconds from the beginning of the load.

    Attributes:
        model: index into the trace's models.
        arrival: when it was made.
        deadline: when its answer was wanted, `math.inf` without one.
        end: when it was answered, refused or given up.
        fate: what became of it.
    """

    model: int
    arrival: float
    deadline: float
    end: float
    fate: Fate


@final
class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What a load came to.

    Attributes:
        trace: the load.
        requests: all of them, in the order of their ends.
        spans: what each group did with its time, by address, in seconds from the beginning of the load.
        swaps: programs made resident, over all groups.
        seconds: virtual time from the beginning to the end of the last request, and of the load.
        decisions: how often the policy was asked.
        decision_seconds: real time that it took, in all.
        real_seconds: real time of the whole run.
    """

    trace: Trace
    requests: list[Request]
    spans: dict[str, list[Span]]
    swaps: int
    seconds: float
    decisions: int
    decision_seconds: float
    real_seconds: float
