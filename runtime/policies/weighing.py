"""Weighing: which model a group should turn to, where not all can be served in time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final, final

from repertory.actors.policy import ContextState, Entry, Step

from .demand import Demand, demand_of
from .foresight import foreseen
from .lookahead import look_ahead
from .scene import Scene, worth_of
from .standing import held_by_others

__all__ = ["CLAIMS", "FARTHEST", "FORESIGHT", "Outlook", "weigh"]

FARTHEST: Final = 0.3
"""Seconds that a decision looks ahead at most."""

FORESIGHT: Final = 0.25
"""Seconds for which arrivals are foreseen."""

CLAIMS: Final = 2
"""Stretches that the other groups foresee first, and that a group leaves to them."""

_LOADS: Final = 4.0  # swaps that fit into the time ahead
_PERIODS: Final = 2.2  # of a rhythmic model: its next frame and the one after that
_SLOWEST: Final = 0.1  # seconds: the longest period for which that is so
_FRAMES: Final = 8.0
_SHORTEST: Final = 0.001


@final
class Outlook:
    """What a group should do first, and what comes of it.

    Attributes:
        demand: of the model to turn to.
        plan: what follows, that stretch first.
        worth: of the plan, less the price of its time.
        priority: the highest class in the plan.
    """

    __slots__ = ("demand", "plan", "priority", "worth")

    def __init__(self, demand: Demand, plan: tuple[Step, ...], worth: float, priority: int) -> None:
        self.demand = demand
        self.plan = plan
        self.worth = worth
        self.priority = priority


def weigh(scene: Scene, *, width: int, candidates: int, fairness: float) -> Outlook | None:
    """Look ahead for what makes most of the time; None where nothing can be in time.

    A frame is worth the weight of its model, 16 times more for each class of priority above another, and
    up to `1 + fairness` times more where few of the model's frames were in time of late.
    """
    demands = _demands(scene, candidates, fairness)
    if not demands:
        return None
    state = scene.state
    ahead = look_ahead(
        demands,
        tuple(n for n, demand in enumerate(demands) if demand.entry.program.key in state.residents),
        state.capacity,
        scene.free,
        until=scene.free + _horizon(demands),
        price=scene.price,
        width=width,
    )
    if ahead is None:
        return None
    steps = ahead.steps()
    plan = tuple(
        Step(demands[step.number].entry.context, step.start, step.end, step.frames) for step in steps
    )
    highest = max([demands[step.number].priority for step in steps])
    return Outlook(demands[steps[0].number], plan, ahead.worth, highest)


def _demands(scene: Scene, candidates: int, fairness: float) -> list[Demand]:
    """Return what each model asks for; of too many models, those that promise most at once."""
    claimed = _claims(scene)
    demands: list[Demand] = []
    for entry, load, service, priority, taken, horizon in _all_of(scene):
        context = entry.context
        demand = demand_of(
            scene.state,
            entry,
            scene.now,
            scene.free,
            load=load,
            service=service,
            priority=priority,
            value=worth_of(context, priority) * (1.0 + fairness * (1.0 - context.kept)),
            taken=max(taken, claimed.get(context, 0)),
            horizon=horizon,
        )
        if demand is not None:
            demands.append(demand)
    if len(demands) <= candidates:
        return demands
    promising = [(_promise(scene, demand), number) for number, demand in enumerate(demands)]
    promising.sort(key=itemgetter(0), reverse=True)
    return [demands[number] for _, number in promising[:candidates]]


def _promise(scene: Scene, demand: Demand) -> float:
    """Return what a second is worth that begins with a model, until its frames are done or it pauses."""
    load = 0.0 if demand.entry.program.key in scene.state.residents else demand.load
    ends = demand.serve(0, scene.free + load, math.inf)
    if not ends:
        return 0.0
    _, end, frames = ends[0]
    return demand.value * frames / (end - scene.free)


def _horizon(demands: Sequence[Demand]) -> float:
    """Return for how long to look ahead: some swaps, and two periods of whoever has a rhythm."""
    loads = max([demand.load for demand in demands])
    service = max([demand.service for demand in demands])
    period = max([demand.entry.context.rhythm.period for demand in demands])
    longest = max(_LOADS * loads, _PERIODS * min(_SLOWEST, period), _FRAMES * service, _SHORTEST)
    return min(FARTHEST, longest)


def _all_of(scene: Scene) -> Iterator[tuple[Entry, float, float, int, int, float]]:
    """Tell everybody who waits or comes.

    That is: seconds of a swap and of a frame, priority, how many frames others serve, and until when to
    foresee. A frame that has not come is for the groups that have its model: no other swaps for it.
    """
    state, horizon = scene.state, scene.free + FORESIGHT
    for asker in (*scene.here, *scene.away):
        until = -math.inf if asker.held else horizon
        yield asker.entry, asker.swap, asker.service, asker.priority, asker.taken, until
    coming = foreseen(scene)
    holders = held_by_others(state) if coming else {}
    for entry in coming:
        if entry.context not in holders or entry.program.key in state.residents:
            swap, service = state.swap_cost(entry), state.service_cost(entry)
            yield entry, swap, service, entry.context.priority, 0, horizon


def _claims(scene: Scene) -> dict[ContextState, int]:
    """Return how many frames of each model the other groups mean to serve next.

    A stretch that is not begun is decided anew: it claims what waits, but no frame that has not come. Each of
    several groups would leave those to the others' next stretch, and nobody would turn to them.
    """
    claimed: dict[ContextState, int] = {}
    for peer in scene.state.peers:
        if peer is scene.state or not peer.in_service:
            continue
        for number, step in enumerate(peer.plan[:CLAIMS]):
            if step.end <= scene.now:
                continue
            before = claimed.get(step.context, 0)
            claims = before + step.frames
            claimed[step.context] = max(before, min(claims, step.context.waiting)) if number else claims
    return claimed
