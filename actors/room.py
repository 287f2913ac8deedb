"""Room on a device: what must go so that a program fits, in number and in bytes."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from repertory.models.program import Program

from .policy import GroupState, used

__all__ = ["least_valuable", "making_room", "room_told"]

_MB: Final = 2**20


def least_valuable(state: GroupState, *, keep: Collection[str] = ()) -> list[Program]:
    """Return the residents that may be evicted, the one that is missed least first.

    First those that no waiting frame needs, of them those without frames in flight, then the least recently
    served. Pinned ones and those whose keys are in `keep` are left out.
    """
    waiting: set[str] = set()
    flying: set[str] = set()
    served: dict[str, float] = {}
    for entry in state.entries:
        key = entry.program.key
        if entry.context.waiting:
            waiting.add(key)
        if entry.in_flight:
            flying.add(key)
        served[key] = max(served.get(key, -math.inf), entry.served)
    keys = [key for key in state.residents if key not in state.pinned and key not in keep]
    keys.sort(key=lambda key: (key in waiting, key in flying, served.get(key, -math.inf)))
    return [state.residents[key] for key in keys]


def making_room(
    state: GroupState, program: Program, *, keep: Collection[str] = ()
) -> tuple[Program, ...] | None:
    """Return the least that must be evicted so that a program fits in number and in bytes.

    Args:
        state: the group's.
        program: not resident.
        keep: keys of residents that must stay, beside those that are pinned.

    Returns:
        The least valuable ones; empty where it fits as it is, None where it cannot.
    """
    staying = {key: each for key, each in state.residents.items() if key != program.key}
    staying[program.key] = program
    evict: list[Program] = []
    for victim in least_valuable(state, keep=keep):
        if state.fits(staying.values()):
            break
        if victim.key != program.key:
            evict.append(staying.pop(victim.key))
    if not state.fits(staying.values()):
        return None
    for spared in reversed(evict[:-1]):  # small ones went first, and a large one made room for all
        if state.fits([*staying.values(), spared]):
            staying[spared.key] = spared
            evict.remove(spared)
    return tuple(evict)


def room_told(state: GroupState, evict: Collection[Program], now: float) -> str:
    """Put room into words: what is evicted, how large and how long idle it is, and what is free before."""
    parts: list[str] = []
    if evict:
        parts.append("evicts " + ", ".join(_victim_told(state, program, now) for program in evict))
    if state.memory is not None:
        free = state.memory - used(state.residents.values())
        parts.append(f"{free / _MB:.1f} of {state.memory / _MB:.1f} MB are free")
    return ": ".join(parts)


def _victim_told(state: GroupState, program: Program, now: float) -> str:
    served = max((e.served for e in state.entries if e.program.key == program.key), default=-math.inf)
    idle = f"idle {now - served:.1f} s" if served > -math.inf else "never served"
    return f"{program.name} ({program.footprint / _MB:.1f} MB, {idle})"
