"""The best schedules of a few requests, by trying all orders of all subsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from repertory.runtime.plan.trace import Arrival, GroupLoad, ModelLoad, Trace

__all__ = ["best_split", "camera_load", "most_of_all", "servable"]

_EPSILON = 1e-6


def servable(arrivals: Sequence[Arrival], service: Sequence[float], swap: float) -> list[bool]:
    """Whether one device, empty at first, can answer each subset of the arrivals in time, by its bits."""
    count = len(arrivals)

    @cache
    def soonest(subset: int, last: int) -> float:
        """When a subset is done at the earliest, if it can be in time and `last` is the last of it."""
        rest = subset ^ 1 << last
        arrival = arrivals[last]
        before = [(soonest(rest, each), each) for each in range(count) if rest >> each & 1] or [(0.0, -1)]
        ends = [
            max(ready + swap * (each < 0 or arrivals[each].model != arrival.model), arrival.time)
            + service[arrival.model]
            for ready, each in before
        ]
        end = min(ends)
        return end if end <= arrival.time + arrival.deadline + _EPSILON else float("inf")

    return [
        not subset
        or any(subset >> each & 1 and soonest(subset, each) < float("inf") for each in range(count))
        for subset in range(1 << count)
    ]


def most_of_all(arrivals: Sequence[Arrival], service: Sequence[float], swap: float, groups: int) -> int:
    """Return how many arrivals can be in time on so many devices, where any device may serve any of them."""
    possible = servable(arrivals, service, swap)
    best = [subset.bit_count() if fits else 0 for subset, fits in enumerate(possible)]
    if groups == 1:
        return max(best)
    return max(
        best[one] + best[other]
        for one in range(len(best))
        for other in range(len(best))
        if possible[one] and possible[other] and not one & other
    )


def best_split(models: int, most: Callable[[tuple[int, ...]], int]) -> int:
    """Return the most over all ways to give each model to one of two devices."""
    return max(
        most(tuple(each for each in range(models) if choice >> each & 1))
        + most(tuple(each for each in range(models) if not choice >> each & 1))
        for choice in range(1 << models)
    )


def camera_load(
    times: Sequence[Sequence[float]],
    *,
    deadline: float = 0.066,
    service: float = 0.006,
    swap_ms: float = 20,
    groups: int = 1,
) -> Trace:
    """Return a load with a model for each sequence of times."""
    arrivals = sorted(Arrival(time, model, deadline, 0) for model, each in enumerate(times) for time in each)
    return Trace(
        name="test",
        seconds=max(arrival.time for arrival in arrivals),
        groups=tuple(GroupLoad(f"sim://{index}?swap_ms={swap_ms}") for index in range(groups)),
        models=tuple(ModelLoad(name=f"m{index}", service=service) for index in range(len(times))),
        arrivals=tuple(arrivals),
    )
