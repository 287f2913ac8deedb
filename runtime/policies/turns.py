"""Fair turns: nobody waits for one without end, and nobody loses his before it was worth its swap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, final

from .scene import INSTANT, Asker, Scene

__all__ = ["CALM", "OVERHEAD", "SPAN", "Due", "deadlines_come_first", "due_here", "due_turn"]

OVERHEAD: Final = 20.0
"""Where all ask all the time, their turns together last so many times their swaps, if `max_wait` allows."""

SPAN: Final = 0.7
"""The share of `max_wait` by which a turn is due; the rest is for what runs meanwhile."""

CALM: Final = 0.5
"""The share of `max_wait` for which nothing is thought of turns where all that wait will be in time."""

_EPSILON: Final = 1e-9
_MOMENT: Final = itemgetter(0)


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
        longest: seconds that a swap, and a frame before and after it, take at most.
        shortest: seconds that it lasts at least, where all groups share it. A `max_wait` below that is not
            feasible, and counts as this: else who has one would stand before all others again and again.
    """

    __slots__ = ("_brief", "_spread", "length", "longest", "shortest")

    def __init__(self, askers: Sequence[Asker], groups: int) -> None:
        swaps = weights = wait = longest = frames = least = stretch = 0.0
        for asker in askers:
            context = asker.context
            swaps += asker.swap
            frames += asker.service
            least += asker.least
            weights += context.weight
            wait = max(wait, context.max_wait)
            stretch = max(stretch, asker.swap + asker.service)
            longest = max(longest, asker.swap + 2 * asker.service)
        self.length = max(swaps, min(SPAN * wait, (OVERHEAD + 1) * swaps))
        self.longest = longest
        self.shortest = (swaps + frames) / groups
        waits = [asker.context.max_wait for asker in askers]
        feasible = [each for each in waits if each >= self.shortest + stretch]
        self._brief = (swaps + least) / groups > SPAN * min(feasible, default=math.inf)
        self._spread = (self.length - swaps) / weights

    def least(self, asker: Asker) -> float:
        """Return how long a turn lasts at least, without the swap: as long as that, or a frame."""
        return asker.service if self._brief else asker.least

    def share(self, asker: Asker) -> float:
        """Return how long a turn lasts, without the swap: by weight, but not too short."""
        share: float = asker.context.weight * self._spread
        return max(self.least(asker), share)


def deadlines_come_first(scene: Scene, slack: float, end: float) -> bool:
    """Whether deadlines ask for whoever waits long before his `max_wait` does; notes in the scene until when.

    A quick look for where all will be in time, and served until `end`, if they are put off by no more than
    `slack`: then nobody needs a turn before he is served.
    """
    calm = math.inf
    for asker in scene.away:
        patience = CALM * asker.context.max_wait
        if slack > patience:
            return False
        calm = min(calm, asker.context.hungry_since + patience)
    if end > calm:
        return False
    scene.due_at = calm
    return True


def due_turn(scene: Scene) -> Due | None:
    """Return whose turn it is at last, though somebody else may make more of the time.

    A turn is due when the others have had theirs, in a round in which each has time by its weight; and in
    any case before `max_wait` is over, of which `SPAN` is counted back from. Who has his turn keeps it in
    the first case until his share is used, in the second until it was as long as its swap, or for one frame
    where no more is feasible for all.

    Notes in the scene when a turn is due next, and who comes next by his `max_wait` if the resident goes.
    """
    scene.overdue = None
    line = [asker for asker in scene.away if not asker.held]
    if not line:
        return None
    if len(line) + len(scene.here) == 1:
        return _due_alone(scene, line[0])
    moments, feasible = _moments(scene, line)
    moments.sort(key=_MOMENT)
    earliest = moments[0][0]
    if scene.free < earliest - _EPSILON:
        scene.due_at = max(earliest, scene.now + INSTANT)
        return None
    for moment, asker in moments:
        if scene.free < moment - _EPSILON and feasible:
            break
        if asker.can_be_in_time(scene.free):
            first = scene.overdue or asker
            return Due(first, scene.now - first.context.hungry_since, feasible=feasible)
    return None


def due_here(scene: Scene) -> Due | None:
    """Return whose turn is due of those who are resident, where the device would not serve them next.

    Notes in the scene when the next one of them is due.
    """
    for asker in scene.here:
        due = _due_alone(scene, asker)
        if due is not None:
            return due
    return None


def _moments(scene: Scene, line: list[Asker]) -> tuple[list[tuple[float, Asker]], bool]:
    """Tell when the turn of each in a line is due, and whether turns for all fit into their `max_wait`."""
    round_ = _Round([*scene.here, *line], sum(peer.in_service for peer in scene.state.peers) or 1)
    shared = least = -math.inf
    if len(scene.state.residents) >= scene.state.capacity:
        for asker in scene.here:
            since = asker.entry.turn_since
            shared = max(shared, since + round_.share(asker))
            least = max(least, since + round_.least(asker))
    before, feasible, moments = 0.0, True, list[tuple[float, Asker]]()
    bounds = sorted([(_bound(asker, round_.longest, round_.shortest), asker) for asker in line], key=_MOMENT)
    for bound, asker in bounds:
        usual = asker.context.hungry_since + round_.length - (asker.load + round_.share(asker))
        latest = bound - before
        if latest <= scene.free and scene.overdue is None and asker.can_be_in_time(scene.free):
            scene.overdue = next(first for _, first in bounds if first.can_be_in_time(scene.free))
        moments.append((min(max(usual, shared), max(latest, least)), asker))
        before += asker.load + round_.least(asker)
        feasible = feasible and before <= SPAN * asker.context.max_wait
    return moments, feasible


def _due_alone(scene: Scene, asker: Asker) -> Due | None:
    """Tell for one, apart from all others: whatever the device is held for, his `max_wait` bounds it."""
    moment = _bound(asker, asker.swap + 2 * asker.service)
    if scene.free < moment - _EPSILON:
        scene.due_at = min(scene.due_at, max(moment, scene.now + INSTANT))
    elif asker.can_be_in_time(scene.free):
        return Due(asker, scene.now - asker.context.hungry_since, feasible=True)
    return None


def _bound(asker: Asker, longest: float, shortest: float = 0.0) -> float:
    """When a turn must begin at the latest, by `max_wait` alone: what runs then is not interrupted."""
    context = asker.context
    longest_wait = max(context.max_wait, shortest)
    return context.hungry_since + longest_wait - max((1 - SPAN) * longest_wait, longest) - asker.load
