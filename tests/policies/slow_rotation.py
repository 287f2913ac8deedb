"""The rotation as it is meant, without regard to what it costs: an oracle for the quick one."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import final

from repertory.actors.policy import Bind, Decision, Entry, Grant, GroupState, Policy, Wait
from repertory.actors.room import least_valuable, room_told
from repertory.models.program import Program

__all__ = ["SlowRotation", "room_by_trying"]


def room_by_trying(
    state: GroupState, program: Program, *, keep: Collection[str] = ()
) -> tuple[Program, ...] | None:
    """Return what must go, by trying: what the room says, said slowly."""
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


_NOTHING = Wait("nothing waits")
_ENOUGH = Wait("whatever may start now is granted")
_NO_PLACE = Wait("what waits does not fit beside what is pinned")


@final
class SlowRotation(Policy):
    """Decides as the rotation does, and asks for each entry anew what room there would be."""

    def __init__(self, quantum: int = 64) -> None:
        self._quantum = quantum

    def decide(self, state: GroupState, now: float) -> Decision:
        ready = [entry for entry in state.entries if entry.context.waiting]
        if not ready:
            return _NOTHING
        if len(ready) == 1 and ready[0].program.key in state.residents:
            return _ENOUGH if ready[0].granted else self._undisturbed(ready[0])
        line = sorted(ready, key=lambda entry: (not self._in_turn(state, entry), *_longest_ago(entry)))
        bind = self._bind(state, line, now)
        if bind is not None and (state.bind_needs_idle or not bind.evict):
            return bind
        return self._grant(state, line, bind) or bind or _why_not(state, line)

    def _undisturbed(self, entry: Entry) -> Grant:
        """Grant all that waits: its turn, or its first, goes on as long as nobody else waits."""
        context = entry.context
        if entry.turn_since == -math.inf:
            frames = min(context.waiting, self._quantum)
            return Grant(entry, frames, "its first turn, and it is resident", fresh=True)
        ran_empty = context.ready_since > entry.turn_since
        return Grant(entry, context.waiting, "nobody else waits", fresh=ran_empty)

    def _grant(self, state: GroupState, line: Sequence[Entry], bind: Bind | None) -> Grant | None:
        """Grant the first one in line that may start frames and has no grant yet."""
        leaving = {program.key for program in bind.evict} if bind else ()
        patient = _waits_since(state, line)
        for entry in line:
            key, waiting = entry.program.key, entry.context.waiting
            if entry.granted or key in leaving or key not in state.residents:
                continue
            if self._in_turn(state, entry):
                return Grant(entry, min(self._quantum - entry.turn_frames, waiting), "the turn goes on")
            if entry.turn_since <= patient:
                frames = min(waiting, self._quantum)
                reason = "its last turn is longest ago, and it is resident"
                return Grant(entry, frames, reason, fresh=True)
        return None

    def _bind(self, state: GroupState, line: Sequence[Entry], now: float) -> Bind | None:
        """Bind the first one in line that fits as it is, or else the first for which room can be made."""
        absent = [entry for entry in line if entry.program.key not in state.residents]
        if not absent:
            return None
        patient = _waits_since(state, line)
        absent = [entry for entry in absent if entry.turn_since <= patient]
        for entry in absent:
            if room_by_trying(state, entry.program) == ():
                why = "its last turn is longest ago" if entry is line[0] else "it fits as it is"
                return Bind(entry, (), _bound(why, str(room_told(state, (), now))))
        ahead: set[str] = set()
        for entry in line:
            if entry in absent:
                evict = room_by_trying(state, entry.program, keep=ahead)
                if evict is not None:
                    reason = _bound("its last turn is longest ago", str(room_told(state, evict, now)))
                    return Bind(entry, evict, reason)
            ahead.add(entry.program.key)
        return None

    def _in_turn(self, state: GroupState, entry: Entry) -> bool:
        """Whether its turn is not over: it is there, and frames are left of what waited at the begin."""
        begun = entry.turn_since > -math.inf and entry.program.key in state.residents
        return begun and entry.turn_frames < self._quantum and not _ran_empty(entry)


def _longest_ago(entry: Entry) -> tuple[float, float]:
    return entry.turn_since, entry.context.ready_since


def _ran_empty(entry: Entry) -> bool:
    """Whether its backlog was empty since the turn began: whatever waits came later."""
    return entry.context.ready_since > entry.turn_since


def _waits_since(state: GroupState, line: Sequence[Entry]) -> float:
    """Return since when the most patient of those waits that have work, and no place, but could have one.

    Nobody who had a turn since begins another one before it.
    """
    return min(
        (
            max(entry.context.ready_since, entry.turn_since, entry.served)
            for entry in line
            if entry.program.key not in state.residents and room_by_trying(state, entry.program) is not None
        ),
        default=math.inf,
    )


def _bound(why: str, room: str) -> str:
    return f"{why}; {room}" if room else why


def _why_not(state: GroupState, line: Sequence[Entry]) -> Wait:
    absent = [entry for entry in line if entry.program.key not in state.residents]
    hopeless = absent and all(room_by_trying(state, entry.program) is None for entry in absent)
    return _NO_PLACE if hopeless and not any(entry.granted for entry in line) else _ENOUGH
