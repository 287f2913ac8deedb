"""Who is worth a thought before his frame comes."""

from __future__ import annotations

from typing import Final

from repertory.actors.policy import Entry, GroupState
from repertory.actors.rhythm import SILENCE

from .scene import Scene

__all__ = ["TIGHT", "foreseen", "is_tight"]

TIGHT: Final = 1.0
"""A model whose requests have less time than so many swaps and a frame should be there before they come."""

_ROOMY: Final = 1.0  # seconds to a deadline that are enough for any swap


def is_tight(state: GroupState, entry: Entry) -> bool:
    """Whether requests of a model can hardly wait for a swap behind what runs: it should be there before."""
    spare = entry.context.rhythm.allowance - entry.transit.value
    if spare >= _ROOMY:
        return False
    runs = 0.0
    for key in state.residents:
        for other in state.by_program.get(key, ()):
            if other is not entry and other.context.waiting:
                runs = max(runs, other.service.value)
    return spare < TIGHT * state.swap_cost(entry) + state.service_cost(entry) + runs


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
            for entry in (_rhythmic(scene) + _urgent(scene) if steady else _expected(scene))
            if entry.context.rhythm.allowance >= entry.service.value + entry.transit.value
            and entry not in scene.passed
        ]
    return found


def _rhythmic(scene: Scene) -> list[Entry]:
    return [
        entry for entry in scene.state.entries if entry.context.rhythm.period and not entry.context.waiting
    ]


def _urgent(scene: Scene) -> list[Entry]:
    """Return who is of a higher class than all that wait, has no rhythm, and could not wait for a swap.

    Nobody where there is one group alone: it would be held idle for him, and all others would lose by it.
    """
    if len(scene.state.peers) == 1:
        return []
    highest = max(asker.priority for asker in (*scene.here, *scene.away))
    return [
        entry
        for entry in scene.state.entries
        if entry.context.priority > highest
        and not entry.context.rhythm.period
        and _could_not_wait(scene, entry)
    ]


def _could_not_wait(scene: Scene, entry: Entry) -> bool:
    """Whether a model asked of late, and a swap would be too long for it."""
    rhythm = entry.context.rhythm
    return (
        not entry.context.waiting
        and scene.now - rhythm.last <= SILENCE * rhythm.gap
        and rhythm.allowance < _ROOMY
        and is_tight(scene.state, entry)
    )


def _expected(scene: Scene) -> list[Entry]:
    """Return who has a rhythm, or asked of late and could hardly wait for a swap."""
    return [
        entry
        for entry in scene.state.entries
        if not entry.context.waiting and (entry.context.rhythm.period or _could_not_wait(scene, entry))
    ]
