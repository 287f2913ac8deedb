"""Who needs not be told at once that frames wait: a group for which nothing is to be decided by it."""

from __future__ import annotations

import math
from typing import Final

from .policy import KEPT, QUICKER, ContextState, GroupState
from .sharing import has_nothing_to_do, patience_for

__all__ = ["SPARED", "free_for", "serves_soon"]

SPARED: Final = 0.25
"""A group is told later only within this share of the time to a deadline, and of `max_wait`."""


def serves_soon(group: GroupState, context: ContextState, earliest: float, now: float) -> bool:
    """Whether a group that is busy with a model answers what waits in time: the others are spared.

    That is one frame beside those that run, or what fits behind the swap that goes on, or is about to begin.
    Not where another group is of a quicker kind, or has the model and nothing to do: then all of them are to
    look.

    Args:
        group: the group.
        context: the model.
        earliest: deadline of its waiting frames.
        now: the present.
    """
    entry = group.by_context.get(context)
    if entry is None or not group.in_service:
        return False
    load = 0.0
    if group.binding is not entry:
        if group.plan and group.plan[0].context is not context:
            return False
        if entry.program.key not in group.residents:
            if not group.plan or group.in_flight or group.binding is not None:
                return False
            load = group.swap_cost(entry)
        elif context.waiting > 1 or not entry.in_flight:
            return False
    service = group.service_cost(entry)
    end = now + group.busy_for(now) + load + context.waiting * service + entry.transit.value
    return end <= earliest < math.inf and not _better(group, context, service, end, now)


def _better(group: GroupState, context: ContextState, service: float, end: float, now: float) -> bool:
    """Whether another group is of a quicker kind, or has nothing to do and could share what waits."""
    for peer in group.peers:
        there = peer.by_context.get(context)
        if there is None or peer is group:
            continue
        if peer.service_cost(there) * QUICKER <= service:
            return True
        if there.program.key in peer.residents:
            if peer.in_service and not peer.in_flight and peer.binding is None:
                return True
        elif has_nothing_to_do(peer) and end - now > patience_for(peer, there, group, end - now, now):
            return True
    return False


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
