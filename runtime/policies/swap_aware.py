"""The policy that knows what a swap costs."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final, final

import msgspec

from repertory.actors.policy import KEPT, Bind, Decision, Entry, Grant, GroupState, Policy, Step, Wait
from repertory.actors.room import making_room, room_told
from repertory.actors.telling import SPARED
from repertory.models.errors import ConfigError

from .begun import first_frame, is_fresh, just_begun
from .demand import Demand
from .foresight import foreseen, frame_of_resident, is_tight, tight_ones
from .granting import grant_of
from .in_order import InOrder, in_order, spare_frames
from .scene import FRAMES, INSTANT, Asker, Scene, class_worth, survey
from .standing import best_placed, held_by_others
from .turns import Due, deadlines_come_first, due_here, due_turn
from .weighing import Outlook, weigh

__all__ = ["BESIDE", "COMFORT", "PATIENCE", "SCARCE", "SwapAware"]

PATIENCE: Final = 4.0
"""Swaps for which a higher class waits at most while a lower one is served, if nobody is late by it."""

COMFORT: Final = 5.0
"""Swaps that a resident must be able to wait beyond what is more pressing, to make room for it at once."""

SCARCE: Final = 0.1
"""Frames that a swap costs where device time is scarce: then models are bound ahead of foreseen frames."""

BESIDE: Final = 16
"""Frames of a grant where other resident models have work too."""

_NOTHING: Final = Wait("nothing waits")
_GRANTED: Final = Wait("whatever may start now is granted")
_SOON: Final = 0.005  # seconds after which time itself may have changed something
_LATER: Final = 0.05
_WAITED: Final = "it has waited {:.3f} s for its turn"
_TOO_MANY: Final = "it has waited {:.3f} s for its turn, and less is not feasible"
_ROUNDING: Final = 1e-6
_SLACK: Final = 0.0025  # a foreseen frame may be that late


@final
class SwapAware(Policy):
    """Weighs what is answered in time against the device time that it takes, swaps included.

    In this order, and the first that applies decides:

    1. Nobody waits for a swap: whoever is resident goes on.
    2. Who was just bound starts a frame at least (asked first where one program may be resident).
    3. A turn is due: nobody waits for ever (see `turns`), nor does a resident beside a device that is held.
    4. All that wait will be in time one after the other: residents first, as long as there is slack for it,
       then the most pressing (see `in_order`). Likewise where nobody who waits is worth a swap.
    5. What makes most of the time ahead, swaps and foreseen frames included (see `weighing`).

    A model is bound here only where no idle group is better placed, and where room can be made for it.

    Args:
        width: sequences that are carried on for each slice of the time ahead.
        candidates: models that are weighed against each other at most.
        fairness: how much more a frame counts of a model that is served badly, at most.

    Raises:
        ConfigError: `width` or `candidates` is below 1, or `fairness` below 0.
    """

    def __init__(self, *, width: int = 4, candidates: int = 6, fairness: float = 0.5) -> None:
        if width < 1 or candidates < 1:
            raise ConfigError(f"width {width} and candidates {candidates} came, at least 1 is wanted")
        if not 0 <= fairness < math.inf:
            raise ConfigError(f"fairness {fairness} came, a number from 0 on is wanted")
        self._width = width
        self._candidates = candidates
        self._fairness = fairness

    def decide(self, state: GroupState, now: float) -> Decision:
        if len(state.entries) == 1:
            lone = _alone(state.entries[0], state)
            if lone is not None:
                return lone
        begun = first_frame(state, now)
        if begun is not None:
            return begun
        scene = survey(state, now)
        while True:
            decision = self._decide(scene)
            if decision is not None:  # else somebody was passed over
                return decision

    def _decide(self, scene: Scene) -> Decision | None:
        if not scene.away and not _must_be_ahead(scene):
            return _stay(scene)
        if scene.away:
            if (begun := just_begun(scene)) is not None:
                return begun
            alone = scene.state.capacity == 1
            line = in_order(scene) if alone and not _is_losing(scene) else None
            if line is None or not deadlines_come_first(scene, line.slack, line.end):
                due = due_turn(scene)
                if due is not None:
                    return _take_turn(scene, due)
            if alone:
                passed = len(scene.passed)
                easy = _undisturbed(scene) if line is None else _in_time(scene, line)
                if easy is not None or len(scene.passed) > passed:
                    return easy
        return _goes_on(scene) or self._weigh(scene)

    def _weigh(self, scene: Scene) -> Decision | None:
        outlook = weigh(scene, width=self._width, candidates=self._candidates, fairness=self._fairness)
        if outlook is None:
            if scene.granted:
                return _GRANTED
            soon = _SOON if scene.here or scene.away else _LATER
            return Wait("nothing can be in time", until=scene.now + soon)
        demand = outlook.demand
        serves = demand.waiting and demand.entry.program.key in scene.state.residents
        if not serves and (due := due_here(scene)) is not None:
            return grant_of(due.asker, 1, _WAITED, due.waited)
        return _begin(scene, outlook)


def _alone(entry: Entry, state: GroupState) -> Decision | None:
    """Decide for a group that serves one model, the quick way."""
    if not entry.context.waiting:
        return _NOTHING
    if entry.granted or entry.program.key not in state.residents or not entry.ready or len(state.peers) > 1:
        return None
    fresh, worth = entry.turn_since == -math.inf, entry.context.weight
    return Grant(entry, entry.context.waiting, "nobody else is there", fresh=fresh, worth=worth)


def _stay(scene: Scene) -> Decision:
    """Nobody waits for a swap."""
    if not scene.here:
        if scene.granted:
            return (
                _GRANTED
                if scene.due_at == math.inf
                else msgspec.structs.replace(_GRANTED, until=scene.due_at)
            )
        if scene.passed:
            return Wait(next(iter(scene.passed.values())), until=scene.now + _SOON)
        return Wait("others serve what waits", until=scene.now + _LATER) if scene.elsewhere else _NOTHING
    if len(scene.here) == 1:
        asker = scene.here[0]
        return grant_of(asker, asker.context.waiting, "nobody else waits", until=scene.due_at)
    asker = min(scene.here, key=_by_class)
    why = "the most urgent of those that are resident"
    return grant_of(asker, min(asker.count, BESIDE), why, until=scene.due_at)


def _goes_on(scene: Scene) -> Decision | None:
    """Go on as planned, unless somebody asks who was not known then and cannot wait."""
    plan = scene.state.plan
    if not plan or not scene.here or scene.state.capacity > 1:
        return None
    step, resident = plan[0], scene.here[0]
    if step.context is not resident.context or not step.frames or not resident.service:
        return None
    frames = int((step.end - scene.free) / resident.service + _ROUNDING)
    if frames < 1:
        return None
    known = {each.context for each in plan}
    for asker in scene.away:
        if asker.must < step.end and asker.context.ready_since > step.start and asker.context not in known:
            return None
    frames, worth = min(frames, resident.count), resident.entry.worth
    return grant_of(resident, frames, "goes on as planned", worth=worth, plan=plan, until=scene.due_at)


def _take_turn(scene: Scene, due: Due) -> Decision | None:
    why = _WAITED if due.feasible else _TOO_MANY
    keep = {asker.entry.program.key for asker in scene.here if is_fresh(asker.entry)}
    return _bind(scene, due.asker.entry, (), why, due.waited, keep=keep)


def _in_time(scene: Scene, line: InOrder) -> Decision | None:
    """Decide where all that wait will be in time, one after the other."""
    if not scene.here:
        if scene.granted:
            return None
        first = line.first
        plan = (Step(first.context, scene.free, scene.free, first.count),)
        return _turn_to(scene, first.entry, plan, "all that wait will be in time")
    resident, first = scene.here[0], line.first
    until = scene.due_at
    for asker in sorted(scene.away, key=_by_class):
        if asker.priority > resident.priority:
            moment = max(asker.context.ready_since, resident.entry.turn_since) + PATIENCE * asker.swap
            if moment <= scene.now:
                plan = (Step(asker.context, scene.free, scene.free, asker.count),)
                return _turn_to(scene, asker.entry, plan, "it is of a higher class than who is resident")
            until = min(until, moment)
    frames = spare_frames(line.slack, resident)
    if not frames:
        if resident.must - line.end < COMFORT * resident.swap or resident.priority > first.priority:
            return None
        plan = (Step(first.context, scene.free, scene.free, first.count),)
        return _turn_to(scene, first.entry, plan, "all that wait will be in time, and who is resident")
    frames = min(frames, max(resident.count, spare_frames(SPARED * line.slack, resident)))
    why = "all that wait will be in time, with {:.3f} s to spare"
    return grant_of(resident, frames, why, line.slack, until=until)


def _is_losing(scene: Scene) -> bool:
    """Whether requests were lost lately: then it is not plain at all that nobody will lose."""
    return any(asker.context.kept < KEPT for asker in (*scene.here, *scene.away))


def _undisturbed(scene: Scene) -> Decision | None:
    """Stay with the resident, where nobody is foreseen, and whoever loses by it is not worth his swap."""
    if not scene.here or scene.here[0].context.rhythm.period or foreseen(scene):
        return None
    resident = scene.here[0]
    slack, price = math.inf, scene.price
    for asker in scene.away:
        spare = asker.must - scene.free
        if spare >= resident.service:
            slack = min(slack, spare)
        elif asker.priority > resident.priority or asker.worth > price * asker.span:
            return None
    frames = max(1, min(FRAMES, spare_frames(slack, resident)))
    return grant_of(resident, frames, "nobody who waits is worth a swap", until=scene.due_at)


def _begin(scene: Scene, outlook: Outlook) -> Decision | None:
    """Begin what an outlook begins with."""
    demand, plan = outlook.demand, outlook.plan
    entry = demand.entry
    known = entry.context.rhythm.period > 0  # else it may come at any time
    if entry.program.key not in scene.state.residents:
        if not demand.waiting and not _pays_ahead(scene, demand):
            begin = max(demand.arrivals[0], scene.now + INSTANT) if known else scene.now + _LATER
            return Wait("nothing to do before its next frame", until=min(begin, scene.due_at))
        if not demand.waiting and known and demand.arrivals[0] > scene.now + demand.load + INSTANT:
            until = min(demand.arrivals[0] - demand.load, scene.due_at)
            return Wait("it will be bound for its next frame", until=until)
        why, figures = _worth_told(outlook, plan[-1].end - scene.now)
        return _turn_to(scene, entry, plan, why, *figures)
    if not demand.waiting:
        until = demand.arrivals[0] + _SLACK if known else scene.now + _LATER
        return Wait("holds for its next frame", until=min(until, scene.due_at), plan=plan)
    for asker in scene.here:
        if asker.entry is entry:
            frames = max(1, min(plan[0].frames, demand.waiting))
            return grant_of(asker, frames, "most worth", worth=demand.value, plan=plan, until=scene.due_at)
    return _GRANTED


def _worth_told(outlook: Outlook, over: float) -> tuple[str, tuple[float, ...]]:
    """Say what an outlook makes of the time, in frames of its highest class."""
    if outlook.worth < 0:
        return "most worth, though time earned more of late, over {:.3f} s", (over,)
    worth = outlook.worth / class_worth(outlook.priority)
    why = "most worth: {:.2f} frames of priority {} more than its time, over {:.3f} s"
    return why, (worth, outlook.priority, over)


def _pays_ahead(scene: Scene, demand: Demand) -> bool:
    """Whether to bind before a frame comes: where it could not wait, or where device time is scarce."""
    runs = frame_of_resident(scene.state)
    return is_tight(scene.state, demand.entry, runs) or scene.price * demand.load >= SCARCE


def _turn_to(
    scene: Scene, entry: Entry, plan: tuple[Step, ...], reason: str, *figures: float
) -> Decision | None:
    """Bind, where nobody's turn is due as soon as the resident goes."""
    first = scene.overdue
    if first is None or first.entry is entry:
        return _bind(scene, entry, plan, reason, *figures)
    waited = scene.now - first.context.hungry_since
    return _bind(scene, first.entry, (), "it comes before another: it has waited {:.3f} s", waited)


