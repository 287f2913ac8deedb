"""First in, first out over all models: the baseline that knows nothing of swaps."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final, final

from repertory.actors.policy import Bind, ContextState, Decision, Entry, Grant, GroupState, Policy, Step, Wait
from repertory.actors.room import making_room

__all__ = ["Fifo"]

_NOTHING: Final = Wait("nothing waits that is not taken care of")
_TAKEN: Final = Wait("whatever came first is granted")
_NO_PLACE: Final = Wait("what waits does not fit beside what is pinned")


@final
class Fifo(Policy):
    """Serves one request a grant, the oldest arrival of all models first, and binds for it.

    Of several groups, each that is free takes the oldest request that no other is about to take: none that
    another binds for, or has granted. Between requests of one model their priorities and deadlines decide,
    as under every policy. It knows no deadlines, priorities of models, weights, or costs.
    """

    keeps_deadlines = False

    def decide(self, state: GroupState, now: float) -> Decision:
        line = _oldest_first(state)
        if not line:
            return _NOTHING
        for arrival, entry in line:
            key = entry.program.key
            if entry.granted:
                return _TAKEN
            if key in state.residents:
                return Grant(entry, 1, "it came first, {:.4g} s ago", fresh=True, figures=(now - arrival,))
            evict = making_room(state, entry.program)
            if evict is not None:
                taken = (Step(entry.context, now, now, 1),)
                return Bind(entry, evict, "it came first, {:.4g} s ago", (now - arrival,), taken)
        return _NO_PLACE


def _oldest_first(state: GroupState) -> list[tuple[float, Entry]]:
    """Return what waits and is not taken care of, with the arrival of the first such request of each."""
    taken = _taken(state)
    line: list[tuple[float, Entry]] = []
    for entry in state.entries:
        context = entry.context
        ahead = taken[context]
        if entry.ready and context.waiting > ahead:
            line.append((_arrival(context, ahead), entry))
    line.sort(key=lambda each: each[0])
    return line


def _taken(state: GroupState) -> Counter[ContextState]:
    """Count the requests that are about to be taken, by context."""
    taken: Counter[ContextState] = Counter()
    for group in state.peers or [state]:
        if group is not state and group.in_service:
            for step in group.plan:
                taken[step.context] += step.frames
        for entry in group.entries:
            if entry.granted:
                taken[entry.context] += entry.granted
    return taken


def _arrival(context: ContextState, ahead: int) -> float:
    """Return when the request came that has so many before it in its backlog."""
    arrivals = context.arrivals(ahead + 1)
    if len(arrivals) > ahead:
        return arrivals[ahead]
    return context.ready_since if context.ready_since < math.inf else -math.inf
