"""The decision interface between a device group and whoever schedules it.

A policy is a pure function: state in, decision and its reason out. It does no I/O, reads no clock and
keeps nothing between calls, so the same code is unit-tested, simulated and explained. A reason is a format
string with a `{}` for each of the decision's `figures`, which is filled in only where somebody reads it.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

import msgspec

from repertory.models.program import Program

from .estimate import CREDIBLE, Estimate
from .load import Load
from .rhythm import Rhythm

__all__ = [
    "DOUBT",
    "HOST_DELAY",
    "HOST_FACTOR",
    "KEPT",
    "LOAD_RATE",
    "QUICKER",
    "SERVICE_PRIOR",
    "SWAP_PRIOR",
    "Bind",
    "Commitment",
    "ContextState",
    "Decision",
    "Entry",
    "Grant",
    "GroupState",
    "Policy",
    "Step",
    "Wait",
    "used",
]

SERVICE_PRIOR: Final = 0.001
"""Seconds that a frame is taken to hold a device before any was seen."""

KEPT: Final = 0.9
"""The share of a model's latest requests that are to be in time for it to count as served well."""

QUICKER: Final = 1.5
"""How many times quicker a group must be to count as one of a quicker kind."""

HOST_FACTOR: Final = 10.0
"""How many times slower the host's own processor is taken to be than a device, before it was seen."""

SWAP_PRIOR: Final = 0.005
"""Seconds that a bind is taken to last before any was seen, beside the time for its bytes."""

LOAD_RATE: Final = 200e6
"""Bytes of a program that are taken to be loaded in a second, before any load was seen."""


DOUBT: Final = 20.0
"""Estimates of a model that is not served are tried again after so many times its cost, and a second."""

HOST_DELAY: Final = 0.001
"""Seconds that the next frame may need to reach a device whose frame has just completed."""


def _near_the_top() -> Estimate:
    return Estimate(fall=0.02)


@final
class Step(msgspec.Struct, frozen=True):
    """A part of what a decision foresaw: from `start` to `end`, these frames of a context."""

    context: ContextState
    start: float
    end: float
    frames: int


@final
@dataclass(slots=True, eq=False)
class ContextState:
    """What a policy may know of a model context; the context keeps it up to date.

    Attributes:
        name: the model's.
        waiting: frames in the backlog.
        ready_since: when the backlog last ceased to be empty, on the loop's clock.
        hungry_since: the earliest request since a frame of it was last started, or that start, where others
            were waiting then; those count that were refused for their deadline, too. `math.inf` where nobody
            asks for it.
        priority: of its requests that name none; larger is more urgent.
        weight: its share among models of one priority, in proportion.
        max_wait: seconds from `hungry_since` within which it is to get a turn, where that is feasible.
        kept: the share of its recent requests that were answered by their deadline, those included that
            were refused for a full queue or their deadline; 1 before the first.
        rhythm: of its requests.
        glance: returns priority and deadline of what is taken next.
        outline: returns deadlines of what waits, in the order of taking, by priority: about the first so
            many of each.
        arrivals: returns when the first so many of what waits came, oldest first.
        flying: its frames that are started and not completed, over all groups.
        max_in_flight: how many they may be.
        watchers: told, once, when nothing waits any more.
    """

    name: str
    waiting: int = 0
    ready_since: float = math.inf
    hungry_since: float = math.inf
    priority: int = 0
    weight: float = 1.0
    max_wait: float = 1.0
    kept: float = 1.0
    rhythm: Rhythm = field(default_factory=Rhythm)
    glance: Callable[[], tuple[int, float]] = field(default=lambda: (0, math.inf))
    outline: Callable[[int], list[tuple[int, list[float]]]] = field(default=lambda _most: [])
    arrivals: Callable[[int], list[float]] = field(default=lambda _most: [])
    flying: int = 0
    max_in_flight: int = sys.maxsize
    watchers: dict[Callable[[float], None], None] = field(default_factory=dict[Callable[[float], None], None])

    def deadlines(self, most: int) -> list[float]:
        """Return deadlines of what waits, in the order of taking: about so many of each priority."""
        if self.waiting == 1:
            return [self.glance()[1]]
        lanes = self.outline(most)
        return lanes[0][1] if len(lanes) == 1 else [deadline for _, lane in lanes for deadline in lane]


