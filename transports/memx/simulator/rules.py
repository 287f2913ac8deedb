"""What the simulated libmemx refuses by a status, and what code above it must never do.

Where nothing moves nobody is accused: on a group that hangs, vanished or sleeps, after an abort.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, final

from repertory.transports.memx.constants import Status

if TYPE_CHECKING:
    from .board import Context, Group

__all__ = [
    "SimulatorFault",
    "StatusError",
    "check_disabled",
    "check_idle",
    "check_placed",
    "check_quiet",
    "check_unfed",
]


@final
class SimulatorFault(AssertionError):
    """The code above libmemx did what hardware answers with garbage, a hang or a crash: a bug in it."""


@final
class StatusError(Exception):
    """A call is refused: the status to return."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.label)
        self.status = status


def check_quiet(context: Context, call: str) -> None:
    """A context is freed or bound anew only with none of its frames in flight."""
    if context.in_flight() and not context.halted:
        raise SimulatorFault(f"{call}: {_name(context)} has a transfer in flight")
    if context.group.loading is context and not context.halted:
        raise SimulatorFault(f"{call}: a download for {_name(context)} is going on")


def check_idle(group: Group, call: str, now: float) -> None:
    """What chips hold is changed only with no frame of the whole group in flight, by one at a time."""
    for context in group.contexts.values():
        context.advance(now)
        check_quiet(context, call)


def check_disabled(contexts: Iterable[Context], call: str) -> None:
    """A context whose program goes from the chips is disabled before."""
    for context in contexts:
        if context.load is not None and context.enabled and not context.halted:
            raise SimulatorFault(f"{call}: {_name(context)} is enabled, and its program would be gone")


def check_unfed(context: Context, call: str) -> None:
    """A context's queues are made anew only with nothing in them that was still to be sent."""
    if context.fed() and not context.halted:
        raise SimulatorFault(f"{call}: {_name(context)} would lose a frame in flight, in an input queue")


def check_placed(context: Context, call: str) -> None:
    """A context runs only while its group holds its program, weights and model, whole."""
    if context.load is not None and context.group.loading is not None and not context.halted:
        raise SimulatorFault(f"{call}: {_name(context)} would run during a download to its group")
    if (why := context.misplaced()) and not context.halted:
        raise SimulatorFault(f"{call}: {_name(context)} would compute garbage: it {why}")


def _name(context: Context) -> str:
    return f"context {context.model_id} on group {context.group.index}"
