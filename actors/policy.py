"""The decision interface between a device group and whoever schedules it.

A policy is a pure function: state in, decision and its reason out. It does no I/O, reads no clock and
keeps nothing between calls, so the same code is unit-tested, simulated and explained.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias, final

import msgspec

from repertory.models.program import Program

__all__ = ["Bind", "ContextState", "Decision", "Entry", "Grant", "GroupState", "Policy", "Wait", "used"]


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
        granted: frames that its open grant still lets it start; 0 where it has none.
        turn_since: when its last turn here began, with a bind or a fresh grant; -inf before the first.
        turn_frames: frames started since.
        served: when frames of it were last started here; -inf before the first.
        service: seconds a frame holds the device, learned; None until the first completion.
    """

    context: ContextState
    program: Program
    in_flight: int = 0
    granted: int = 0
    turn_since: float = -math.inf
    turn_frames: int = 0
    served: float = -math.inf
    service: float | None = None


@final
@dataclass(slots=True, eq=False)
class GroupState:
    """What a policy may know of a device group.

    Attributes:
        name: the group's.
        capacity: programs that may be resident at once.
        memory: bytes that they may take together, scratch included, or None where there is no such bound.
            Less than the device has, for a while after it found no room where there should have been some.
        whole: bytes that the device has, likewise.
        bind_needs_idle: a bind waits until nothing is in flight, and not only nothing of what it evicts.
        entries: the contexts that are bound to this group.
        residents: resident programs by key, least recently bound first.
        pinned: keys of programs that must not be evicted.
        in_flight: frames that are started and not completed.
        swap: seconds a bind takes, learned; None until the first.
    """

    name: str
    capacity: int = 1
    memory: int | None = None
    whole: int | None = None
    bind_needs_idle: bool = True
    entries: list[Entry] = field(default_factory=list[Entry])
    residents: dict[str, Program] = field(default_factory=dict[str, Program])
    pinned: set[str] = field(default_factory=set[str])
    in_flight: int = 0
    swap: float | None = None

    def fits(self, programs: Collection[Program]) -> bool:
        """Whether these programs may be resident together."""
        return len(programs) <= self.capacity and (self.memory is None or used(programs) <= self.memory)

    def has_place_for(self, program: Program, pinned: Collection[str] | None = None) -> bool:
        """Whether a program can ever be resident beside what is pinned, or will be."""
        pinned = self.pinned if pinned is None else pinned
        known = {entry.program.key: entry.program for entry in self.entries} | self.residents
        beside = [program, *(known[key] for key in pinned if key in known and key != program.key)]
        return len(beside) <= self.capacity and (self.whole is None or used(beside) <= self.whole)


@final
class Grant(msgspec.Struct, frozen=True):
    """Start up to `frames` frames of a resident entry, none after `until`; `fresh` begins a new turn of it.

    Grants of several entries may be open at once; those that were opened first start their frames first. A
    second one for the same entry takes the place of the first.
    """

    entry: Entry
    frames: int
    reason: str
    until: float = math.inf
    fresh: bool = False


@final
class Bind(msgspec.Struct, frozen=True):
    """Make the program of `entry` resident, after `evict` is gone, which begins a turn of the entry.

    The group waits first until no frame is in flight that runs on what is evicted (none at all where the
    device must be idle), and then asks again. Meanwhile the grants that are open go on.
    """

    entry: Entry
    evict: tuple[Program, ...]
    reason: str


@final
class Wait(msgspec.Struct, frozen=True):
    """Open no more grants until something changes, at the latest at `until`; those that are open go on."""

    reason: str
    until: float = math.inf


Decision: TypeAlias = Grant | Bind | Wait


def used(programs: Iterable[Program]) -> int:
    """Return the bytes that programs take together: their footprints, and the largest scratch."""
    footprints, scratch = 0, 0
    for program in programs:
        footprints += program.footprint
        scratch = max(scratch, program.scratch)
    return footprints + scratch


class Policy(ABC):
    """Decides what a device group does next."""

    @abstractmethod
    def decide(self, state: GroupState, now: float) -> Decision:
        """Answer for one group.

        Asked when a grant ends (its frames are started, its backlog is empty, its time is over), when a
        context's backlog ceases to be empty, after a bind, and at the time that the last answer foresaw;
        never per frame. In all these cases but the first the open grants are withdrawn before.

        Where several programs may be resident it is asked again after each grant, so that several of them
        have frames in flight: `Entry.granted` tells which grants are open. A Bind, a Wait, or another grant
        for an entry that has one, ends that. Decide by the arguments alone, and change nothing in them.
        """