@final
class Commitment(msgspec.Struct, frozen=True):
    """Whom a group serves before anybody else, by its last decision.

    Attributes:
        context: whose frames.
        program: key of what serves them.
        priority: of what is taken next of them.
        since: when that was decided.
        until: when those that waited then are done.
        latest: until when it may go on, where more frames come.
        load: seconds of the swap that it begins with, as far as that is known.
        service: seconds of a frame, likewise.
    """

    context: ContextState
    program: str
    priority: int
    since: float
    until: float
    latest: float
    load: float
    service: float

    def delays(self, context: ContextState, priority: int) -> bool:
        """Whether frames of that priority come after it: what waited already was decided against."""
        if context is self.context or priority > self.priority:
            return False
        return context.waiting > 0 and context.ready_since <= self.since

    def left(self, busy: float, now: float) -> float:
        """Return for how long it goes on, where the device is busy so long: less where callers gave up."""
        return min(self.until - now, busy + self.load + self.context.waiting * self.service)


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
        worth: what the last grant took a frame to be worth.
        left: when it last ceased to be resident here; -inf before.
        lost: when it last did so with frames waiting; -inf before.
        service: seconds a frame holds the device; nothing is known before its first sample.
        swap: seconds that making it resident takes here; likewise.
        transit: seconds from start to answer that a frame does not hold the device: the rest of a pipeline,
            and the way there and back. Near its upper samples.
        lead: seconds that a swap and a frame took until the answer, by these three: kept at hand, for it is
            asked of all models in each decision. `math.inf` before all is learned; then ask the estimates.
    """

    context: ContextState
    program: Program
    in_flight: int = 0
    granted: int = 0
    turn_since: float = -math.inf
    turn_frames: int = 0
    served: float = -math.inf
    worth: float = 1.0
    left: float = -math.inf
    lost: float = -math.inf
    service: Estimate = field(default_factory=Estimate)
    swap: Estimate = field(default_factory=Estimate)
    transit: Estimate = field(default_factory=_near_the_top)
    lead: float = math.inf

    def learned(self) -> None:
        """Note what the estimates come to together, after a sample."""
        if self.swap.samples and self.service.samples:
            self.lead = self.swap.value + self.service.value + self.transit.value

    @property
    def depth(self) -> int:
        """How many frames in flight keep the device busy: what more is started only waits there."""
        service = self.service.value
        if not service:
            return sys.maxsize
        return 1 + math.ceil((self.transit.value + HOST_DELAY) / service)

    @property
    def cost(self) -> float:
        """Seconds of the device that a swap and one frame took, as far as was learned."""
        return self.swap.value + self.service.value

    def stale(self, now: float) -> bool:
        """Whether its estimates are so old that one frame is worth while to try them again.

        Else one slow start would be believed for ever, where frames that would be late are not started. A
        single sample is not believed at all.
        """
        return self.service.samples < CREDIBLE or now - self.served > 1 + DOUBT * self.cost

    @property
    def ready(self) -> bool:
        """Whether frames wait that may start here: at once, or when those in flight here have completed.

        Where others fly as many as `max_in_flight` allows, a grant starts nothing.
        """
        context = self.context
        return context.waiting > 0 and (context.flying < context.max_in_flight or self.in_flight > 0)


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
        window: frames that may be started and not completed, over all programs.
        in_service: whether the device is open.
        on_host: it is the host's own processor: a place to spill to, slower than the others as a rule.
        entries: the contexts that are bound to this group.
        by_context: the same by context.
        by_program: the same by the key of what must be resident.
        residents: resident programs by key, least recently bound first.
        pinned: keys of programs that must not be evicted.
        in_flight: frames that are started and not completed.
        flying: the entries that have some of them.
        progress: when one was last completed, or the device last began to work.
        binding: the entry that a bind is going on for, or None.
        bind_began: when it began.
        swap: seconds a bind takes here, whatever is bound.
        load: how busy it was of late.
        plan: what the last decision foresaw.
        committed: whom it serves first by that, where one program is resident at most.
        peers: all groups of the runtime, this one included, in the order given.
    """

    name: str
    capacity: int = 1
    memory: int | None = None
    whole: int | None = None
    bind_needs_idle: bool = True
    window: int = 1
    in_service: bool = True
    on_host: bool = False
    entries: list[Entry] = field(default_factory=list[Entry])
    by_context: dict[ContextState, Entry] = field(default_factory=dict[ContextState, Entry])
    by_program: dict[str, list[Entry]] = field(default_factory=dict[str, list["Entry"]])
    residents: dict[str, Program] = field(default_factory=dict[str, Program])
    pinned: set[str] = field(default_factory=set[str])
    in_flight: int = 0
    flying: dict[Entry, None] = field(default_factory=dict["Entry", None])
    progress: float = -math.inf
    binding: Entry | None = None
    bind_began: float = -math.inf
    swap: Estimate = field(default_factory=Estimate)
    load: Load = field(default_factory=Load)
    plan: tuple[Step, ...] = ()
    committed: Commitment | None = None
    peers: list[GroupState] = field(default_factory=list["GroupState"])

    def busy_for(self, now: float) -> float:
        """Return for how many more seconds what is started holds the device, as far as was learned.

        What should have ended by now is taken to last as much longer as it is late already.
        """
        work = 0.0
        for entry in self.flying:
            work += entry.in_flight * entry.service.value
        if self.binding is not None:
            work = work + self.swap_cost(self.binding) - (now - self.bind_began)
        elif work:
            work -= now - self.progress
        return abs(work)

    def service_cost(self, entry: Entry) -> float:
        """Return how long a frame holds the device: as learned here, else on another group, else a guess."""
        if entry.service.samples:
            return entry.service.value
        least, context = math.inf, entry.context
        for peer in self.peers:
            there = peer.by_context.get(context)
            if there is not None and there.service.samples:
                value = there.service.value
                if peer.on_host != self.on_host:
                    value *= HOST_FACTOR if self.on_host else 1 / HOST_FACTOR
                least = min(least, value)
        return SERVICE_PRIOR if least == math.inf else least

    def swap_cost(self, entry: Entry) -> float:
        """Return how long making a program resident takes: as learned, of others too, else by its size.

        Of others: of other programs here, or else of this model on other groups.
        """
        if entry.swap.samples:
            return entry.swap.value
        if self.swap.samples:
            return self.swap.value
        homes = (peer.by_context.get(entry.context) for peer in self.peers)
        learned = [there.swap.value for there in homes if there is not None and there.swap.samples]
        return min(learned, default=SWAP_PRIOR + entry.program.footprint / LOAD_RATE)

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
    worth: float = 1.0
    figures: tuple[float, ...] = ()
    plan: tuple[Step, ...] = ()


