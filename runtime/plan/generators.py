"""T0 to T7: the loads that schedulers are compared on.

T0 one camera alone. T1 four cameras on one device. T2 eight cameras on two, with deadlines of one period.
T3 clumped requests over 16 models of unlike rates. T4 on and off bursts over 32 models. T5 callers that
wait for their answer before they ask again. T6 an urgent camera beside three streams that nearly fill the
device alone. T7 one model in use and three that are loaded and idle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import msgspec
import numpy as np

from repertory.models.errors import ConfigError

from .arrivals import Times, bursts, camera, check_load, merged, random_source, renewal, zipf
from .generic import generic_groups
from .trace import ModelLoad, Trace

__all__ = ["GENERATED", "generate"]


@final
class _Family(msgspec.Struct, frozen=True, kw_only=True):
    """A family of traces; times in ms, one deadline and priority a model."""

    groups: int = 1
    service: float = 3.0
    swap: float = 8.0
    deadlines: tuple[float, ...]
    priorities: tuple[int, ...] | None = None
    clients: int = 0
    rate: float = 0
    draw: Callable[[np.random.Generator, float], list[Times]] = lambda _rng, _seconds: []


def _cameras(count: int, fps: float) -> Callable[[np.random.Generator, float], list[Times]]:
    return lambda rng, seconds: [camera(rng, fps, seconds) for _ in range(count)]


def _clumps(rng: np.random.Generator, seconds: float) -> list[Times]:
    return [renewal(rng, rate, seconds, cv=4) for rate in 350 * zipf(16, 1.1)]


def _spikes(rng: np.random.Generator, seconds: float) -> list[Times]:
    return [bursts(rng, 450 * share, seconds) for share in zipf(32, 1)]


def _urgent_and_bulk(rng: np.random.Generator, seconds: float) -> list[Times]:
    return [camera(rng, 30, seconds), *(renewal(rng, 110, seconds) for _ in range(3))]


_FAMILIES: Final = {
    "T0": _Family(deadlines=(100,), rate=60, draw=_cameras(1, 60)),
    "T1": _Family(deadlines=(100,) * 4, rate=120, draw=_cameras(4, 30)),
    "T2": _Family(groups=2, service=6, swap=20, deadlines=(66,) * 8, rate=120, draw=_cameras(8, 15)),
    "T3": _Family(groups=4, service=5, swap=15, deadlines=(100,) * 16, rate=350, draw=_clumps),
    "T4": _Family(groups=4, service=5, swap=15, deadlines=(250,) * 32, rate=450, draw=_spikes),
    "T5": _Family(deadlines=(100,) * 4, clients=8),
    "T6": _Family(deadlines=(33, 1000, 1000, 1000), priorities=(1, 0, 0, 0), rate=360, draw=_urgent_and_bulk),
    "T7": _Family(deadlines=(100,) * 4, rate=200, draw=lambda rng, seconds: [renewal(rng, 200, seconds)]),
}

GENERATED: Final = tuple(_FAMILIES)
"""Names that `generate` knows."""


def generate(name: str, seed: int, seconds: float = 60.0, *, window: int = 1) -> Trace:
    """Draw a trace of one of the families; the same arguments give the same trace.

    Args:
        name: T0 to T7.
        seed: a whole number from 0 on.
        seconds: how long requests come.
        window: frames that each device may have started and not completed.

    Raises:
        ConfigError: there is no such family, or an argument is out of its range.
    """
    family = _FAMILIES.get(name)
    if family is None:
        raise ConfigError(f"trace {name!r} came, one of {', '.join(GENERATED)} is wanted")
    check_load(seconds, family.rate)
    rng = random_source(seed, int(name[1:]))
    models = _models(family)
    return Trace(
        name=name,
        seconds=float(seconds),
        groups=generic_groups(family.groups, swap=family.swap / 1e3, window=window),
        models=models,
        arrivals=merged(family.draw(rng, seconds), models),
        seed=seed,
    )


def _models(family: _Family) -> tuple[ModelLoad, ...]:
    priorities = family.priorities or (0,) * len(family.deadlines)
    return tuple(
        ModelLoad(
            name=f"m{index}",
            service=family.service / 1e3,
            swap=family.swap / 1e3,
            deadline=deadline / 1e3,
            priority=priority,
            clients=family.clients,
        )
        for index, (deadline, priority) in enumerate(zip(family.deadlines, priorities, strict=True))
    )
