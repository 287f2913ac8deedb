"""What no scheduler can exceed, even one that knows all that is to come.

A residency that serves n requests of one model takes device time: its swap, then n services, or, if that is
longer, from the start of its first request to the end of its last, and the first starts before its deadline
while the last comes in only so late. Of all ways to cut a model's requests into residencies, the best is
found for a given price of a second of device time; whatever the price, what the models gain by it, and
the price of all the time that the devices have, together are no less than the answers that are in time
(weak duality). The best price gives the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import groupby
from typing import Final

from repertory.actors.context import LENIENCE

from .costs import Costs, Stream, least_costs
from .residencies import most_worth
from .runner import PATIENCE
from .trace import Trace

__all__ = ["clairvoyant_bound", "throughput_bound"]

_PRICES: Final = 28
"""How many prices are tried: each gives a bound."""

_GOLDEN: Final = (math.sqrt(5) - 1) / 2


def clairvoyant_bound(trace: Trace) -> float | None:
    """Return the fraction of the arrivals, 0 to 1, that can at most be answered in time.

    Devices are empty at the beginning, serve one request at a time, and take what `least_costs` says;
    requests without a deadline are in time up to `PATIENCE` after the last one came.

    None for a load without arrivals, with closed-loop clients, or on devices whose costs are not known.

    Raises:
        ConfigError: a group's address is wrong.
    """
    costs = least_costs(trace)
    if costs is None or not trace.arrivals or any(model.clients for model in trace.models):
        return None
    streams = _streams(trace, costs)
    possible = sum(len(stream.times) for stream in streams)
    supply = len(trace.groups) * _end(trace)

    def bound(price: float) -> float:
        return price * supply + sum(most_worth(stream, price) for stream in streams)

    dearest = 1 / max(min((stream.service for stream in streams), default=1.0), LENIENCE)
    most = min(possible, _lowest(bound, dearest))
    return math.floor(most + 1e-6) / len(trace.arrivals)


def throughput_bound(trace: Trace) -> float | None:
    """Return how many answers a second can at most be in time, for closed-loop clients as well.

    For clients it is coarse: devices that never swap, and clients that never wait for each other.

    None on devices whose costs are not known.

    Raises:
        ConfigError: a group's address is wrong.
    """
    costs = least_costs(trace)
    if costs is None:
        return None
    fraction = clairvoyant_bound(trace)
    if fraction is not None:
        return fraction * len(trace.arrivals) / trace.seconds
    used = {index for index, model in enumerate(trace.models) if model.clients}
    used |= {arrival.model for arrival in trace.arrivals}
    services = [max(costs.service[index], LENIENCE) for index in used]
    most = len(trace.groups) * _end(trace) / min(services, default=math.inf)
    asked = sum(
        model.clients * (_end(trace) / max(service, LENIENCE) + 1)
        for model, service in zip(trace.models, costs.service, strict=True)
    )
    return min(most, asked + len(trace.arrivals)) / trace.seconds


def _end(trace: Trace) -> float:
    """Return the last moment at which an answer can be in time."""
    ends = [arrival.time + min(arrival.deadline, PATIENCE) for arrival in trace.arrivals]
    ends += [trace.seconds + min(model.deadline, PATIENCE) for model in trace.models if model.clients]
    if any(arrival.deadline == math.inf for arrival in trace.arrivals):
        ends.append(trace.seconds)  # the plan goes on until then
    return max(ends, default=trace.seconds) + 2 * LENIENCE


def _streams(trace: Trace, costs: Costs) -> list[Stream]:
    end = _end(trace)
    streams: list[Stream] = []
    by_model = sorted(trace.arrivals, key=lambda arrival: arrival.model)
    for index, arrivals in groupby(by_model, key=lambda arrival: arrival.model):
        service = costs.service[index]
        possible = [each for each in arrivals if each.deadline + LENIENCE >= service]
        if possible:
            longest = max(each.deadline for each in possible) + LENIENCE
            times = [each.time for each in possible]
            streams.append(Stream(times, min(longest, end), service, costs.swap[index]))
    return streams


def _lowest(bound: Callable[[float], float], highest: float) -> float:
    """Return the least of a convex function on 0 to `highest`, by golden section."""
    low, high = 0.0, highest
    left, right = high - _GOLDEN * high, _GOLDEN * high
    at_left, at_right = bound(left), bound(right)
    best = min(at_left, at_right)
    for _ in range(_PRICES - 2):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = bound(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = bound(right)
        best = min(best, at_left, at_right)
    return best
