"""What a group is asked for at a moment: who waits, who will come, and what time is worth."""

from __future__ import annotations

import math
from typing import Final, final

import msgspec

from repertory.actors.hope import hoped_costs
from repertory.actors.policy import ContextState, Entry, GroupState
from repertory.actors.sharing import has_nothing_to_do

from .standing import Holders, held_by_others, left_to, served_by

__all__ = [
    "CLASS",
    "CLASSES",
    "FRAMES",
    "INSTANT",
    "MARGIN",
    "OVERDUE",
    "Asker",
    "Scene",
    "asker_of",
    "class_worth",
    "survey",
    "worth_of",
]

MARGIN: Final = 3.0
"""How many times what samples are usually off their mean is kept in reserve before a deadline."""

OVERDUE: Final = 0.7
"""The share of `max_wait` for which a resident model waits at most while a higher class has frames."""

CLASS: Final = 16.0
"""A frame is worth so many of the class of priority below."""

CLASSES: Final = 8
"""Classes above and below 0 that are told apart so; beyond them, all are worth the same."""

INSTANT: Final = 1e-4
"""Seconds that a decision foresees at least, and that it keeps before a deadline: of two things that happen
at the very same moment either may come first, and a coarse clock would not move meanwhile."""

FRAMES: Final = 64
"""Waiting frames of a model that a decision looks at; those behind them wait for a later one."""


@final
class Asker(msgspec.Struct, eq=False):
    """A model whose frames wait.

    Attributes:
        entry: the model on this group.
        context: the model.
        resident: whether its program is there.
        swap: seconds that making it so takes.
        load: those that it would take now; 0 where it is there.
        service: seconds of a frame.
        least: seconds that a turn of it lasts at least.
        taken: frames that other groups will serve in time, the first ones.
        held: whether another group has it, or is about to.
        count: those that are left, at most `FRAMES`.
        priority: of what is taken next.
        deadline: when the device must have done with it.
        span: seconds of device time that serving it takes.
        must: when it must be begun so that nothing can be late, were all its deadlines like the first, nor by
            what swaps and frames usually are off their means.
    """

    entry: Entry
    context: ContextState
    resident: bool
    swap: float
    load: float
    service: float
    least: float
    taken: int
    held: bool
    count: int
    priority: int
    deadline: float
    span: float
    must: float

    @property
    def worth(self) -> float:
        """What its frames are worth together."""
        return self.count * worth_of(self.context, self.priority)

    def can_be_in_time(self, begin: float) -> bool:
        """Whether any frame that waits, or a foreseen one, is in time if the model is begun at a moment."""
        if self.deadline >= begin + self.load + self.service:
            return True
        end = begin + self.load + self.service + self.entry.transit.value
        if any(deadlines[-1] >= end for _, deadlines in self.context.outline(FRAMES)):
            return True
        rhythm = self.context.rhythm
        return rhythm.period > 0 and rhythm.next(begin) + rhythm.allowance >= end


@final
class Scene(msgspec.Struct, eq=False):
    """One group at a moment.

    Attributes:
        state: the group's.
        now: the present.
        free: when the device has done what it was given.
        here: who waits and may be started at once, without an open grant.
        away: who waits for a swap.
        granted: whether anybody has an open grant.
        elsewhere: whether anybody else waits, and is served by other groups.
        passed: why those that cannot be bound now are passed over.
        foreseen: see the function of this name.
        due_at: when the next turn is due, whatever else there is to do.
        overdue: whose turn it is as soon as the resident goes, or None.
    """

    state: GroupState
    now: float
    free: float
    here: list[Asker]
    away: list[Asker]
    granted: bool
    elsewhere: bool
    passed: dict[Entry, str]
    foreseen: dict[bool, list[Entry]]
    due_at: float = math.inf
    overdue: Asker | None = None

    @property
    def price(self) -> float:
        """What a second of device time is worth, in frames of weight 1."""
        share = self.state.load.share(self.now)
        return share * share * self.state.load.rate(self.now)

    def pass_over(self, entry: Entry, why: str) -> None:
        """Decide without somebody."""
        self.away = [asker for asker in self.away if asker.entry is not entry]
        self.passed[entry] = why
        self.foreseen.clear()
        if self.overdue is not None and self.overdue.entry is entry:
            self.overdue = None


