"""How many requests of a few streams one device can answer in time, by search over all schedules.

Where a stream's requests have one deadline, the oldest that can still be in time is served first. So a
schedule is a sequence of streams, and each request starts as early as it can: a partial schedule is
known by when it ends, the resident model, how many it served, and up to where each stream is served or
given up. One is dropped if another leads it: it ended no later (earlier by a swap, if another model is
resident), and served no fewer even after what it took that the first one has left is taken off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple, final

from .costs import Stream

__all__ = ["MAX_SCHEDULES", "most_in_time"]

MAX_SCHEDULES: Final = 400_000
"""Partial schedules after which the search gives up."""

_LEADERS: Final = 6
_EPSILON: Final = 1e-9


@final
class _Schedule(NamedTuple):
    """The beginning of a schedule.

    Attributes:
        end: of its last service, in seconds.
        unserved: minus the requests that it served, so that of two that end together the better comes first.
        resident: index of the last stream served; -1 at the beginning.
        taken: by stream, how many of its requests were served or given up.
    """

    end: float
    unserved: int
    resident: int
    taken: tuple[int, ...]


def most_in_time(streams: Sequence[Stream]) -> int | None:
    """Return how many requests can be in time on a device that holds one model at a time, empty at first.

    None if the search grows beyond `MAX_SCHEDULES`.
    """
    leaders = _Leaders(streams)
    open_ends = [_Schedule(0.0, 0, -1, (0,) * len(streams))]
    most = 0
    for _ in range(MAX_SCHEDULES):
        if not open_ends:
            return most
        schedule = _without_lost(streams, heappop(open_ends))
        if leaders.add(schedule):
            most = max(most, -schedule.unserved)
            for longer in _continued(streams, schedule):
                heappush(open_ends, longer)
    return None


def _without_lost(streams: Sequence[Stream], schedule: _Schedule) -> _Schedule:
    """Give up what can be in time no more."""
    taken = [
        _possible(stream, first, schedule.end) for stream, first in zip(streams, schedule.taken, strict=True)
    ]
    return schedule._replace(taken=tuple(taken))


def _possible(stream: Stream, first: int, now: float) -> int:
    """Return the first request, from one on, that can be in time if it is started now or when it comes."""
    oldest = now - stream.deadline + stream.service - _EPSILON
    while first < len(stream.times) and stream.times[first] < oldest:
        first += 1
    return first


def _continued(streams: Sequence[Stream], schedule: _Schedule) -> Iterator[_Schedule]:
    """Return what can be served next, except where something else would fit in before it."""
    starts: list[tuple[float, int, int]] = []
    for index, stream in enumerate(streams):
        ready = schedule.end + (stream.swap if index != schedule.resident else 0.0)
        first = _possible(stream, schedule.taken[index], ready)
        if first < len(stream.times):
            starts.append((max(ready, stream.times[first]), index, first))
    soonest = (
        min((start + streams[index].service, index) for start, index, _ in starts) if starts else (0.0, 0)
    )
    for start, index, first in starts:
        if index == soonest[1] or soonest[0] + streams[index].swap > start:
            taken = (*schedule.taken[:index], first + 1, *schedule.taken[index + 1 :])
            yield _Schedule(start + streams[index].service, schedule.unserved - 1, index, taken)


@final
class _Leaders:
    """The last schedules that nothing led, by resident model; they come by their ends."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._swaps = [stream.swap for stream in streams]
        self._last: list[deque[_Schedule]] = [deque(maxlen=_LEADERS) for _ in range(len(streams) + 1)]

    def add(self, schedule: _Schedule) -> bool:
        """Add a schedule, unless one of them leads it."""
        own = self._last[schedule.resident]
        if any(_leads(other, schedule) for other in own):
            return False
        if schedule.resident >= 0:
            latest = schedule.end - self._swaps[schedule.resident]
            for last in self._last:
                if last is not own and any(each.end <= latest and _leads(each, schedule) for each in last):
                    return False
        own.appendleft(schedule)
        return True


def _leads(one: _Schedule, other: _Schedule) -> bool:
    lead = other.unserved - one.unserved
    if lead < 0:
        return False
    for mine, its in zip(one.taken, other.taken, strict=True):
        if mine > its:
            lead -= mine - its
    return lead >= 0
