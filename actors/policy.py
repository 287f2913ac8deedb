"""The decision interface between a device group and whoever schedules it.

A policy is a pure function: state in, decision and its reason out. It does no I/O, reads no clock and
keeps nothing between calls, so the same code is unit-tested, simulated and explained.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TypeAlias, final

import msgspec

from repertory.models.program import Program

__all__ = ["Bind", "ContextState", "Decision", "Entry", "Grant", "GroupState", "Policy", "Wait"]


@final
@dataclass(slots=True, eq=False)
class ContextState:
    """What a policy may know of a model context; the context keeps it up to date.

    Attributes:
        name: the model's.
        waiting: frames in the backlog.
        ready_since: when the backlog last ceased to be empty, on the loop's clock.
    """

    name: str
    waiting: int = 0
    ready_since: float = math.inf


@final
@dataclass(slots=True, eq=False)
class Entry:
    """A context on one group; the group keeps it up to date.

    Attributes:
        context: the model context.
        program: what must be resident on this group to serve it.
        in_flight: its frames that are started and not completed here.
        served: when its last turn here ended; -inf before the first.
        service: seconds a frame holds the device, learned; None until the first completion.
    """

    context: ContextState
    program: Program
    in_flight: int = 0
    served: float = -math.inf
    service: float | None = None


@final
@dataclass(slots=True, eq=False)
class GroupState:
    """What a policy may know of a device group.

    Attributes:
        name: the group's.
        capacity: programs that may be resident at once.
        entries: the contexts that are bound to this group.
        residents: resident programs by key, least recently bound first.
        pinned: keys of programs that must not be evicted.
        in_flight: frames that are started and not completed.
        turn: whom the current turn belongs to, or None before the first; a bind passes it on, so that no
            other turn comes between a bind and the first grant after it.
        turn_frames: frames started in this turn.
        turn_since: when it began.
        swap: seconds a bind takes, learned; None until the first.
    """

    name: str
    capacity: int = 1
    entries: list[Entry] = field(default_factory=list[Entry])
    residents: dict[str, Program] = field(default_factory=dict[str, Program])
    pinned: set[str] = field(default_factory=set[str])
    in_flight: int = 0
    turn: Entry | None = None
    turn_frames: int = 0
    turn_since: float = -math.inf
    swap: float | None = None


@final
class Grant(msgspec.Struct, frozen=True):
    """Start up to `frames` frames of a resident entry, none after `until`."""

    entry: Entry
    frames: int
    reason: str
    until: float = math.inf


@final
class Bind(msgspec.Struct, frozen=True):
    """Make the program of `entry` resident, after `evict` is gone; the group drains first if it must."""

    entry: Entry
    evict: tuple[Program, ...]
    reason: str


@final
class Wait(msgspec.Struct, frozen=True):
    """Start nothing more until something changes, at the latest at `until`."""

    reason: str
    until: float = math.inf


Decision: TypeAlias = Grant | Bind | Wait


class Policy(ABC):
    """Decides what a device group does next."""

    @abstractmethod
    def decide(self, state: GroupState, now: float) -> Decision:
        """Answer for one group.

        Asked when a grant ends (its frames are started, its backlog is empty, its time is over), when a
        context's backlog ceases to be empty, after a bind, and at the time that the last answer foresaw;
        never per frame. Decide by the arguments alone, and change nothing in them.
        """