def worth_of(context: ContextState, priority: int) -> float:
    """Return what a frame of a model is worth, by its weight and its class."""
    return context.weight * class_worth(priority) if priority else context.weight


def class_worth(priority: int) -> float:
    """Return what a frame of weight 1 is worth in a class, in frames of class 0."""
    return CLASS ** max(-CLASSES, min(CLASSES, priority))


def asker_of(
    state: GroupState,
    entry: Entry,
    now: float,
    free: float,
    *,
    resident: bool,
    taken: int = 0,
    held: bool = False,
) -> Asker:
    """Look at a model whose frames wait, at a group that is free at a moment.

    Its costs are hopeful ones where by all that is known it would be late.
    """
    context, service_time, swap_time = entry.context, entry.service, entry.swap
    priority, deadline = context.glance()
    deadline -= entry.transit.value
    service = service_time.value if service_time.samples else state.service_cost(entry)
    swap = swap_time.value if swap_time.samples else state.swap_cost(entry)
    doubt = service_time.spread
    if resident:
        load = 0.0
    else:
        load, doubt = swap, doubt + swap_time.spread
    if deadline < free + load + service and (hope := hoped_costs(state, entry, now)) is not None:
        swap, service = hope
        load = 0.0 if resident else swap
    count = min(context.waiting, FRAMES) - taken
    work = count * service
    return Asker(
        entry,
        context,
        resident,
        swap,
        load,
        service,
        max(service, swap),
        taken,
        held,
        count,
        priority,
        deadline,
        load + work,
        deadline - load - work - MARGIN * doubt - INSTANT,
    )


def survey(state: GroupState, now: float) -> Scene:
    """Look at a group."""
    residents, several = state.residents, len(state.peers) > 1
    holders: Holders | None = None
    free = now + state.busy_for(now)
    here: list[Asker] = []
    away: list[Asker] = []
    granted = elsewhere = idle = False
    for entry in [each for each in state.entries if each.context.waiting and (each.granted or each.ready)]:
        context = entry.context
        if entry.granted:
            granted = True
            free += min(entry.granted, context.waiting) * state.service_cost(entry)
        elif entry.program.key in residents:
            if several and left_to(state, entry, now) is not None:
                elsewhere = True
                continue
            here.append(asker_of(state, entry, now, free, resident=True))
        else:
            taken, held = 0, False
            if several:
                if holders is None:
                    holders, idle = held_by_others(state), has_nothing_to_do(state)
                if context in holders:
                    taken = served_by(holders[context], state, entry, now, free, idle=idle)
                    held = True
            if taken < FRAMES and taken < context.waiting:
                away.append(asker_of(state, entry, now, free, resident=False, taken=taken, held=held))
            else:
                elsewhere = True
    scene = Scene(state, now, free, here, away, granted, elsewhere, {}, {})
    if state.capacity > 1:
        _hold_back(scene)
    return scene


def _hold_back(scene: Scene) -> None:
    """Let those of a lower class wait while frames of a higher one do: they would take part of the device.

    For `OVERDUE` of their `max_wait` at most, and only as long as they would still be in time.
    """
    highest = max([asker.priority for asker in scene.here], default=-math.inf)
    longest = max([asker.service for asker in scene.here], default=0.0)
    for entry in scene.state.entries:
        if entry.granted and entry.context.waiting:
            highest = max(highest, entry.context.glance()[0])
            longest = max(longest, scene.state.service_cost(entry))
    here: list[Asker] = []
    for asker in scene.here:
        context = asker.context
        moment = min(asker.must, context.hungry_since + OVERDUE * context.max_wait) - MARGIN * longest
        if asker.priority >= highest or moment <= scene.now:
            here.append(asker)
        else:
            scene.due_at = min(scene.due_at, moment)
    scene.here = here
