"""Who is active where, and since when: what the states of all groups tell of a model."""

from __future__ import annotations

import math
from typing import Final

from repertory.actors.policy import ContextState, Entry, GroupState

__all__ = ["NEVER", "active_contexts", "actives", "last_lost", "last_turns"]

NEVER: Final = (False, -math.inf)
"""The last turn of a model that had none."""


def actives(group: GroupState) -> list[Entry]:
    """Return who had the last turn on each resident program, the latest first, whether frames wait or not."""
    latest: dict[str, Entry] = {}
    for entry in group.entries:
        key = entry.program.key
        if key in group.residents and (key not in latest or entry.turn_since > latest[key].turn_since):
            latest[key] = entry
    return sorted(latest.values(), key=lambda entry: -entry.turn_since)


def active_contexts(state: GroupState) -> set[ContextState]:
    """Return the models that are active on any device, or are being bound there."""
    active: set[ContextState] = set()
    for group in state.peers or [state]:
        if group.binding is not None:
            active.add(group.binding.context)
        active.update(entry.context for entry in actives(group))
    return active


def last_turns(state: GroupState) -> dict[ContextState, tuple[bool, float]]:
    """Return when each model's last turn on any device began; what is being bound comes after all others."""
    last: dict[ContextState, tuple[bool, float]] = {}
    for group in state.peers or [state]:
        for entry in group.entries:
            turn = (True, group.bind_began) if entry is group.binding else (False, entry.turn_since)
            last[entry.context] = max(turn, last.get(entry.context, NEVER))
    return last


def last_lost(state: GroupState, context: ContextState) -> float:
    """Return when a model last lost a device while frames of it waited; -inf before."""
    groups = state.peers or [state]
    lost = (entry.lost for group in groups for entry in group.entries if entry.context is context)
    return max(lost, default=-math.inf)
