"""Admission by estimate: what cannot be answered by its deadline, whatever is decided, is refused at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import final

from .policy import Entry, GroupState

__all__ = ["Admission"]


@final
class Admission:
    """Tells when a request could be answered at the soonest.

    The estimate is what the device owes already, a swap where the model is not resident, the requests of
    this model that go first, and the request itself, on the group where that is least. Nothing is counted
    that is not known: a model that was never served on a group could be answered there at once.

    Args:
        places: where the model is served: each group with what it knows of the model.
    """

    def __init__(self, places: Callable[[], Iterable[tuple[GroupState, Entry]]]) -> None:
        self._places = places

    def soonest(self, ahead: int, now: float) -> float:
        """Return seconds from now until an answer, with so many frames of the model to go first.

        All groups may share them, each from the moment at which the model could be resident there.
        `math.inf` where no group is in service.
        """
        ready = sorted([_on(group, entry, now) for group, entry in self._places() if group.in_service])
        soonest, begun, rate = math.inf, 0.0, 0.0
        for begin, service, transit in ready:
            if begin + service + transit >= soonest:
                break
            if not service:
                return begin + transit
            begun += begin / service
            rate += 1 / service
            soonest = min(soonest, max((ahead + 1 + begun) / rate, begin + service) + transit)
        return soonest


def _on(group: GroupState, entry: Entry, now: float) -> tuple[float, float, float]:
    """Return when a group could begin with the model, and what a frame takes there, and is on its way."""
    service, transit = entry.service.value, entry.transit.value
    if not entry.service.samples:
        return 0.0, 0.0, 0.0
    begin = group.busy_for(now)
    if entry.program.key not in group.residents and group.binding is not entry:
        begin += group.swap_cost(entry) if entry.swap.samples else 0.0
    return begin, service, transit
