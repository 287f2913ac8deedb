"""How each group's time was spent."""

from __future__ import annotations

from typing import final

import msgspec

from .played import Played
from .stretches import Stretches, length, stretches
from .waits import begins

__all__ = ["Split", "time_split"]


@final
class Split(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of a group's time, from 0 to 1; together 1.

    Attributes:
        compute: frames ran.
        swap: a program was made resident, and none ran.
        transfer: tensors moved, and neither of both.
        idle_with_work: none of these, though a request waited that this group may serve.
        idle: none of these, and nothing to do.
    """

    compute: float
    swap: float
    transfer: float
    idle_with_work: float
    idle: float


def time_split(played: Played) -> dict[str, Split]:
    """Return the split of each group by its address, from the beginning of the load to the last end."""
    waits = _waits(played)
    splits: dict[str, Split] = {}
    for number, (address, spans) in enumerate(played.spans.items()):
        layers = [stretches(s for s in spans if s.kind == kind) for kind in ("compute", "swap", "transfer")]
        served = [
            waits[index]
            for index, model in enumerate(played.trace.models)
            if model.groups is None or number in model.groups
        ]
        splits[address] = _split([*layers, stretches([]), *served], played.seconds)
    return splits


def _waits(played: Played) -> list[Stretches]:
    """Return for each model when requests of it waited."""
    waits: list[list[tuple[float, float]]] = [[] for _ in played.trace.models]
    for request, begin in zip(played.requests, begins(played), strict=True):
        waits[request.model].append((request.arrival, min(begin, request.end)))
    return [stretches(own) for own in waits]


def _split(layers: list[Stretches], seconds: float) -> Split:
    """Split time among layers: where several overlap, the first has it."""
    compute = length(layers[0], until=seconds)
    swap = length(*layers[:2], until=seconds)
    transfer = length(*layers[:3], until=seconds)
    working = length(*layers, until=seconds)
    return Split(
        compute=compute / seconds,
        swap=max(0.0, swap - compute) / seconds,
        transfer=max(0.0, transfer - swap) / seconds,
        idle_with_work=max(0.0, working - transfer) / seconds,
        idle=max(0.0, 1.0 - working / seconds),
    )
