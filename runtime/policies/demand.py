"""What a model asks of a group: the frames that wait, and those that are foreseen."""

from __future__ import annotations

import math
from typing import Final, final

import msgspec

from repertory.actors.policy import Entry, GroupState

from .scene import FRAMES

__all__ = ["FORESEEN", "Demand", "demand_of"]

FORESEEN: Final = 4
"""Arrivals of a rhythmic model that a decision foresees."""

_EPSILON: Final = 1e-9


@final
class Demand(msgspec.Struct, eq=False):
    """The frames of one model that can be in time, the waiting ones first, then those foreseen.

    Attributes:
        entry: of the model on the group.
        service: seconds of one frame there.
        load: seconds to make the model resident, where it is not.
        priority: the class of what is taken next.
        value: what a frame that is answered in time is worth.
        waiting: frames that are there.
        arrivals: when each foreseen one comes.
        starts: when each, waiting or foreseen, must be started at the latest.
        latest: when the last one must be.
        musts: for each of them, when it and those that wait behind it must be begun so that none is late.
    """

    entry: Entry
    service: float
    load: float
    priority: int
    value: float
    waiting: int
    arrivals: list[float]
    starts: list[float]
    latest: float
    musts: list[float]

    def serve(self, at: int, time: float, cut: float) -> list[tuple[int, float, int]]:
        """Serve frames from the one at `at` on, from `time` on, while they are in time.

        Return how such a stretch may end: before each pause, at `cut`, and when all is served; each as the
        next frame, the time, and the number served.
        """
        served, waiting, service = 0, self.waiting, self.service
        if at < waiting:
            end = time + (waiting - at) * service
            if time <= self.musts[at] and end <= cut:  # all of them are in time
                at, time, served = waiting, end, waiting - at
            else:
                at, time, served = self._serve_waiting(at, time, cut)
                if at < waiting:
                    return [(at, time, served)] if served else []
        return self._serve_foreseen(at, time, cut, served)

    def _serve_foreseen(self, at: int, time: float, cut: float, served: int) -> list[tuple[int, float, int]]:
        """Go on with what is foreseen, after so many that were served."""
        service, waiting = self.service, self.waiting
        ends: list[tuple[int, float, int]] = []
        starts, arrivals = self.starts, self.arrivals
        for index in range(at, len(starts)):
            arrival = arrivals[index - waiting]
            begin = time
            if arrival > time:
                begin = arrival
                if served:
                    ends.append((index, time, served))
            if begin > starts[index]:
                continue
            if begin + service > cut:
                if served and not ends:
                    ends.append((index, time, served))
                return ends
            time = begin + service
            served += 1
        if served:
            ends.append((len(starts), time, served))
        return ends

    def _serve_waiting(self, at: int, time: float, cut: float) -> tuple[int, float, int]:
        """Serve what waits and is in time, until `cut`; return the next frame, the time, and the number."""
        service, starts, waiting, served = self.service, self.starts, self.waiting, 0
        for index in range(at, waiting):
            if time <= starts[index]:
                if time + service > cut:
                    return index, time, served
                time += service
                served += 1
        return waiting, time, served


def demand_of(
    group: GroupState,
    entry: Entry,
    now: float,
    free: float,
    *,
    load: float,
    service: float,
    priority: int,
    value: float,
    taken: int,
    horizon: float,
) -> Demand | None:
    """Return what a model asks of a group, or None where nothing of it can be in time.

    Args:
        group: the group.
        entry: of the model on it.
        now: the present.
        free: when the device is free.
        load: seconds to make it resident, where it is not.
        service: seconds of a frame.
        priority: its class.
        value: of a frame.
        taken: frames that others will serve, the first ones.
        horizon: how far arrivals are foreseen.
    """
    context = entry.context
    transit = entry.transit.value
    earliest = free if entry.program.key in group.residents else free + load
    starts: list[float] = []
    if context.waiting > taken:
        deadlines, shift = context.deadlines(FRAMES), _EPSILON - service - transit
        starts = [deadline + shift for deadline in deadlines[taken:FRAMES]]
        if starts and starts[0] < earliest:
            starts = [start for start in starts if start >= earliest]
    waiting = len(starts)
    musts = starts.copy()
    for index in range(waiting - 2, -1, -1):
        must = musts[index + 1] - service
        musts[index] = min(musts[index], must)
    arrivals: list[float] = []
    rhythm = context.rhythm
    due, period = rhythm.foresee(now) if rhythm.period or not waiting else (math.inf, 0.0)
    if not rhythm.period and not waiting:
        due = min(due, now + earliest - free)  # it may come at any time
    if period:
        if taken > context.waiting:
            due += (taken - context.waiting) * period
        allowance = rhythm.allowance - service - transit + _EPSILON
        while due < horizon and len(arrivals) < FORESEEN:
            arrivals.append(due)
            starts.append(due + allowance)
            musts.append(due + allowance)
            due += period
    if not starts:
        return None
    return Demand(entry, service, load, priority, value, waiting, arrivals, starts, max(starts), musts)
