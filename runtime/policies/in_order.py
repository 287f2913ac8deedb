"""The easy case: all that waits can be served in time, one model after the other."""

from __future__ import annotations

import math
from typing import final

from .foresight import foreseen
from .scene import FRAMES, MARGIN, Asker, Scene

__all__ = ["InOrder", "in_order", "spare_frames"]


@final
class InOrder:
    """A line in which nobody loses.

    Attributes:
        first: who is served first of those that wait for a swap.
        slack: seconds for which all of them can be put off, and all that are foreseen.
        end: when all have been served, were they not put off.
    """

    __slots__ = ("end", "first", "slack")

    def __init__(self, first: Asker, slack: float, end: float) -> None:
        self.first = first
        self.slack = slack
        self.end = end


def in_order(scene: Scene) -> InOrder | None:
    """Line up who waits for a swap, the most pressing first; None where somebody would lose by it.

    Those that are foreseen lose, too, if they come while the line lasts and cannot wait for its end.
    """
    line = sorted(scene.away, key=_by_need) if len(scene.away) > 1 else scene.away
    end, slack = scene.free, math.inf
    for asker in line:
        slack = min(slack, asker.must - end)
        end += asker.span
    if slack < 0:
        return None
    state = scene.state
    for entry in foreseen(scene):
        rhythm = entry.context.rhythm
        due = rhythm.next(scene.now) if rhythm.period else scene.now  # it may come at any time
        latest = due + rhythm.allowance - state.service_cost(entry) - state.swap_cost(entry)
        slack = min(slack, latest - end)
        if slack < 0:
            return None
    return InOrder(line[0], slack, end)


def spare_frames(slack: float, asker: Asker) -> int:
    """Return how many frames of a resident fit into a slack."""
    if slack == math.inf or not asker.service:
        return asker.context.waiting if slack == math.inf else FRAMES
    slack -= MARGIN * asker.entry.service.spread
    return max(0, min(FRAMES, int(slack / asker.service)))


def _by_need(asker: Asker) -> tuple[float, int, float]:
    """Sort the most pressing first; of those that are equally so, the highest class, and the most patient."""
    return asker.must, -asker.priority, asker.context.ready_since
