"""Loads made by hand, played by the default policy through the whole runtime, and what came of them."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from repertory.runtime.plan.runner import Fate, Played, run
from repertory.runtime.plan.trace import Arrival, GroupLoad, ModelLoad, Trace
from repertory.runtime.policies.swap_aware import SwapAware

__all__ = ["a_load", "a_model", "every", "kept_by", "play", "seconds_of", "swaps_of"]


def every(period: float, begin: float = 0.0, end: float = 2.0) -> list[float]:
    """Return moments a period apart, from `begin` on and before `end`."""
    return [begin + number * period for number in range(math.ceil((end - begin) / period - 1e-9))]


def a_model(name: str, service: float = 0.003, deadline: float = 0.1, **more: float) -> ModelLoad:
    """Return a model; times in seconds."""
    return msgspec.convert({"name": name, "service": service, "deadline": deadline, **more}, ModelLoad)


def a_load(
    *sources: tuple[ModelLoad, Iterable[float]], groups: int = 1, swap: float = 0.008, seconds: float = 2.0
) -> Trace:
    """Return models and when their requests come."""
    arrivals = sorted(
        Arrival(at, index, model.deadline, model.priority)
        for index, (model, times) in enumerate(sources)
        for at in times
    )
    return Trace(
        name="by hand",
        seconds=seconds,
        groups=tuple(GroupLoad(f"sim://{number}?window=1&swap_ms={1000 * swap}") for number in range(groups)),
        models=tuple(model for model, _ in sources),
        arrivals=tuple(arrivals),
    )


async def play(load: Trace) -> Played:
    """Play a load."""
    return await run(load, SwapAware())


def kept_by(played: Played, *models: int, since: float = 0.0) -> float:
    """Return the share of the requests of some models, or of all, that was answered in time."""
    among = models or range(len(played.trace.models))
    fates = [each.fate for each in played.requests if each.model in among and each.arrival >= since]
    return fates.count(Fate.ON_TIME) / len(fates)


def swaps_of(played: Played, *, since: float = 0.0) -> list[str]:
    """Return for whom each group swapped."""
    spans = [span for each in played.spans.values() for span in each]
    return [span.model for span in spans if span.kind == "swap" and span.start >= since]


def seconds_of(played: Played, model: str) -> float:
    """Return for how long frames of a model held the devices, together."""
    spans = [span for each in played.spans.values() for span in each]
    return sum(span.end - span.start for span in spans if span.kind == "compute" and span.model == model)
