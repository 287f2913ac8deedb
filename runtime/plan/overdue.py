"""Whose turn came too late, of those for whom it was feasible in time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias, final

from .costs import least_costs
from .runner import Played
from .trace import Trace
from .waits import begins, begins_in_vain

__all__ = ["feasible_turns", "overdue"]

_Interval: TypeAlias = tuple[float, float]


@final
class _Stay(NamedTuple):
    """A request at the device's door: when it came, when it left, and whether it was begun then."""

    came: float
    left: float
    begun: bool


def feasible_turns(trace: Trace) -> list[bool]:
    """Tell for each model of a load whether its `max_wait` can be kept, whatever comes when.

    It can where a turn of every model, one frame and a swap, fits into it on the groups there are, beside
    what runs already; and where its deadlines leave time for what runs to end, a swap and a frame. The
    longest swap and frame of all models count. Without known costs nothing is feasible.
    """
    stretch = _stretch(trace)
    cycle = (math.ceil(len(trace.models) / len(trace.groups)) + 1) * stretch
    return [cycle <= model.max_wait and model.deadline >= 2 * stretch for model in trace.models]


def overdue(played: Played) -> dict[str, float]:
    """Return by how many seconds each model's turns came too late at most; 0 where all came in time.

    A turn is asked for by the first request since a frame of the model was last begun, or by that begin
    where others waited then. It is due `max_wait` later. Where nobody waits at that moment, or who waits
    has come too late to be reached by then, it is due when the next one who waits can be reached: after
    what runs, a swap and a frame. It is overdue as long as somebody waits after that in vain. A frame that
    was begun is a turn, though it ended too late for its caller.
    """
    stays: list[list[_Stay]] = [[] for _ in played.trace.models]
    begun_at = begins(played)
    for request, begin in zip(played.requests, begun_at, strict=True):
        begun = begin < math.inf
        stays[request.model].append(_Stay(request.arrival, begin if begun else request.end, begun))
    for number, starts in begins_in_vain(played, begun_at).items():
        _begun_in_vain(stays[number], starts)
    reach = 2 * _stretch(played.trace)
    return {
        model.name: _latest(own, model.max_wait, reach)
        for model, own in zip(played.trace.models, stays, strict=True)
    }


def _stretch(trace: Trace) -> float:
    """Return how long a swap and a frame take at most; `math.inf` where it is not known."""
    costs = least_costs(trace)
    return math.inf if costs is None else max(costs.swap) + max(costs.service)


def _begun_in_vain(stays: list[_Stay], starts: Sequence[float]) -> None:
    """Note begins of frames whose callers left before their end: of who was to leave first, each time."""
    for start in sorted(starts):
        waiting = [
            (stay.left, number)
            for number, stay in enumerate(stays)
            if stay.came <= start < stay.left and not stay.begun
        ]
        if waiting:
            _, number = min(waiting)
            stays[number] = _Stay(stays[number].came, start, begun=True)
        else:
            stays.append(_Stay(start, start, begun=True))


def _latest(stays: Sequence[_Stay], max_wait: float, reach: float) -> float:
    turns = sorted(stay.left for stay in stays if stay.begun)
    latest, since = 0.0, -math.inf
    for turn in [*turns, math.inf]:
        between = [
            (max(came, since), min(left, turn)) for came, left, _ in stays if came < turn and left > since
        ]
        latest = max(latest, _late(_joined(between), max_wait, reach))
        since = turn
    return latest


def _late(waits: Sequence[_Interval], max_wait: float, reach: float) -> float:
    """Return how long somebody waited after a turn was due, of what was asked for between two turns."""
    if not waits:
        return 0.0
    due = waits[0][0] + max_wait
    after = [wait for wait in waits if wait[1] > due]
    return max(0.0, after[-1][1] - max(due, after[0][0] + reach)) if after else 0.0


def _joined(intervals: Sequence[_Interval]) -> list[_Interval]:
    """Return the intervals in which at least one of these goes on."""
    joined: list[_Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined
