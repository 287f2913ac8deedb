"""The first policy: a fair rotation over the models that have work."""

from __future__ import annotations

from typing import final

from repertory.actors.policy import Bind, Decision, Entry, Grant, GroupState, Policy, Wait
from repertory.models.program import Program

__all__ = ["Rotation"]


_NOTHING = Wait("nothing waits")


@final
class Rotation(Policy):
    """Gated round robin: a turn serves what waited when it began, at most `quantum` frames.

    While nobody else waits, the turn goes on. The next turn goes to the model whose last one is longest
    ago, so no model waits longer than one turn of each of the others, swaps included. Among resident
    programs the least recently bound one is evicted.

    Args:
        quantum: frames of a turn while others wait.
    """

    def __init__(self, quantum: int = 64) -> None:
        self._quantum = quantum

    def decide(self, state: GroupState, now: float) -> Decision:
        ready = [entry for entry in state.entries if entry.context.waiting]
        if not ready:
            return _NOTHING
        turn = state.turn if state.turn in ready else None
        if turn is not None and turn.program.key not in state.residents:
            turn = None  # it was evicted, and is one of those that wait
        if turn is not None:
            if len(ready) == 1:
                return Grant(turn, turn.context.waiting, "nobody else waits")
            left = self._left(state, turn)
            if left > 0:
                return Grant(turn, left, "the turn goes on")
        for entry in sorted(ready, key=lambda entry: (entry is turn, *_longest_ago(entry))):
            if entry.program.key in state.residents:
                frames = min(entry.context.waiting, self._quantum)
                return Grant(entry, frames, "its last turn is longest ago, and it is resident")
            if (evict := _making_room(state)) is not None:
                return Bind(entry, evict, "its last turn is longest ago")
        return Wait("what waits does not fit beside what is pinned")

    def _left(self, state: GroupState, turn: Entry) -> int:
        """Frames that the turn may still start: of those that waited when it began."""
        if turn.context.ready_since > state.turn_since:
            return 0  # its backlog ran empty: whatever waits came later
        return min(self._quantum - state.turn_frames, turn.context.waiting)


def _longest_ago(entry: Entry) -> tuple[float, float]:
    return entry.served, entry.context.ready_since


def _making_room(state: GroupState) -> tuple[Program, ...] | None:
    """Return what to evict for one more program; None where all there is is pinned."""
    surplus = max(len(state.residents) + 1 - state.capacity, 0)
    idle = [program for key, program in state.residents.items() if key not in state.pinned]
    return tuple(idle[:surplus]) if surplus <= len(idle) else None
