"""What serving a stream of requests is worth, when device time has a price."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import final

from .costs import Stream

__all__ = ["most_worth"]


def most_worth(stream: Stream, price: float) -> float:
    """Return the most that serving a stream is worth: 1 a request, less the price of the time it takes.

    A residency that serves n requests, which came from a to b, takes
    `swap + max(n * service, b - a + 2 * service - deadline)`.

    The value of the first j requests is that of the first i and one residency for the rest, or of those
    without the last. As far as it depends on i, a residency's value is the lower of two numbers, one if its
    services fill it and one if its requests' span does; both change with j by what is common to all i. So
    an i that is worse by both numbers than another stays so, and the others stand in order.
    """
    times, deadline, service, swap = stream
    gain = 1 - price * service  # no residency gains by passing over a request between two that it serves
    fixed = price * swap
    span = price * (swap + 2 * service - deadline)
    starts = _Starts()
    worth = 0.0
    for served, time in enumerate(times):
        starts.add(worth - served * gain, worth - served + price * time)
        worth = max(worth, starts.best((served + 1) * gain - fixed, served + 1 - price * time - span))
    return worth


@final
class _Starts:
    """Pairs of numbers of which none is exceeded by another in both."""

    __slots__ = ("_differences", "_firsts", "_seconds")

    def __init__(self) -> None:
        self._firsts: list[float] = []  # ascending, so the seconds descend
        self._seconds: list[float] = []
        self._differences: list[float] = []

    def add(self, first: float, second: float) -> None:
        """Add a pair, and drop those that it exceeds."""
        firsts, seconds = self._firsts, self._seconds
        place = bisect_left(firsts, first)
        if place < len(firsts) and seconds[place] >= second:
            return
        lower = place
        while lower and seconds[lower - 1] <= second:
            lower -= 1
        firsts[lower:place] = [first]
        seconds[lower:place] = [second]
        self._differences[lower:place] = [first - second]

    def best(self, first: float, second: float) -> float:
        """Return the highest, over all pairs, of the lower of the two numbers, each with its addend."""
        place = bisect_right(self._differences, second - first)
        by_first = self._firsts[place - 1] + first if place else -math.inf
        by_second = self._seconds[place] + second if place < len(self._seconds) else -math.inf
        return max(by_first, by_second)
