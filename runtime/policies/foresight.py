"""Who is worth a thought before his frame comes."""

from __future__ import annotations

import math
from typing import Final

from repertory.actors.policy import Entry, GroupState
from repertory.actors.rhythm import SILENCE, Rhythm

from .scene import Scene

__all__ = ["foreseen", "frame_of_resident", "is_tight", "tight_ones"]

_ROOMY: Final = 1.0  # seconds to a deadline that are enough for any swap


def is_tight(state: GroupState, entry: Entry, runs: float) -> bool:
    """Whether requests of a model can hardly wait for a swap behind what runs: it should be there before.

    Args:
        state: the group.
        entry: the model on it.
        runs: seconds that may be left of what runs.
    """
    spare = entry.context.rhythm.allowance - entry.transit.value - runs
    return spare < state.swap_cost(entry) + state.service_cost(entry)


def tight_ones(state: GroupState, entries: list[Entry], runs: float) -> list[Entry]:
    """Return who of these is tight, and does not wait."""
    return [
        entry
        for entry in entries
        if entry.context.rhythm.allowance - runs < entry.lead  # most are not, and are not looked at any more
        and not entry.context.waiting
        and is_tight(state, entry, runs)
    ]


def frame_of_resident(state: GroupState) -> float:
    """Return for how long a frame of those that are resident, and asked for, holds the device at most."""
    longest = 0.0
    for key in state.residents:
        for entry in state.by_program.get(key, ()):
            if entry.context.waiting:
                longest = max(longest, entry.service.value)
    return longest


def foreseen(scene: Scene) -> list[Entry]:
    """Return who is worth a thought before his frame comes.

    That is whoever has a rhythm. For anybody else the device is not held where frames wait that it could
    serve: nobody knows when his next one comes.
    """
    steady = bool(scene.here or scene.away)
    found = scene.foreseen.get(steady)
    if found is None:
        found = scene.foreseen[steady] = [
            entry
            for entry in _expected(scene, _highest(scene) if steady else -math.inf)
            if entry.context.rhythm.allowance >= entry.service.value + entry.transit.value
            and entry not in scene.passed
        ]
    return found


def _highest(scene: Scene) -> float:
    """Return above which class frames are thought of that come without a rhythm.

    None where there is one group alone: it would be held idle for them, and all others would lose by it.
    """
    if len(scene.state.peers) == 1:
        return math.inf
    return max([asker.priority for asker in (*scene.here, *scene.away)])


def _expected(scene: Scene, above: float) -> list[Entry]:
    """Return who has a rhythm, and who is of a higher class, asked of late, and could not wait for a swap."""
    state, now = scene.state, scene.now
    steady = [entry for entry in state.entries if entry.context.rhythm.period and not entry.context.waiting]
    if above == math.inf:
        return steady
    higher = [entry for entry in state.entries if entry.context.priority > above]
    tight = tight_ones(state, higher, frame_of_resident(state)) if higher else higher
    return steady + [entry for entry in tight if _asked_of_late(entry.context.rhythm, now)]


def _asked_of_late(rhythm: Rhythm, now: float) -> bool:
    """Whether somebody asked of late, without a rhythm, for whom any swap may be too long."""
    return not rhythm.period and rhythm.allowance < _ROOMY and now - rhythm.last <= SILENCE * rhythm.gap
