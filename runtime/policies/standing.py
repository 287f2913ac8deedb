"""Where a group stands among its peers: what they serve in time, and who is best placed for a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

from repertory.actors.admission import LENIENCE
from repertory.actors.hope import has_a_place_to_spare, untried
from repertory.actors.policy import QUICKER, ContextState, Entry, GroupState
from repertory.actors.sharing import displaced, patience_for

__all__ = ["LONG", "Holders", "best_placed", "held_by_others", "left_to", "served_by"]

LONG: Final = 10.0
"""A first frame hangs that lasts so many times what a swap and a frame are taken to last."""

_MOST = 64  # frames


Holders: TypeAlias = dict[ContextState, list[tuple[GroupState, Entry]]]
"""The groups that have a model and mean to go on with it, or are about to get it, by model."""


def held_by_others(state: GroupState) -> Holders:
    """Return what the groups beside this one hold."""
    holders: Holders = {}
    for peer in state.peers:
        if peer is state or not peer.in_service:
            continue
        if peer.plan:
            entry = peer.by_context.get(peer.plan[0].context)
            held: Sequence[Entry] = () if entry is None else (entry,)
        elif peer.binding is not None:
            held = (peer.binding,)
        else:
            held = [entry for key in peer.residents for entry in peer.by_program.get(key, ())]
        for entry in held:
            holders.setdefault(entry.context, []).append((peer, entry))
    return holders


def left_to(state: GroupState, entry: Entry, now: float) -> GroupState | None:
    """Return the quicker group that a slow one leaves a model's frames to, or None."""
    if not entry.service.samples:
        return None
    late = _is_late(state, entry, now)
    for peer in state.peers:
        there = peer.by_context.get(entry.context)
        if peer is state or there is None:
            continue
        if late and _may_be_in_time(peer, there, now):
            return peer
        service = peer.service_cost(there)
        if service * QUICKER <= entry.service.value and _yields(
            state, entry, peer, there, service=service, now=now
        ):
            return peer
    return None


def _is_late(group: GroupState, entry: Entry, now: float) -> bool:
    """Whether a group that has a model would answer its first frame too late, as far as it knows."""
    end = now + group.busy_for(now) + entry.service.value + entry.transit.value
    return entry.context.glance()[1] < end - LENIENCE and not entry.stale(now)


def _may_be_in_time(peer: GroupState, there: Entry, now: float) -> bool:
    """Whether a group would answer the first frame in time, after what it does now, or nobody knows."""
    if not peer.in_service:
        return False
    if untried(peer, there, now):
        return True
    resident = there.program.key in peer.residents or peer.binding is there
    load = 0.0 if resident else peer.swap_cost(there)
    end = now + peer.busy_for(now) + load + peer.service_cost(there) + there.transit.value
    return end <= there.context.glance()[1]


def _yields(
    slow: GroupState, entry: Entry, peer: GroupState, there: Entry, *, service: float, now: float
) -> bool:
    """Whether a peer, a frame of which takes so long, answers all before a group could answer one."""
    if not peer.in_service:
        return False
    begin = peer.busy_for(now)
    if there.program.key not in peer.residents and peer.binding is not there:
        if peer.in_flight or peer.binding is not None:
            return False
        begin += peer.swap_cost(there)
    return begin + entry.context.waiting * service < slow.busy_for(now) + entry.service.value


def served_by(
    holders: list[tuple[GroupState, Entry]],
    state: GroupState,
    entry: Entry,
    now: float,
    free: float,
    *,
    idle: bool,
) -> int:
    """Return how many of a model's waiting frames others will serve: in time, or sooner than this group.

    In time is not enough where this group has nothing to do: a backlog that outweighs a swap is shared.

    Args:
        holders: the others that hold it.
        state: this group.
        entry: the model on it, not resident there.
        now: the present.
        free: when this group is free.
        idle: whether it has nothing to do.
    """
    context, own = entry.context, state.service_cost(entry)
    deadlines, taken = context.deadlines(_MOST), 0
    for peer, there in holders:
        service = peer.service_cost(there)
        if there.in_flight and not there.service.samples:
            lasts = now - there.served
            if not entry.service.samples and _finds_out(state, entry, lasts, now):
                return context.waiting
            service = max(service, lasts)
        slow = there.service.samples and own * QUICKER <= service
        if slow and _yields(peer, there, state, entry, service=own, now=now):
            continue
        begin = now + peer.busy_for(now)
        latest = math.inf
        if idle:
            end = begin + context.waiting * service
            latest = free + patience_for(state, entry, peer, end - free, now)
        elif math.inf in deadlines:
            latest = free + state.swap_cost(entry) + own
        for deadline in deadlines[taken:] if taken else deadlines:
            begin += service
            if begin > deadline or (begin > latest and (idle or deadline == math.inf)):
                break
            taken += 1
    return taken


def _finds_out(state: GroupState, entry: Entry, lasts: float, now: float) -> bool:
    """Whether a first frame that lasts so long already is left alone: one group finds out what it takes.

    Others wait for as long as they would need themselves. Then whoever has a place to spare tries, and at
    last everybody: it hangs. Not where no request has as much time as that: it would hold a group in vain.
    """
    cost = state.swap_cost(entry) + state.service_cost(entry)
    if lasts <= cost:
        return True
    hangs = LONG * cost < lasts <= entry.context.rhythm.allowance
    return not hangs and not has_a_place_to_spare(state, now)


def best_placed(state: GroupState, entry: Entry, now: float) -> GroupState:
    """Return the group that serves a model best, of this one and its peers that have nothing to do.

    Where its frames wait, that is one that does not have it: they are what those that have it leave.
    """
    best, least = state, -1.0
    context = entry.context
    for peer in state.peers:
        if peer is state or not _is_idle(peer) or (there := peer.by_context.get(context)) is None:
            continue
        if context.waiting and there.program.key in peer.residents:
            continue
        if least < 0:
            least = _cost(state, entry, now)
        cost = _cost(peer, there, now)
        if cost < least:
            best, least = peer, cost
    return best


def _is_idle(peer: GroupState) -> bool:
    return peer.in_service and not peer.in_flight and peer.binding is None and not peer.plan


def _cost(group: GroupState, entry: Entry, now: float) -> float:
    """Return seconds until a frame is answered there, and what others lose by it."""
    cost = group.busy_for(now) + group.service_cost(entry)
    if entry.program.key in group.residents:
        return cost
    return cost + group.swap_cost(entry) + displaced(group, now)
