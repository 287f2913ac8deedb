"""Loads drawn at random, for tests that ask how a scheduler does where nobody tuned it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, final

import msgspec
import numpy as np

from .arrivals import Times, bursts, camera, check_load, merged, random_source, renewal
from .generic import generic_groups
from .trace import ModelLoad, Trace

__all__ = ["draw", "load_factor"]

_Kind: TypeAlias = Literal["camera", "poisson", "clumps", "bursts", "clients"]

_STREAM: Final = 200  # apart from the families of `generators`, and from descriptions
_FACTORS: Final = (0.4, 1.5)
_FPS: Final = (5.0, 60.0)
_RATES: Final = (0.5, 300.0)
_DEADLINES: Final = (0.02, 1.0)
_NEAR: Final = 0.02
_BURST_MEAN: Final = 0.65 * 1.21  # see `bursts`


@final
class _Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A model while the load is being scaled; seconds, and requests a second.

    Attributes:
        slack: a camera's deadline over its period.
        shape: what else its kind needs: share of dropped frames, or coefficient of variation.
    """

    kind: _Kind
    service: float
    rate: float
    deadline: float
    slack: float
    shape: float
    jitter: float
    priority: int
    clients: int

    def scaled(self, by: float) -> _Draft:
        """Return it with so many times the requests, within the bounds of its kind."""
        if self.kind == "clients":
            return self
        rate = _clipped(self.rate * by, _FPS if self.kind == "camera" else _RATES)
        deadline = _clipped(self.slack / rate, _DEADLINES) if self.kind == "camera" else self.deadline
        return msgspec.structs.replace(self, rate=rate, deadline=deadline)

    def times(self, rng: np.random.Generator, seconds: float) -> Times:
        """Draw its requests."""
        match self.kind:
            case "camera":
                return camera(rng, self.rate, seconds, jitter=self.jitter, dropped=self.shape)
            case "poisson":
                return renewal(rng, self.rate, seconds)
            case "clumps":
                return renewal(rng, self.rate, seconds, cv=self.shape)
            case "bursts":
                return bursts(rng, self.rate / _BURST_MEAN, seconds)
            case "clients":
                return np.empty(0)


def draw(seed: int, *, seconds: float = 20.0, clients: bool = True) -> Trace:
    """Draw a load: 2 to 12 models on 1 to 4 like devices, at 0.4 to 1.5 of what these can do.

    Service takes 1 to 10 ms, a swap 5 to 40. There are cameras of 5 to 60 frames a second with jitter and
    dropped frames and deadlines near their period, Poisson streams, clumps of a coefficient of variation up
    to 4, and bursts, with deadlines of 20 ms to 1 s. In one load of six or so one model has callers that
    wait for their answers. Priorities are 0, and sometimes 1 or 2.

    Args:
        seed: a whole number from 0 on; the same arguments give the same trace.
        seconds: how long requests come.
        clients: whether callers may wait for their answers.

    Raises:
        ConfigError: an argument is out of its range.
    """
    check_load(seconds, _RATES[1] * 12)
    rng = random_source(seed, _STREAM)
    while True:
        groups, swap = int(rng.integers(1, 5)), round(float(rng.uniform(0.005, 0.04)), 4)
        drafts = _drafts(rng, clients=clients)
        scaled = _scaled(drafts, groups, swap, float(rng.uniform(*_FACTORS)))
        if scaled is not None:
            break
    models = tuple(_model(index, draft, swap) for index, draft in enumerate(scaled))
    return Trace(
        name=f"random {seed}",
        seconds=float(seconds),
        groups=generic_groups(groups, swap=swap),
        models=models,
        arrivals=merged([draft.times(rng, seconds) for draft in scaled], models),
        seed=seed,
    )


def load_factor(
    services: Sequence[float], rates: Sequence[float], deadlines: Sequence[float], *, groups: int, swap: float
) -> float:
    """Return the device time that a load asks for over what there is, with a plausible share of swaps.

    Where there are more models than groups, each model is taken to become resident once in its deadline
    or for each request, whichever is less often.

    Args:
        services: seconds of a request, by model.
        rates: requests a second.
        deadlines: seconds.
        groups: devices that keep one model each.
        swap: seconds to make a model resident.
    """
    triples = list(zip(services, rates, deadlines, strict=True))
    work = sum(rate * service for service, rate, _ in triples)
    swaps = sum(min(rate, 1 / deadline) for _, rate, deadline in triples) if len(triples) > groups else 0.0
    return (work + swaps * swap) / groups


def _drafts(rng: np.random.Generator, *, clients: bool) -> list[_Draft]:
    drafts = [_draft(rng) for _ in range(rng.integers(2, 13))]
    callers, asking, term = rng.random() < 1 / 6, int(rng.integers(1, 5)), float(rng.uniform(0.05, 0.5))
    if clients and callers:
        drafts[0] = msgspec.structs.replace(
            drafts[0], kind="clients", clients=asking, deadline=term, rate=asking / term
        )
    return drafts


def _draft(rng: np.random.Generator) -> _Draft:
    kind: _Kind = ("camera", "camera", "poisson", "clumps", "bursts")[rng.integers(5)]
    dropped = float(rng.uniform(0, 0.1)) * (rng.random() < 1 / 2)
    return _Draft(
        kind=kind,
        service=round(float(rng.uniform(0.001, 0.01)), 4),
        rate=_log_uniform(rng, _FPS),
        deadline=round(_log_uniform(rng, _DEADLINES), 4),
        slack=float(rng.uniform(0.8, 2)),
        shape=dropped if kind == "camera" else float(rng.uniform(1, 4)),
        jitter=float(rng.uniform(0, 0.005)),
        priority=int(rng.integers(1, 3)) if rng.random() < 1 / 6 else 0,
        clients=0,
    )


def _scaled(drafts: list[_Draft], groups: int, swap: float, wanted: float) -> list[_Draft] | None:
    """Return the models with as many requests as make up the load that is wanted, or None."""
    low, high = 0.01, 100.0
    for _ in range(30):
        middle = math.sqrt(low * high)
        less = _load([draft.scaled(middle) for draft in drafts], groups, swap) < wanted
        low, high = (middle, high) if less else (low, middle)
    scaled = [draft.scaled(low) for draft in drafts]
    return scaled if abs(_load(scaled, groups, swap) / wanted - 1) < _NEAR else None


def _load(drafts: list[_Draft], groups: int, swap: float) -> float:
    return load_factor(
        [draft.service for draft in drafts],
        [draft.rate for draft in drafts],
        [draft.deadline for draft in drafts],
        groups=groups,
        swap=swap,
    )


def _model(index: int, draft: _Draft, swap: float) -> ModelLoad:
    return ModelLoad(
        name=f"{draft.kind}{index}",
        service=draft.service,
        swap=swap,
        deadline=round(draft.deadline, 4),
        priority=draft.priority,
        clients=draft.clients,
    )


def _log_uniform(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    return math.exp(rng.uniform(math.log(bounds[0]), math.log(bounds[1])))


def _clipped(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])
