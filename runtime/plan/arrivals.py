"""When requests come: cameras, renewal streams and bursts, drawn at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from repertory.models.checks import is_a
from repertory.models.errors import ConfigError

from .trace import Arrival, ModelLoad

__all__ = [
    "MAX_ARRIVALS",
    "Times",
    "bursts",
    "camera",
    "check_load",
    "merged",
    "random_source",
    "renewal",
    "zipf",
]

MAX_ARRIVALS: Final = 10_000_000
"""Requests of one trace, closed loops apart."""

Times: TypeAlias = NDArray[np.float64]
"""Seconds from the beginning, shape (requests,)."""

_SPIKES: Final = 0.03
"""Share of the blocks of a burst that have eight times as much."""


def random_source(seed: int, stream: int) -> np.random.Generator:
    """Return a source of numbers that depend on the seed and on what they are drawn for, alone.

    Raises:
        ConfigError: the seed is no whole number from 0 on.
    """
    if not is_a(seed, int) or is_a(seed, bool) or seed < 0:
        raise ConfigError(f"seed {seed!r} came, a whole number from 0 on is wanted")
    return np.random.default_rng([seed, stream])


def check_load(seconds: float, rate: float) -> None:
    """Check the length of a trace with so many requests a second.

    Raises:
        ConfigError: it is not above 0, not finite, or more than `MAX_ARRIVALS` requests are to be expected.
    """
    if not is_a(seconds, int, float) or not 0 < seconds < math.inf:
        raise ConfigError(f"seconds {seconds!r} came, a finite number above 0 is wanted")
    if seconds * rate > MAX_ARRIVALS:
        raise ConfigError(
            f"{seconds:g} seconds at {rate:g} requests a second came, at most {MAX_ARRIVALS} in all are drawn"
        )


def zipf(count: int, exponent: float) -> Times:
    """Return shares that add up to 1, in proportion to 1 / rank ** exponent."""
    shares: Times = 1 / np.arange(1, count + 1) ** exponent
    shares /= shares.sum()
    return shares


def camera(
    rng: np.random.Generator, fps: float, seconds: float, *, jitter: float = 0.001, dropped: float = 0.0
) -> Times:
    """Draw the frames of a camera: a phase at random, a fixed period, and each frame late by its own jitter.

    Args:
        rng: the source.
        fps: frames a second.
        seconds: until when.
        jitter: seconds; each frame is late by something from 0 up to it.
        dropped: share of the frames that never come.
    """
    period = 1 / fps
    times = np.arange(rng.uniform(0, period), seconds, period)
    times += rng.uniform(0, jitter, times.size)
    return times[rng.random(times.size) >= dropped] if dropped else times


def renewal(rng: np.random.Generator, rate: float, seconds: float, *, cv: float = 1.0) -> Times:
    """Draw requests with independent gamma gaps.

    Args:
        rng: the source.
        rate: requests a second, in the long run.
        seconds: until when.
        cv: standard deviation of the gaps over their mean: 1 for a Poisson process, larger for clumps.
    """
    shape = 1 / cv**2
    parts: list[Times] = []
    end = 0.0
    while end < seconds:
        times = end + np.cumsum(rng.gamma(shape, 1 / rate / shape, int(rate * seconds * 2 + 200)))
        parts.append(times[times < seconds])
        end = float(times[-1])
    return np.concatenate(parts)


def bursts(
    rng: np.random.Generator, rate: float, seconds: float, *, block: int = 5, off: float = 0.35
) -> Times:
    """Draw a Poisson process whose rate is drawn anew at every block.

    It is the rate given times a log-normal factor of mean 1 (spread 1), with 3 chances in 100 eight times
    as much, so in the long run `rate * (1 - off) * 1.21`.

    Args:
        rng: the source.
        rate: requests a second of a usual block.
        seconds: until when.
        block: whole seconds of a block.
        off: share of the blocks without any request.
    """
    current = 0.0
    parts: list[Times] = []
    for second in range(math.ceil(seconds)):
        if second % block == 0:
            current = rate * rng.lognormal(-0.5, 1.0)
            current *= rng.random() >= off
            current *= 8 if rng.random() < _SPIKES else 1
        parts.append(second + rng.random(rng.poisson(current)))
    times = np.sort(np.concatenate(parts))
    return times[times < seconds]


def merged(times: Sequence[Times], models: Sequence[ModelLoad]) -> tuple[Arrival, ...]:
    """Return the requests of all models by time, with each model's own deadline and priority."""
    moments = np.concatenate([np.empty(0), *times])
    owners = np.repeat(np.arange(len(times)), [each.size for each in times])
    order = np.lexsort((owners, moments))
    pairs = zip(moments[order].tolist(), owners[order].tolist(), strict=True)
    terms = [(model.deadline, model.priority) for model in models]
    return tuple([Arrival(time, model, *terms[model]) for time, model in pairs])
