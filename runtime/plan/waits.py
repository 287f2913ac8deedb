"""When requests were begun, and how long models waited for a turn."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from enum import IntEnum
from typing import final

from .played import Fate, Played, Request

__all__ = ["begins", "begins_in_vain", "longest_waits"]


def begins(played: Played) -> list[float]:
    """Return when a device began each request, as its driver told; `math.inf` where it was not answered."""
    known = _spans(played)
    return [
        known[request.model, request.end].pop()
        if known.get((request.model, request.end))
        else _reckoned(played, request)
        for request in played.requests
    ]


def begins_in_vain(played: Played, begun: Iterable[float]) -> dict[int, list[float]]:
    """Return when frames were begun that nobody waited for to the end, by model; `begun` is from `begins`."""
    known = _spans(played)
    for request, begin in zip(played.requests, begun, strict=True):
        starts = known.get((request.model, request.end))
        if starts and begin in starts:
            starts.remove(begin)
    vain: dict[int, list[float]] = defaultdict(list)
    for (model, _), starts in known.items():
        vain[model] += starts
    return vain


def _spans(played: Played) -> dict[tuple[int, float], list[float]]:
    """Return the begins of frames by model and end."""
    index = {model.name: number for number, model in enumerate(played.trace.models)}
    known: dict[tuple[int, float], list[float]] = defaultdict(list)
    for spans in played.spans.values():
        for span in spans:
            if span.kind == "compute" and span.model in index:
                known[index[span.model], span.end].append(span.start)
    return known


def _reckoned(played: Played, request: Request) -> float:
    """A file's network may have a name of its own, and spans then do not tell whose they are."""
    if request.fate not in (Fate.ON_TIME, Fate.LATE):
        return math.inf
    return max(request.arrival, request.end - played.trace.models[request.model].service)


@final
class _Change(IntEnum):
    """What happens to a model; at one moment in this order."""

    ASKED = 0
    BEGUN = 1
    GONE = 2
    TURN = 3


def longest_waits(played: Played) -> dict[str, float]:
    """Return each model's longest wait for its turn, seconds.

    It lasts from the first request since one of the model was last begun (or from that begin, where others
    were waiting then) to the next begin. Requests that are refused or expire meanwhile do not end it. Where
    nobody asks for longer than the model's `max_wait`, it ended with the last one who did.
    """
    begun = begins(played)
    changes: list[list[tuple[float, _Change]]] = [[] for _ in played.trace.models]
    for request, begin in zip(played.requests, begun, strict=True):
        own = changes[request.model]
        own.append((request.arrival, _Change.ASKED))
        own.append((begin, _Change.BEGUN) if begin < math.inf else (request.end, _Change.GONE))
    for model, starts in begins_in_vain(played, begun).items():
        changes[model] += [(start, _Change.TURN) for start in starts]
    return {
        model.name: _longest(sorted(own), model.max_wait)
        for model, own in zip(played.trace.models, changes, strict=True)
    }


def _longest(changes: Iterable[tuple[float, _Change]], patience: float) -> float:
    waiting, longest = 0, 0.0
    hungry, empty = math.inf, math.inf
    for time, change in changes:
        if change is _Change.ASKED:
            if not waiting and time - empty > patience:
                hungry = math.inf
            hungry = min(hungry, time)
            waiting += 1
            continue
        longest = max(longest, time - hungry)
        if change is not _Change.TURN:
            waiting -= 1
        if change is not _Change.GONE:
            hungry = time if waiting else math.inf
        empty = time if not waiting else math.inf
    return longest
