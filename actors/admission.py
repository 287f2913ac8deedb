"""Admission by estimate: what cannot be answered by its deadline, whatever is decided, is refused at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, final

from .hope import untried
from .policy import DOUBT, Entry, GroupState

__all__ = ["LENIENCE", "Admission"]

LENIENCE: Final = 1e-6
"""Seconds by which an answer may be foreseen to be late, and its frame is started all the same."""

_Home: TypeAlias = tuple[float, float, float]  # when it could begin, a frame's service, and its transit


@final
class Admission:
    """Tells when a request could be answered at the soonest.

    The estimate is what the device owes already, what it is committed to before (see `Commitment`), a swap
    where the model is not resident, the requests of this model that go first and are not late themselves,
    and the request itself, on the group where that is least. What else other models ask for is not counted,
    for a policy may let them wait; nor is anything that is not known. So what was never served could be
    answered at once, and a group that never served a model is taken to need no more than another one does, or
    nothing at all where it may try at once (see `untried`).

    Args:
        homes: where the model is served: each group with what it knows of the model.
    """

    def __init__(self, homes: Callable[[], Iterable[tuple[GroupState, Entry]]]) -> None:
        self._homes = homes
        self._tried = -math.inf

    def within(self, left: float, ahead: int, now: float, priority: int) -> bool:
        """Whether one group alone could answer in so many seconds, if so many frames of the model go first.

        A quick look, which most requests pass.
        """
        for group, entry in self._homes():
            if group.in_service and entry.service.samples:
                begin = _begin(group, entry, now, priority)
                if begin + (ahead + 1) * entry.service.value + entry.transit.value <= left:
                    return True
        return False

    def soonest(self, ahead: Iterable[float], now: float, priority: int) -> tuple[float, int]:
        """Return seconds until an answer, if frames with these deadlines go first, and how many are in time.

        `priority` is that of the request.

        Those that are not cost nothing: they end unserved when their turn comes. All groups share the others,
        each from the moment at which the model could be resident there. 0 where nothing is known: nothing
        was served, or no group is in service, and one may be back at any time.
        """
        homes = self._known(now, priority)
        served = 0
        if len(homes) == 1:
            begin, service, transit = homes[0]
            end = begin + service + transit
            for deadline in ahead:
                if now + end <= deadline + LENIENCE:
                    end += service
                    served += 1
            return end, served
        ends = [begin + service + transit for begin, service, transit in homes]
        for deadline in ahead if ends else ():
            end = min(ends)
            if now + end <= deadline + LENIENCE:
                best = ends.index(end)
                ends[best] = end + homes[best][1]
                served += 1
        return min(ends, default=0.0), served

    def believes(self, now: float) -> bool:
        """Whether anything that was learned of the model is not too old to be believed."""
        return any(not entry.stale(now) for _, entry in self._homes())

    def doubts(self, left: float, now: float) -> bool:
        """Whether a request that has so many seconds is to try again what was learned long ago.

        So it is where a swap and a frame alone took longer, and nothing was served for a while. Asked once
        more at once, it says no: one request is enough.
        """
        cost = math.inf
        for _, entry in self._homes():
            if not entry.stale(now):
                return False
            if entry.service.samples:
                cost = min(cost, entry.cost)
        if not left < cost < math.inf or now - self._tried <= 1 + DOUBT * cost:
            return False
        self._tried = now
        return True

    def _known(self, now: float, priority: int) -> list[_Home]:
        """Return the groups in service, by what is known of the model: none where nothing is."""
        homes = [place for place in self._homes() if place[0].in_service]
        learned = [entry for _, entry in homes if entry.service.samples]
        if not learned:
            return []
        if len(learned) == len(homes):
            return [_learned(group, entry, now, priority) for group, entry in homes]
        like = min(learned, key=lambda entry: entry.service.value)
        return [
            _learned(group, entry, now, priority)
            if entry.service.samples
            else (_begin(group, entry, now, priority), _likely(group, entry, like, now), 0.0)
            for group, entry in homes
        ]


def _learned(group: GroupState, entry: Entry, now: float, priority: int) -> _Home:
    return _begin(group, entry, now, priority), entry.service.value, entry.transit.value


def _likely(group: GroupState, entry: Entry, like: Entry, now: float) -> float:
    """Return how long a frame takes on a group that never served the model: nothing where it may try."""
    return 0.0 if untried(group, entry, now) else like.service.value


def _begin(group: GroupState, entry: Entry, now: float, priority: int) -> float:
    """Return how soon a group could begin with the model."""
    begin = group.busy_for(now)
    if group.binding is entry:
        return begin
    first, one_by_one = group.committed, group.bind_needs_idle or group.binding is not None
    if first is not None and first.delays(entry.context, priority):
        begin, one_by_one = max(begin, first.left(begin, now)), True
        if first.program == entry.program.key:
            return begin
    elif entry.program.key in group.residents:
        return begin
    if not entry.swap.samples and not group.swap.samples:
        return begin
    swap = group.swap_cost(entry)
    return begin + swap if one_by_one else max(begin, swap)
