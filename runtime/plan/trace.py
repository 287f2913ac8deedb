"""A load: groups, models, and the moments at which requests come."""

from __future__ import annotations

from typing import NamedTuple, final

import msgspec

__all__ = ["Arrival", "GroupLoad", "ModelLoad", "Trace"]


@final
class Arrival(NamedTuple):
    """One request.

    Attributes:
        time: seconds from the beginning.
        model: index into the trace's models.
        deadline: seconds from then on; `math.inf` without one.
        priority: larger is more urgent.
    """

    time: float
    model: int
    deadline: float
    priority: int


@final
class ModelLoad(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a load.

    Attributes:
        name: for people.
        service: seconds of device time that one request takes.
        swap: seconds that making it resident takes; None where the group's address says so.
        deadline: seconds, of its requests that name none; `math.inf` without one.
        priority: of its requests that name none.
        weight: its share among models of one priority.
        max_wait: seconds within which it is to get a turn.
        clients: callers that each wait for their answer before they ask again, from the beginning to the
            end; 0 where its requests are among the trace's arrivals.
        path: a model file to serve in place of a sketch, for groups that simulate a family; or None.
        groups: indices of the groups that may serve it; None for all.
    """

    name: str
    service: float
    swap: float | None = None
    deadline: float = float("inf")
    priority: int = 0
    weight: float = 1.0
    max_wait: float = 1.0
    clients: int = 0
    path: str | None = None
    groups: tuple[int, ...] | None = None


@final
class GroupLoad(msgspec.Struct, frozen=True):
    """One device group of a load, by its address; `sim://?window=1&swap_ms=8` for a generic one."""

    address: str


@final
class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A load, whole: the same trace gives the same plan.

    Attributes:
        name: T0 to T7, or what it was read from.
        seconds: how long requests come.
        groups: where they are served.
        models: what is served.
        arrivals: when, sorted by time, without the requests of clients.
        seed: that it was drawn with, or None.
    """

    name: str
    seconds: float
    groups: tuple[GroupLoad, ...]
    models: tuple[ModelLoad, ...]
    arrivals: tuple[Arrival, ...] = ()
    seed: int | None = None
