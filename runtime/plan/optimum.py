"""The best that periodic cameras can get, from a scheduler that knows all that is to come."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from repertory.actors.context import LENIENCE

from .costs import Costs, Stream, least_costs
from .cycle import Camera, Cycle, most_frames
from .search import most_in_time
from .trace import Trace

__all__ = ["MAX_CAMERAS", "cameras_optimum"]

MAX_CAMERAS: Final = 9
"""Cameras of one load for which the optimum is computed: each more makes three times the work."""

_MAX_STATES: Final = 40_000_000
_MAX_PERIODS: Final = 8  # of the slowest camera, in a cycle
_MIN_FRAMES: Final = 4
_JITTER: Final = 0.1  # of a period, to either side
_MISSING: Final = 0.02  # of the frames
_DRIFT: Final = 1e-3  # seconds, from a camera's first frame to its last

_SPLITS: Final = 48
_SAMPLE: Final = 6.0  # seconds

_Set: TypeAlias = tuple[int, ...]


@final
class _Rhythm(NamedTuple):
    """A model's arrivals as those of a camera.

    Attributes:
        times: when its frames came, in seconds.
        numbers: which frames these are, from 0.
        period: seconds between two.
        deadline: seconds, of each frame.
        model: its index.
    """

    times: NDArray[np.float64]
    numbers: NDArray[np.float64]
    period: float
    deadline: float
    model: int


def cameras_optimum(trace: Trace) -> float | None:
    """Return the fraction of the frames, 0 to 1, that are answered in time at most, in a load of cameras.

    It is that of the best fixed split of the cameras over the groups, for these very arrivals. Each set of
    cameras is first bounded by the long-term optimum of its rhythm, every frame with the whole jitter of its
    camera to its advantage. The splits that this leaves the most hope are searched on their first seconds,
    jitter and all, until the best of them is no worse than what the others may hope for; and that one is
    searched from the beginning to the end. So the result is what a schedule attains, but for sets too large
    to search, which count by their bound. A scheduler that moves cameras between groups may exceed it.

    None for a load that is not purely periodic (frames that come regularly, to a tenth of their period, and
    hardly any missing), whose rates have no short common cycle, with requests without a deadline, with more
    than `MAX_CAMERAS` cameras or many frames of each that wait at once, or on devices that hold several
    models at once or whose costs are not known.

    Raises:
        ConfigError: a group's address is wrong.
    """
    costs = least_costs(trace)
    rhythms = _rhythms(trace)
    if costs is None or not costs.exclusive or not rhythms:
        return None
    bounds = _bounds(trace, rhythms, costs)
    if bounds is None:
        return None
    streams = [
        Stream(
            each.times.tolist(), each.deadline + LENIENCE, costs.service[each.model], costs.swap[each.model]
        )
        for each in rhythms
    ]
    return _searched(bounds, _allowed(trace, rhythms), streams) / len(trace.arrivals)


def _bounds(trace: Trace, rhythms: Sequence[_Rhythm], costs: Costs) -> dict[int, float] | None:
    """Return how many frames of a set of cameras one group can serve, jitter in its favour, by set."""
    length = _length(rhythms, costs)
    if length is None or min(costs.service[each.model] for each in rhythms) <= 0:
        return None
    cameras = [_camera(rhythm, costs, length) for rhythm in rhythms]
    cycle = Cycle(cameras, length)
    sets = _sets(len(cameras), len(trace.groups))
    if cycle.states(sets) > _MAX_STATES:
        return None
    cycles = len(trace.arrivals) / sum(camera.frames for camera in cameras)
    return {_number(each): most * cycles for each, most in most_frames(cycle, sets).items()}


def _rhythms(trace: Trace) -> list[_Rhythm]:
    """Return the cameras of a load, none at all if something in it is no camera."""
    if any(model.clients for model in trace.models):
        return []
    used = sorted({arrival.model for arrival in trace.arrivals})
    if len(used) > MAX_CAMERAS:
        return []
    found = [_rhythm(trace, model) for model in used]
    rhythms = [each for each in found if each is not None]
    return rhythms if len(rhythms) == len(used) else []


def _rhythm(trace: Trace, model: int) -> _Rhythm | None:
    arrivals = [each for each in trace.arrivals if each.model == model]
    deadline = arrivals[0].deadline
    if any(each.deadline != deadline for each in arrivals) or deadline == math.inf:
        return None
    times = np.array([each.time for each in arrivals])
    gaps = np.diff(times)
    if len(times) < _MIN_FRAMES or gaps.min() <= 0:
        return None
    steps = np.rint(gaps / np.median(gaps))
    numbers = np.concatenate([np.zeros(1), np.cumsum(steps)])
    period, start = np.polyfit(numbers, times, 1)
    far = np.abs(times - start - period * numbers).max() > _JITTER * period
    if steps.min() < 1 or far or numbers[-1] + 1 > len(times) * (1 + _MISSING):
        return None
    return _Rhythm(times, numbers, float(period), deadline, model)


def _length(rhythms: Sequence[_Rhythm], costs: Costs) -> float | None:
    """Return the seconds of the shortest cycle that all cameras fit, and any one service and swap."""
    slowest = max(rhythm.period for rhythm in rhythms)
    longest = max(max(costs.service[each.model], costs.swap[each.model]) for each in rhythms)
    for periods in range(1, _MAX_PERIODS + 1):
        fitted = [round(periods * slowest / each.period) * each.period for each in rhythms]
        length = sum(fitted) / len(fitted)
        if length >= longest and all(_drift(rhythm, length) <= _DRIFT for rhythm in rhythms):
            return length
    return None


def _drift(rhythm: _Rhythm, length: float) -> float:
    """Return how far a camera departs from the cycle by the end."""
    exact = length / round(length / rhythm.period)
    return abs(exact - rhythm.period) * float(rhythm.numbers[-1])


def _camera(rhythm: _Rhythm, costs: Costs, length: float) -> Camera:
    """Return a camera whose frames come when the earliest came, and are in time as the latest were."""
    frames = round(length / rhythm.period)
    phases = rhythm.times - rhythm.numbers * (length / frames)
    return Camera(
        phase=float(phases.min()),
        frames=frames,
        service=costs.service[rhythm.model],
        swap=costs.swap[rhythm.model],
        deadline=rhythm.deadline + float(np.ptp(phases)) + LENIENCE,
    )


def _sets(cameras: int, groups: int) -> list[_Set]:
    sizes = range(1 if groups > 1 else cameras, cameras + 1)
    return [each for size in sizes for each in combinations(range(cameras), size)]


def _number(cameras: _Set) -> int:
    """Return a set as a number with a bit for each."""
    return sum(1 << camera for camera in cameras)


def _allowed(trace: Trace, rhythms: Sequence[_Rhythm]) -> list[int]:
    """Return which cameras each group may serve, as numbers of sets; groups without any are left out."""
    places = [trace.models[rhythm.model].groups for rhythm in rhythms]
    groups = Counter(
        _number(tuple(index for index, own in enumerate(places) if own is None or group in own))
        for group in range(len(trace.groups))
    )
    return [each for each, count in groups.items() for _ in range(min(count, each.bit_count()))]


def _searched(bounds: dict[int, float], allowed: Sequence[int], streams: Sequence[Stream]) -> float:
    """Return the frames of the best split."""
    whole = (1 << len(streams)) - 1
    estimates = dict(bounds)
    known: dict[int, float] = {}
    for _ in range(_SPLITS):
        new = [own for own in _best_split(estimates, allowed, whole) if own not in known]
        if not new:
            break
        known |= {own: _most(own, streams, bounds, _SAMPLE) for own in new}
        estimates |= known
    return sum(_most(own, streams, bounds, math.inf) for own in _best_split(known, allowed, whole))


def _most(own: int, streams: Sequence[Stream], bounds: dict[int, float], seconds: float) -> float:
    """Return how many frames of a set of cameras can be in time, by what comes in the first seconds."""
    mine = [stream for index, stream in enumerate(streams) if own >> index & 1]
    end = min(stream.times[0] for stream in mine) + seconds
    early = [stream._replace(times=[time for time in stream.times if time < end]) for stream in mine]
    most = most_in_time(early)
    frames, sample = (sum(len(stream.times) for stream in each) for each in (mine, early))
    return bounds[own] if most is None else most * frames / sample


def _best_split(served: dict[int, float], allowed: Sequence[int], whole: int) -> tuple[int, ...]:
    """Return the sets of the split with the most frames.

    Args:
        served: frames, by set; those that are left out have none.
        allowed: the set of all that a group may have, by group.
        whole: the set of all cameras.
    """
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())] * (whole + 1)
    for mine in allowed:
        before = best
        best = [
            max(_with(before[cameras ^ own], own, served) for own in _subsets(cameras & mine))
            for cameras in range(whole + 1)
        ]
    return best[whole][1]


def _with(
    split: tuple[float, tuple[int, ...]], own: int, served: dict[int, float]
) -> tuple[float, tuple[int, ...]]:
    """Return a split and its frames with one more group's set, which may be empty."""
    return (split[0] + served[own], (*split[1], own)) if own in served else split


def _subsets(whole: int) -> list[int]:
    subsets = [0]
    own = whole
    while own:
        subsets.append(own)
        own = (own - 1) & whole
    return subsets
