"""Fair turns: nobody waits for one without end, and nobody loses his before it was worth its swap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from .scene import Asker, Scene

__all__ = ["INSTANT", "OVERHEAD", "SPAN", "Due", "due_turn"]

OVERHEAD: Final = 20.0
"""Where all ask all the time, their turns together last so many times their swaps, if `max_wait` allows."""

SPAN: Final = 0.7
"""The share of `max_wait` by which a turn is due; the rest is for what runs meanwhile."""

INSTANT: Final = 1e-4
"""Seconds that a decision foresees at least: less, and a coarse clock would not move meanwhile."""

_EPSILON: Final = 1e-9


@final
class Due:
    """A turn that cannot be put off.

    Attributes:
        asker: whose.
        waited: seconds since it was asked for.
        feasible: whether turns for all fit into the `max_wait` of each.
    """

    __slots__ = ("asker", "feasible", "waited")

    def __init__(self, asker: Asker, waited: float, *, feasible: bool) -> None:
        self.asker = asker
        self.waited = waited
        self.feasible = feasible


@final
class _Round:
    """A round of turns, one for everybody who asks.

    Attributes:
        length: seconds from one turn of a model to its next.
    """

    def __init__(self, scene: Scene, line: Sequence[Asker]) -> None:
        self._scene = scene
        askers = [*scene.here, *line]
        loads = sum([_load(scene, asker) for asker in askers])
        longest = SPAN * max([asker.context.max_wait for asker in askers])
        self.length = max(loads, min(longest, (OVERHEAD + 1) * loads))
        self._spread = (self.length - loads) / sum([asker.context.weight for asker in askers])

    def share(self, asker: Asker) -> float:
        """Return how long a turn lasts, without the swap: by weight, but never shorter than the swap."""
        least = _least(self._scene, asker)
        return max(least, asker.context.weight * self._spread)


def due_turn(scene: Scene) -> Due | None:
    """Return whose turn it is at last, though somebody else may make more of the time.

    A turn is due when the others have had theirs, in a round in which each has time by its weight; and in
    any case before `max_wait` is over, of which `SPAN` is counted back from. Who has his turn keeps it in
    the first case until his share is used, in the second until it was as long as its swap.

    Notes in the scene when a turn is due next.
    """
    line = [asker for asker in scene.away if not asker.held]
    if not line or len(line) + len(scene.here) == 1:
        return None
    round_ = _Round(scene, line)
    shared = least = -math.inf
    if len(scene.state.residents) >= scene.state.capacity:
        for asker in scene.here:
            since = asker.entry.turn_since
            shared = max(shared, since + round_.share(asker))
            least = max(least, since + _least(scene, asker))
    longest = max([_load(scene, asker) + 2 * asker.service for asker in (*scene.here, *line)])
    bounds = {asker: _bound(asker, longest) for asker in line}
    line.sort(key=bounds.__getitem__)
    before, feasible, moments = 0.0, True, list[float]()
    for asker in line:
        span = asker.load + round_.share(asker)
        usual = asker.context.hungry_since + round_.length - span
        bound = bounds[asker] - before
        moments.append(min(max(usual, shared), max(bound, least)))
        before += asker.load + _least(scene, asker)
        feasible = feasible and before <= SPAN * asker.context.max_wait
    earliest = min(moments)
    if scene.free < earliest - _EPSILON:
        scene.due_at = max(earliest, scene.now + INSTANT)
        return None
    for moment, asker in sorted(zip(moments, line, strict=True), key=_moment):
        if scene.free < moment - _EPSILON and feasible:
            break
        if asker.can_be_in_time(scene.free):
            return Due(asker, scene.now - asker.context.hungry_since, feasible=feasible)
    return None


def _least(scene: Scene, asker: Asker) -> float:
    """Return how long a turn lasts at least."""
    return max(_load(scene, asker), asker.service)


def _load(scene: Scene, asker: Asker) -> float:
    return asker.load or scene.state.swap_cost(asker.entry)


def _bound(asker: Asker, longest: float) -> float:
    """When a turn must begin at the latest, by `max_wait` alone: what runs then is not interrupted."""
    longest_wait = asker.context.max_wait
    return asker.context.hungry_since + longest_wait - max((1 - SPAN) * longest_wait, longest) - asker.load


def _moment(pair: tuple[float, Asker]) -> float:
    return pair[0]
