"""When an idle group becomes one more home of a model, and what others lose by it."""

from __future__ import annotations

import math
from typing import Final

from .policy import Entry, GroupState

__all__ = ["DEAR", "WORTH", "displaced", "has_nothing_to_do", "patience_for"]

DEAR: Final = 4.0
"""How many swaps it counts that a model is gone whose requests cannot wait for one."""

WORTH: Final = 2.0
"""A frame that waits for so many times a swap and a frame is shared, where both groups were equally busy."""


def patience_for(idle: GroupState, entry: Entry, busy: GroupState, wait: float, now: float) -> float:
    """Return how many seconds frames may wait for a busy group before an idle one shares them.

    That is twice what it costs the idle one, by the square of what both had of idle time lately: where the
    busy one never rests no frame needs to wait, and where idle time is rare it is not spent on a swap. No
    model goes for it that is asked for and whose requests cannot wait for a swap.

    Args:
        idle: a group that has nothing to do.
        entry: the model on it, not resident there.
        busy: a group that serves the model.
        wait: the longest that any will: whether it is more is not looked at.
        now: the present.
    """
    spare = 1 - idle.load.share(now)
    if not spare:
        return math.inf
    rest = (1 - busy.load.share(now)) / spare
    cost = idle.swap_cost(entry) + idle.service_cost(entry)
    worth = WORTH * cost * rest * rest
    return worth if wait <= worth else worth + displaced(idle, now, dear=math.inf) / spare


def has_nothing_to_do(group: GroupState) -> bool:
    """Whether a group is idle, and nothing waits that it could serve without a swap."""
    if group.in_flight or group.binding is not None or not group.in_service:
        return False
    for key in group.residents:
        for entry in group.by_program.get(key, ()):
            if entry.context.waiting:
                return False
    return True


def displaced(group: GroupState, now: float, *, dear: float = DEAR) -> float:
    """Return what others lose where one more model becomes resident, in seconds.

    Args:
        group: where.
        now: the present.
        dear: how many swaps it counts where requests cannot wait for one.
    """
    if len(group.residents) < group.capacity:
        return 0.0
    return min([_missed(group, key, now, dear) for key in group.residents], default=0.0)


def _missed(group: GroupState, key: str, now: float, dear: float) -> float:
    """Return what it costs that a resident goes: its swap, the less the longer nobody asks for it.

    That is more where its requests cannot wait for a swap, and are lost.
    """
    missed = 0.0
    for entry in group.by_program.get(key, ()):
        rhythm = entry.context.rhythm
        due, _ = rhythm.foresee(now)
        pause = min(now - rhythm.last, due - now)
        swap = group.swap_cost(entry)
        cost = swap + group.service_cost(entry)
        if rhythm.allowance < cost + swap:
            if due < math.inf and dear == math.inf:
                return math.inf
            cost *= min(dear, DEAR)
        if cost and pause < math.inf:
            missed += cost * cost / (cost + pause)
    return missed
