"""What nobody knows yet, or not any more: a group is tried where by all that is known nobody could do it."""

from __future__ import annotations

from typing import Final

from .estimate import CREDIBLE
from .policy import SERVICE_PRIOR, SWAP_PRIOR, Entry, GroupState
from .sharing import has_nothing_to_do

__all__ = ["PLAUSIBLE", "has_a_place_to_spare", "hoped_costs", "untried"]

PLAUSIBLE: Final = 10.0
"""How many times quicker than others a group must be, at most, to be tried where a model goes for it."""

_LATELY: Final = 1.0  # seconds


def untried(group: GroupState, entry: Entry, now: float) -> bool:
    """Whether a group never served a model, and may do so at once: it is idle, or has the model already.

    Not the host's own processor, which is slower as a rule. Nor where it would have to be far quicker than
    the others, and a model would have to go that is asked for.
    """
    if entry.service.samples or group.on_host or not group.in_service:
        return False
    if group.binding is entry or entry.program.key in group.residents:
        return True
    if not has_nothing_to_do(group):
        return False
    likely = group.service_cost(entry) <= PLAUSIBLE * entry.context.rhythm.allowance
    return likely or has_a_place_to_spare(group, now)


def hoped_costs(group: GroupState, entry: Entry, now: float) -> tuple[float, float] | None:
    """Return seconds of a swap and of a frame for what would be late by what is known; None: it would be.

    It is for one that never served the model, and where what is known of all is too old, if no other tries.
    """
    most = entry.service.samples
    if any(_tries(peer, entry, most) for peer in group.peers if peer is not group):
        return None
    if not entry.service.samples:
        return (group.swap_cost(entry), SERVICE_PRIOR) if untried(group, entry, now) else None
    if not entry.stale(now):
        return None
    homes = (peer.by_context.get(entry.context) for peer in group.peers)
    if not all(home is None or home.stale(now) for home in homes):
        return None
    return min(SWAP_PRIOR, group.swap_cost(entry)), min(SERVICE_PRIOR, entry.service.value)


def _tries(peer: GroupState, entry: Entry, most: int) -> bool:
    """Whether a group that served a model so many times at most, and is not to be believed, is about to."""
    there = peer.by_context.get(entry.context)
    if there is None or there.service.samples > min(most, CREDIBLE - 1):
        return False
    if peer.binding is there or there.in_flight:
        return True
    return not there.service.samples and there.program.key in peer.residents


def has_a_place_to_spare(group: GroupState, now: float) -> bool:
    """Whether one more program may be resident, and nobody goes who was asked for in the last second."""
    if len(group.residents) < group.capacity:
        return True
    return not all(
        any(now - entry.context.rhythm.last < _LATELY for entry in group.by_program.get(key, ()))
        for key in group.residents
    )
