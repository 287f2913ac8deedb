"""Admission by estimate: what cannot be answered by its deadline, whatever is decided, is refused at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, final

from .policy import DOUBT, Entry, GroupState

__all__ = ["LENIENCE", "Admission"]

LENIENCE: Final = 1e-6
"""Seconds by which an answer may be foreseen to be late, and its frame is started all the same."""

_Place: TypeAlias = tuple[float, float, float]  # when it could begin, a frame's service, and its transit


@final
class Admission:
    """Tells when a request could be answered at the soonest.

    The estimate is what the device owes already, a swap where the model is not resident, the requests of
    this model that go first and are not late themselves, and the request itself, on the group where that is
    least. What other models ask for is not counted, for a policy may let them wait; nor is anything that is
    not known. So what was never served could be answered at once, and a group that never served a model
    takes it to need no more than another one does.

    Args:
        places: where the model is served: each group with what it knows of the model.
    """

    def __init__(self, places: Callable[[], Iterable[tuple[GroupState, Entry]]]) -> None:
        self._places = places
        self._tried = -math.inf

    def soonest(self, ahead: int, now: float) -> float:
        """Return seconds from now until an answer, if so many frames of the model go first.

        All groups may share them, each from the moment at which the model could be resident there. 0 where
        nothing is known: nothing was served, or no group is in service, and one may be back at any time.
        """
        soonest, begun, rate = math.inf, 0.0, 0.0
        for begin, service, transit in sorted(self._known(now)):
            if begin + service + transit >= soonest:
                break
            if not service:
                return begin + transit
            begun += begin / service
            rate += 1 / service
            soonest = min(soonest, max((ahead + 1 + begun) / rate, begin + service) + transit)
        return 0.0 if soonest == math.inf else soonest

    def after(self, ahead: Iterable[float], now: float) -> tuple[float, int]:
        """Return the same, if frames with these deadlines go first, and how many of them are in time.

        Those that are not cost nothing: they end unserved when their turn comes.
        """
        places = self._known(now)
        if not places:
            return 0.0, 0
        served = 0
        for deadline in ahead:
            best = min(range(len(places)), key=lambda n: sum(places[n]))
            begin, service, transit = places[best]
            if now + begin + service + transit <= deadline + LENIENCE:
                places[best] = begin + service, service, transit
                served += 1
        return min(map(sum, places)), served

    def doubts(self, left: float, now: float) -> bool:
        """Whether a request that has so many seconds is to try again what was learned long ago.

        So it is where a swap and a frame alone took longer, and nothing was served for a while. Asked once
        more at once, it says no: one request is enough.
        """
        cost = math.inf
        for _, entry in self._places():
            if not entry.stale(now):
                return False
            cost = min(cost, entry.cost)
        if not left < cost < math.inf or now - self._tried <= 1 + DOUBT * cost:
            return False
        self._tried = now
        return True

    def _known(self, now: float) -> list[_Place]:
        """Return the groups in service, by what is known of the model: none where nothing is."""
        places = [place for place in self._places() if place[0].in_service]
        learned = [entry for _, entry in places if entry.service.samples]
        if not learned:
            return []
        if len(learned) == len(places):
            return [_learned(group, entry, now) for group, entry in places]
        like = min(learned, key=lambda entry: entry.service.value)
        return [
            _learned(group, entry, now)
            if entry.service.samples
            else (_begin(group, entry, now), like.service.value, 0.0)
            for group, entry in places
        ]


def _learned(group: GroupState, entry: Entry, now: float) -> _Place:
    return _begin(group, entry, now), entry.service.value, entry.transit.value


def _begin(group: GroupState, entry: Entry, now: float) -> float:
    """Return how soon a group could begin with the model."""
    begin = group.busy_for(now)
    if entry.program.key in group.residents or group.binding is entry:
        return begin
    if not entry.swap.samples and not group.swap.samples:
        return begin
    swap = group.swap_cost(entry)
    return begin + swap if group.bind_needs_idle or group.binding is not None else max(begin, swap)
