"""Who needs not be told at once that frames wait: a group for which nothing is to be decided by it."""

from __future__ import annotations

import math
from typing import Final

from .policy import KEPT, QUICKER, ContextState, GroupState

__all__ = ["SPARED", "free_for", "serves_soon"]

SPARED: Final = 0.25
"""A group is told later only within this share of the time to a deadline, and of `max_wait`."""


def serves_soon(group: GroupState, context: ContextState, earliest: float, now: float) -> bool:
    """Whether a group that is busy with a model answers its only frame in time: the others are spared.

    Not where another group is of a quicker kind: then all of them are to look.

    Args:
        group: the group.
        context: the model.
        earliest: deadline of its waiting frames.
        now: the present.
    """
    entry = group.by_context.get(context)
    if entry is None or context.waiting > 1 or not group.in_flight or not group.in_service:
        return False
    if entry.program.key not in group.residents or (group.plan and group.plan[0].context is not context):
        return False
    service = group.service_cost(entry)
    if not now + group.busy_for(now) + service + entry.transit.value <= earliest < math.inf:
        return False
    for peer in group.peers:
        there = peer.by_context.get(context)
        if there is not None and peer.service_cost(there) * QUICKER <= service:
            return False
    return True


def free_for(group: GroupState, context: ContextState, earliest: float, now: float) -> float | None:
    """Return when a group that goes on with another model will be free, if that is soon enough for this one.

    Until then there is nothing to decide. None where it is to be asked at once: where that would be late,
    or not soon; for a higher priority; and for a model that lost requests lately, unless the group goes on
    as it foresaw.

    Args:
        group: the group.
        context: the model.
        earliest: deadline of its waiting frames.
        now: the present.
    """
    first, entry = group.committed, group.by_context.get(context)
    if entry is None or first is None or first.context is context or not group.in_flight:
        return None
    if context.glance()[0] > first.priority:
        return None
    if group.plan and group.plan[0].frames:
        end = group.plan[0].end
    elif context.kept < KEPT:
        return None
    else:
        end = first.latest
    patience = min(SPARED * (earliest - now), context.hungry_since + SPARED * context.max_wait - now)
    if not 0 <= end - now <= patience:
        return None
    begin = end + group.swap_cost(entry)
    if begin + context.waiting * group.service_cost(entry) + entry.transit.value > earliest:
        return None
    return end
