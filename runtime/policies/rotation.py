"""The first policy: a fair rotation over the models that have work."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import final

from repertory.actors.policy import Bind, Decision, Entry, Grant, GroupState, Policy, Wait
from repertory.actors.room import Company, making_room, room_told
from repertory.models.checks import is_a
from repertory.models.errors import ConfigError

__all__ = ["Rotation"]


_NOTHING = Wait("nothing waits")
_ENOUGH = Wait("whatever may start now is granted")
_NO_PLACE = Wait("what waits does not fit beside what is pinned")


@final
class Rotation(Policy):
    """Gated round robin: a turn serves what waited when it began, at most `quantum` frames.

    While nobody else waits, the turn goes on. The next turn goes to the model whose last one is longest
    ago, so no model waits longer than one turn of each of the others, swaps included.

    Where several programs may be resident, each of them that has work has a turn, all at once. A model that
    is not resident is bound at once where it fits. Else something is evicted for it: first what has no work,
    the least recently served first, then what has had its turn; never what is in its turn and has work. While
    a model waits for room, each other one begins at most one more turn.

    Args:
        quantum: frames of a turn while others wait.

    Raises:
        ConfigError: there could be no turn.
    """

    def __init__(self, quantum: int = 64) -> None:
        if not is_a(quantum, int) or quantum < 1:
            raise ConfigError(f"rotation: a quantum of {quantum!r} came, at least 1 is wanted")
        self._quantum = quantum

    def decide(self, state: GroupState, now: float) -> Decision:
        ready = [entry for entry in state.entries if entry.ready]
        if not ready:
            return _NOTHING
        if len(ready) == 1 and ready[0].program.key in state.residents:
            return _ENOUGH if ready[0].granted else self._undisturbed(ready[0])
        line = sorted(ready, key=lambda entry: (not self._in_turn(state, entry), *_longest_ago(entry)))
        absent = _may_come(state, line)
        patient = _waits_since(absent)
        bind = self._bind(state, line, {entry for entry in absent if entry.turn_since <= patient}, now)
        if bind is not None and (state.bind_needs_idle or not bind.evict):
            return bind
        return self._grant(state, line, bind, patient) or bind or _why_not(state, line, absent)

    def _undisturbed(self, entry: Entry) -> Grant:
        """Grant all that waits: its turn, or its first, goes on as long as nobody else waits."""
        context = entry.context
        if entry.turn_since == -math.inf:
            frames = min(context.waiting, self._quantum)
            return Grant(entry, frames, "its first turn, and it is resident", fresh=True)
        ran_empty = context.ready_since > entry.turn_since
        return Grant(entry, context.waiting, "nobody else waits", fresh=ran_empty)

    def _grant(
        self, state: GroupState, line: Sequence[Entry], bind: Bind | None, patient: float
    ) -> Grant | None:
        """Grant the first one in line that may start frames and has no grant yet."""
        leaving = {program.key for program in bind.evict} if bind else ()
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

    def _bind(
        self, state: GroupState, line: Sequence[Entry], absent: Collection[Entry], now: float
    ) -> Bind | None:
        """Bind the first one in line that fits as it is, or else the first for which room can be made."""
        if not absent:
            return None
        there = Company(state, state.residents.values())
        for entry in line:
            if entry in absent and there.takes(entry.program):
                why = "its last turn is longest ago" if entry is line[0] else "it fits as it is"
                return Bind(entry, (), _bound(why, str(room_told(state, (), now))))
        ahead = set(state.pinned)
        staying = _pinned(state)
        for entry in line:
            key = entry.program.key
            if entry in absent and staying.takes(entry.program):
                evict = making_room(state, entry.program, keep=ahead) or ()
                reason = _bound("its last turn is longest ago", str(room_told(state, evict, now)))
                return Bind(entry, evict, reason)
            if key in state.residents and key not in ahead:
                staying.add(state.residents[key])
            ahead.add(key)
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


def _pinned(state: GroupState) -> Company:
    return Company(state, (each for key, each in state.residents.items() if key in state.pinned))


def _may_come(state: GroupState, line: Sequence[Entry]) -> list[Entry]:
    """Return those in line that have no place, but could have one."""
    pinned = _pinned(state)
    return [
        entry for entry in line if entry.program.key not in state.residents and pinned.takes(entry.program)
    ]


def _waits_since(absent: Collection[Entry]) -> float:
    """Return since when the most patient of those waits that could have a place.

    Nobody who had a turn since begins another one before it.
    """
    waits = (max(entry.context.ready_since, entry.turn_since, entry.served) for entry in absent)
    return min(waits, default=math.inf)


def _bound(why: str, room: str) -> str:
    return f"{why}; {room}" if room else why


def _why_not(state: GroupState, line: Sequence[Entry], absent: Collection[Entry]) -> Wait:
    hopeless = not absent and any(entry.program.key not in state.residents for entry in line)
    return _NO_PLACE if hopeless and not any(entry.granted for entry in line) else _ENOUGH
