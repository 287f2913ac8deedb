"""Room on a device: what must go so that a program fits, in number and in bytes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final, final

import msgspec

from repertory.models.program import Program

from .policy import GroupState, used

__all__ = ["Company", "RoomTold", "least_valuable", "making_room", "room_told"]

_MB: Final = 2**20


@final
class Company:
    """Programs that stay, in sums: to ask whether another fits beside them costs the same for any number.

    Args:
        state: the group's, for its capacity and its memory.
        programs: those that stay.
    """

    __slots__ = ("_capacity", "_footprints", "_memory", "_number", "_scratch")

    def __init__(self, state: GroupState, programs: Iterable[Program]) -> None:
        self._capacity = state.capacity
        self._memory = math.inf if state.memory is None else state.memory
        self._number = self._footprints = self._scratch = 0
        for program in programs:
            self.add(program)

    def add(self, program: Program) -> None:
        """One more stays."""
        self._number += 1
        self._footprints += program.footprint
        self._scratch = max(self._scratch, program.scratch)

    def takes(self, program: Program) -> bool:
        """Whether a program that is none of them fits beside them."""
        scratch = max(self._scratch, program.scratch)
        fits = self._footprints + program.footprint + scratch <= self._memory
        return fits and self._number < self._capacity


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
    victims = [victim for victim in least_valuable(state, keep=keep) if victim.key != program.key]
    going = {program.key, *(victim.key for victim in victims)}
    staying = Company(state, (each for key, each in state.residents.items() if key not in going))
    if not staying.takes(program):
        return None
    staying.add(program)
    evict: list[Program] = []
    for victim in reversed(victims):
        if staying.takes(victim):
            staying.add(victim)
        else:
            evict.append(victim)
    return tuple(reversed(evict))


@final
class RoomTold(msgspec.Struct, frozen=True):
    """Room in words, put together where somebody reads it.

    Attributes:
        victims: name, bytes, and when it was served last, of each that goes; no programs, which may be gone
            by then.
        memory: bytes that the group has, or None where they are not bounded.
        free: of those, before anything goes.
        now: when that was.
    """

    victims: tuple[tuple[str, int, float], ...]
    memory: int | None
    free: int
    now: float

    def __bool__(self) -> bool:
        return bool(self.victims) or self.memory is not None

    def __str__(self) -> str:
        parts: list[str] = []
        if self.victims:
            parts.append("evicts " + ", ".join([self._victim_told(*victim) for victim in self.victims]))
        if self.memory is not None:
            parts.append(f"{self.free / _MB:.1f} of {self.memory / _MB:.1f} MB are free")
        return ": ".join(parts)

    def _victim_told(self, name: str, footprint: int, served: float) -> str:
        idle = f"idle {self.now - served:.1f} s" if served > -math.inf else "never served"
        return f"{name} ({footprint / _MB:.1f} MB, {idle})"


def room_told(state: GroupState, evict: Collection[Program], now: float) -> RoomTold:
    """Tell what is evicted, how large and how long idle it is, and what is free before."""
    memory = state.memory
    free = 0 if memory is None else memory - used(state.residents.values())
    return RoomTold(tuple([_victim(state, each) for each in evict]), memory, free, now)


def _victim(state: GroupState, program: Program) -> tuple[str, int, float]:
    served = max([entry.served for entry in state.by_program.get(program.key, ())], default=-math.inf)
    return program.name, program.footprint, served
