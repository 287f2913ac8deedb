"""What nobody knows yet, or not any more: a group is tried where by all that is known nobody could do it."""

from __future__ import annotations

from .policy import SERVICE_PRIOR, SWAP_PRIOR, Entry, GroupState
from .sharing import has_nothing_to_do

__all__ = ["hoped_costs", "untried"]


def untried(group: GroupState, entry: Entry) -> bool:
    """Whether a group never served a model, and may do so at once: it is idle, or has the model already.

    Not the host's own processor, which is slower as a rule.
    """
    if entry.service.samples or group.on_host or not group.in_service:
        return False
    return group.binding is entry or entry.program.key in group.residents or has_nothing_to_do(group)


def hoped_costs(group: GroupState, entry: Entry, now: float) -> tuple[float, float] | None:
    """Return seconds of a swap and of a frame for what would be late by what is known; None: it would be.

    It is for one that never served the model while no other tries, and where what is known of all is too old.
    """
    if not entry.service.samples:
        if not untried(group, entry) or any(_tries(peer, entry) for peer in group.peers if peer is not group):
            return None
        return group.swap_cost(entry), SERVICE_PRIOR
    if not entry.stale(now):
        return None
    homes = (peer.by_context.get(entry.context) for peer in group.peers)
    if not all(home is None or home.stale(now) for home in homes):
        return None
    return min(SWAP_PRIOR, group.swap_cost(entry)), min(SERVICE_PRIOR, entry.service.value)


def _tries(peer: GroupState, entry: Entry) -> bool:
    """Whether a group that never served a model is about to."""
    there = peer.by_context.get(entry.context)
    if there is None or there.service.samples:
        return False
    return peer.binding is there or there.program.key in peer.residents