@final
class Bind(msgspec.Struct, frozen=True):
    """Make the program of `entry` resident, after `evict` is gone, which begins a turn of the entry.

    The group waits first until no frame is in flight that runs on what is evicted (none at all where the
    device must be idle), and then asks again. Meanwhile the grants that are open go on.
    """

    entry: Entry
    evict: tuple[Program, ...]
    reason: str
    figures: tuple[object, ...] = ()
    plan: tuple[Step, ...] = ()


@final
class Wait(msgspec.Struct, frozen=True):
    """Open no more grants until something changes, at the latest at `until`; those that are open go on."""

    reason: str
    until: float = math.inf
    figures: tuple[float, ...] = ()
    plan: tuple[Step, ...] = ()


Decision: TypeAlias = Grant | Bind | Wait


def used(programs: Iterable[Program]) -> int:
    """Return the bytes that programs take together: their footprints, and the largest scratch."""
    footprints, scratch = 0, 0
    for program in programs:
        footprints += program.footprint
        scratch = max(scratch, program.scratch)
    return footprints + scratch


class Policy(ABC):
    """Decides what a device group does next.

    Attributes:
        keeps_deadlines: whether it is made for requests with deadlines, which end at their deadline. A plan
            gives the others requests without one, and judges lateness itself.
    """

    keeps_deadlines: bool = True

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