def _bind(
    scene: Scene,
    entry: Entry,
    plan: tuple[Step, ...],
    reason: str,
    *figures: object,
    keep: Collection[str] = (),
) -> Decision | None:
    """Bind; None where that cannot be now, and the scene goes on without him.

    Whoever is resident by one of the keys in `keep` does not make room.
    """
    state = scene.state
    if len(state.peers) > 1:
        best = best_placed(state, entry, scene.now)
        if best is not state:
            scene.pass_over(entry, f"{best.name} is better placed for {entry.context.name}")
            return None
    alone = state.capacity == 1 and not state.pinned and state.memory is None and not keep
    evict = tuple(state.residents.values()) if alone else making_room(state, entry.program, keep=keep)
    if evict is None:
        scene.pass_over(entry, f"{entry.context.name} finds no room at the moment")
        return None
    if room := room_told(state, evict, scene.now):
        reason += "; {}"
        figures = (*figures, room)
    return Bind(
        entry,
        evict,
        reason,
        figures=figures,
        plan=plan or (Step(entry.context, scene.free, scene.free, 0),),
    )


def _must_be_ahead(scene: Scene) -> bool:
    """Whether somebody will come who must be there before, and is nowhere."""
    state = scene.state
    tight = tight_ones(state, state.entries, frame_of_resident(state))
    away = [entry for entry in tight if entry.program.key not in state.residents]
    if not away:
        return False
    holders, expected = held_by_others(state), foreseen(scene)
    return any(
        entry.context not in holders
        and entry in expected
        and entry.context.rhythm.foresee(scene.now)[0] < math.inf
        for entry in away
    )


def _by_class(asker: Asker) -> tuple[int, float, float]:
    return -asker.priority, asker.deadline, asker.context.ready_since
