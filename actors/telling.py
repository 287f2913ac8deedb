"""Who needs not be told that frames wait: a group for which nothing is to be decided by it."""

from __future__ import annotations

import math

from .policy import KEPT, QUICKER, ContextState, GroupState

__all__ = ["can_wait", "serves_soon"]


def serves_soon(group: GroupState, context: ContextState, earliest: float, now: float) -> bool:
    """Whether a group that has a model, or gets it next, answers all that waits in time: others are spared.

    Not where another group is of a quicker kind: then all of them are to look.

    Args:
        group: the group, which is busy with the model, or with its swap.
        context: the model.
        earliest: deadline of its waiting frames.
        now: the present.
    """
    entry = group.by_context.get(context)
    if entry is None or (group.plan and group.plan[0].context is not context):
        return False
    end = now + group.busy_for(now)
    if entry.program.key in group.residents:
        if not group.in_flight:
            return False
    elif not group.plan:
        return False
    elif group.binding is not entry:
        end += group.swap_cost(entry)
    service = group.service_cost(entry)
    if not end + context.waiting * service + entry.transit.value <= earliest < math.inf:
        return False
    for peer in group.peers:
        there = peer.by_context.get(context)
        if there is not None and peer.service_cost(there) * QUICKER <= service:
            return False
    return True


def can_wait(group: GroupState, context: ContextState, earliest: float, now: float) -> bool:
    """Whether a group goes on with another model, and this one is well in time after that, too.

    Args:
        group: the group.
        context: the model.
        earliest: deadline of its waiting frames.
        now: the present.
    """
    first, entry = group.committed, group.by_context.get(context)
    if entry is None or first is None or first.context is context or not group.in_flight:
        return False
    plan = group.plan
    if plan and plan[0].frames:
        end = plan[0].end
    elif context.kept < KEPT:
        return False
    else:
        end = first.latest
    if end < now:
        return False
    begin = end + group.swap_cost(entry)
    if begin > context.hungry_since + context.max_wait / 2:  # its turn may be due before
        return False
    return begin + context.waiting * group.service_cost(entry) + entry.transit.value <= earliest
