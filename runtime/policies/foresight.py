"""Who is worth a thought before his frame comes."""

from __future__ import annotations

from typing import Final

from repertory.actors.policy import Entry, GroupState
from repertory.actors.rhythm import SILENCE

from .scene import Scene

__all__ = ["LIKELY", "TIGHT", "foreseen", "frame_of_resident", "is_tight"]

TIGHT: Final = 1.0
"""A model whose requests have less time than so many swaps and a frame should be there before they come."""

LIKELY: Final = 1.75
"""Swaps between the requests of a model without a rhythm, at most, where it is bound ahead of them."""

_ROOMY: Final = 1.0  # seconds to a deadline that are enough for any swap


def is_tight(state: GroupState, entry: Entry, runs: float) -> bool:
    """Whether requests of a model can hardly wait for a swap behind what runs: it should be there before.

    Args:
        state: the group.
        entry: the model on it.
        runs: seconds that may be left of what runs.
    """
    swap, service = entry.swap, entry.service
    spare = entry.context.rhythm.allowance - entry.transit.value - runs
    if swap.samples and service.samples:  # nearly always, and this is asked of every idle model
        return spare < TIGHT * swap.value + service.value
    return spare < TIGHT * state.swap_cost(entry) + state.service_cost(entry)


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
    highest = max([asker.priority for asker in (*scene.here, *scene.away)])
    higher = [entry for entry in scene.state.entries if entry.context.priority > highest]
    return [entry for entry in _hurried(scene, higher) if not entry.context.rhythm.period] if higher else []


def _expected(scene: Scene) -> list[Entry]:
    """Return who has a rhythm, or asked of late, often enough, and could hardly wait for a swap."""
    return _rhythmic(scene) + [
        entry
        for entry in _hurried(scene, scene.state.entries)
        if not entry.context.rhythm.period and _is_likely(scene.state, entry)
    ]


def _hurried(scene: Scene, entries: list[Entry]) -> list[Entry]:
    """Return whose frames do not wait, but did of late, and could not wait for a swap."""
    state, now, found, runs = scene.state, scene.now, list[Entry](), frame_of_resident(scene.state)
    for entry in entries:
        context = entry.context
        rhythm = context.rhythm
        if (
            not context.waiting
            and now - rhythm.last <= SILENCE * rhythm.gap
            and rhythm.allowance < _ROOMY
            and is_tight(state, entry, runs)
        ):
            found.append(entry)
    return found


def _is_likely(state: GroupState, entry: Entry) -> bool:
    """Whether a frame that may come at any time will come soon enough for a swap ahead of it."""
    if entry.program.key in state.residents:
        return True
    return entry.context.rhythm.gap <= LIKELY * state.swap_cost(entry)
