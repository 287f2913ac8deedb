"""The ring of MemryX's mxa-manager, rule by rule: a baseline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias, final

from repertory.actors.policy import Bind, ContextState, Decision, Entry, Grant, GroupState, Policy, Wait
from repertory.models.checks import is_a
from repertory.models.errors import ConfigError

__all__ = ["LEAST_IDLE", "MxaManager"]

LEAST_IDLE: Final = 1e-4
"""Seconds of `time_limit` at the least, where there is one: a ring that turns faster does nothing else."""

_Member: TypeAlias = list[Entry]  # those that one program serves

_EMPTY: Final = Wait("no model is placed here")
_STAYS: Final = Wait("nothing waits, and what is resident is pinned")
_SENDING: Final = Wait("it has a grant")
_HOLDS: Final = Wait("its turn goes on, and nothing waits")
_UNBOUNDED: Final = 1 << 30


@final
class MxaManager(Policy):
    """A ring over every program that is loaded, whether frames wait for it or not, on each group.

    A turn binds the program, again even if it is resident; runs it until it has started `frame_limit` frames
    (where other programs are in the ring) or nothing of it was to do for `time_limit`; drains the device; and
    puts it at the end of the ring. It knows no priorities, deadlines or backlogs. A pinned program is not
    bound again, and has turns only while frames wait for it.

    Args:
        frame_limit: frames of a turn.
        time_limit: seconds without work after which a turn ends; 0 for never.
        spread: whether each program is in the ring of one group only, round robin in the order of loading,
            as a user may place them by hand; else it is in the ring of every group that serves it.

    Raises:
        ConfigError: a limit is of the wrong kind, or out of its range.
    """

    keeps_deadlines = False

    def __init__(self, frame_limit: int = 20, time_limit: float = 0.25, *, spread: bool = False) -> None:
        if not is_a(frame_limit, int) or frame_limit < 1:
            raise ConfigError(f"mxa-manager: a frame_limit of {frame_limit!r} came, at least 1 is wanted")
        if not is_a(time_limit, int, float) or not (time_limit == 0 or LEAST_IDLE <= time_limit < math.inf):
            raise ConfigError(
                f"mxa-manager: a time_limit of {time_limit!r} s came, 0 or at least {LEAST_IDLE} is wanted"
            )
        self._frame_limit = frame_limit
        self._time_limit = time_limit
        self._spread = spread

    def decide(self, state: GroupState, now: float) -> Decision:
        ring = _ring(_placed(state) if self._spread else state.entries)
        if not ring:
            return _EMPTY
        turns = [max(entry.turn_since for entry in member) for member in ring]
        last = max(range(len(ring)), key=turns.__getitem__)
        if turns[last] == -math.inf:
            return self._next(state, ring)
        if ring[last][0].program.key in state.residents:
            others = turns[:last] + turns[last + 1 :]
            decision = self._go_on(state, ring[last], others, now)
            if decision is not None:
                return decision
        return self._next(state, ring[last + 1 :] + ring[: last + 1])

    def _go_on(
        self, state: GroupState, member: _Member, others: Sequence[float], now: float
    ) -> Decision | None:
        """Let a turn go on, or return None at its end; the others are those whose turns began earlier."""
        before = max(others, default=-math.inf)
        started = sum(entry.turn_frames for entry in member if entry.turn_since > before)
        left = self._frame_limit - started if others else _UNBOUNDED
        if any(entry.granted for entry in member):
            return _SENDING
        if left <= 0:
            return None
        for entry in member:
            if entry.ready:
                waiting = entry.context.waiting
                fresh = entry.turn_since <= before
                return Grant(entry, min(waiting, left), "its turn goes on", fresh=fresh)
        if not self._time_limit:
            return _HOLDS
        ends = self._time_limit + (now if state.in_flight else _idle_since(state, member))
        return Wait("it has time until its turn ends", until=ends) if now < ends else None

    def _next(self, state: GroupState, line: Sequence[_Member]) -> Decision:
        """Bind what comes first in line, in the place of all that may be evicted."""
        for member in line:
            first = member[0]
            if first.program.key in state.pinned and first.program.key in state.residents:
                if ready := [entry for entry in member if entry.ready]:
                    entry = max(ready, key=lambda entry: entry.context.waiting)
                    frames = min(entry.context.waiting, self._frame_limit)
                    return Grant(entry, frames, "it is next in the ring, and pinned", fresh=True)
            elif state.has_place_for(first.program, state.pinned & state.residents.keys()):
                evict = [each for key, each in state.residents.items() if key not in state.pinned]
                return Bind(first, tuple(evict), "it is next in a ring of {}", (len(line),))
        return _STAYS


def _ring(entries: Iterable[Entry]) -> list[_Member]:
    """Return what takes turns, in the order of loading: entries by their programs."""
    ring: dict[str, _Member] = {}
    for entry in entries:
        ring.setdefault(entry.program.key, []).append(entry)
    return list(ring.values())


def _placed(state: GroupState) -> list[Entry]:
    """Return what is served on this group where each program is on one, networks of one file together."""
    programs: dict[ContextState, str] = {}
    offers: dict[ContextState, list[GroupState]] = {}
    for group in state.peers or [state]:
        for entry in group.entries:
            programs.setdefault(entry.context, entry.program.key)
            offers.setdefault(entry.context, []).append(group)
    order = {key: number for number, key in enumerate(dict.fromkeys(programs.values()))}
    homes = {context: groups[order[programs[context]] % len(groups)] for context, groups in offers.items()}
    return [entry for entry in state.entries if homes.get(entry.context) is state]


def _idle_since(state: GroupState, member: _Member) -> float:
    """Return since when the device has nothing to do in this turn."""
    return max(state.progress, *(max(entry.turn_since, entry.served) for entry in member))
