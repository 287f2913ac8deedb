from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repertory.runtime.plan.costs import Stream
from repertory.runtime.plan.cycle import Camera, Cycle, most_frames
from repertory.runtime.plan.generators import generate
from repertory.runtime.plan.optimum import MAX_CAMERAS, cameras_optimum
from repertory.runtime.plan.search import most_in_time
from repertory.runtime.plan.trace import Arrival, GroupLoad, ModelLoad

from .oracle import best_split, camera_load, most_of_all

MILLI = 1e-3
PERIOD = 1 / 15
TIMES = st.lists(st.tuples(st.integers(0, 80), st.integers(0, 2)), min_size=1, max_size=7)
TRIPLES = st.tuples(*[st.integers(8, 45)] * 3)


@settings(max_examples=60)
@given(TIMES, TRIPLES, st.tuples(*[st.integers(1, 8)] * 3), st.integers(0, 25))
def test_the_search_finds_what_trying_everything_finds(
    times: list[tuple[int, int]], deadlines: tuple[int, ...], services: tuple[int, ...], swap: int
) -> None:
    arrivals = [Arrival(time * MILLI, model, deadlines[model] * MILLI, 0) for time, model in sorted(times)]
    streams = [
        Stream([each.time for each in arrivals if each.model == model], deadline, service, swap * MILLI)
        for model, (deadline, service) in enumerate(
            zip(np.multiply(deadlines, MILLI).tolist(), np.multiply(services, MILLI).tolist(), strict=True)
        )
    ]
    assert most_in_time(streams) == most_of_all(arrivals, [each.service for each in streams], swap * MILLI, 1)


def searched(cameras: list[Camera], length: float, cycles: int) -> int:
    """Frames that can be in time of so many cycles."""
    streams = [
        Stream(
            [each.phase + length * index / each.frames for index in range(cycles * each.frames)],
            each.deadline,
            each.service,
            each.swap,
        )
        for each in cameras
    ]
    most = most_in_time(streams)
    assert most is not None
    return most


@pytest.mark.parametrize("seed", [0, 3])
def test_the_cycle_goes_on_as_a_long_search_does(seed: int) -> None:
    """Two independent methods: steps of time backwards, and schedules in continuous time forwards."""
    rng = np.random.default_rng(seed)
    cameras = [
        Camera(float(rng.uniform(0, PERIOD)), 1 + (seed == 3 and index == 0), 0.006, 0.02, deadline)
        for index, deadline in enumerate([0.066, 0.066, 0.05, 0.1])
    ]
    everything = tuple(range(len(cameras)))
    most = most_frames(Cycle(cameras, PERIOD), [everything, (0, 2)])
    for some, rate in most.items():
        mine = [cameras[index] for index in some]
        grown = searched(mine, PERIOD, 48) - searched(mine, PERIOD, 24)
        assert grown - 1 <= rate * 24 <= grown + 2  # it errs upwards, if at all
    assert most[everything] < sum(camera.frames for camera in cameras)


def jittered(phases: list[float], frames: int) -> list[list[float]]:
    rng = np.random.default_rng(5)
    steps = np.arange(frames) * PERIOD
    return [(phase + steps + rng.uniform(0, MILLI, frames)).tolist() for phase in phases]


def unsteady(phases: list[tuple[float, int]]) -> list[list[float]]:
    """Four frames of each camera, two of them 5 ms late: if each had that to spare, all could be in time."""
    late = [0, 5 * MILLI, 5 * MILLI, 0]
    return [[phase + PERIOD * frame + late[frame - shift] for frame in range(4)] for phase, shift in phases]


@pytest.mark.parametrize("first", range(3))
def test_the_best_split_is_that_of_trying_everything(first: int) -> None:
    """Every split looks as good as another before it is searched."""
    times = unsteady([(0.03, 0), (0.03, 0), (0.04, 2)])
    trace = camera_load(times[first:] + times[:first], deadline=0.03, groups=2)

    def most(models: tuple[int, ...]) -> int:
        mine = [arrival for arrival in trace.arrivals if arrival.model in models]
        return most_of_all(mine, [0.006] * 3, 0.02, 1) if len(models) < 3 else 0  # two groups are no worse

    optimum = cameras_optimum(trace)
    assert optimum is not None
    assert optimum * 12 == pytest.approx(best_split(3, most))


def test_jitter_that_spoils_frames_is_not_left_out() -> None:
    trace = camera_load(unsteady([(0.03, 0), (0.03, 0)]), deadline=0.03)
    optimum = cameras_optimum(trace)
    assert optimum is not None
    assert optimum * 8 == most_of_all(trace.arrivals, [0.006] * 2, 0.02, 1) < 8


def test_cameras_stay_where_they_may_be_served() -> None:
    apart = camera_load(jittered([0.03, 0.031], 60), deadline=0.026, groups=2)
    together = msgspec.structs.replace(
        apart, models=tuple(msgspec.structs.replace(model, groups=(1,)) for model in apart.models)
    )
    assert cameras_optimum(apart) == 1
    assert cameras_optimum(together) == pytest.approx(0.5, abs=0.02)


def test_frames_that_outlive_their_period_wait_for_each_other() -> None:
    """Two frames of each camera in a turn: a swap for every frame would be too much."""
    times = jittered([0.01, 0.03], 60)
    assert cameras_optimum(camera_load(times, deadline=0.15, swap_ms=40)) == 1
    short = cameras_optimum(camera_load(times, deadline=0.06, swap_ms=40))
    assert short is not None
    assert short < 0.9


def test_cameras_of_unlike_rates_share_a_cycle() -> None:
    slow = jittered([0.01], 60)
    fast = [sorted(slow[0] + [time + PERIOD / 2 for time in slow[0]])]
    optimum = cameras_optimum(camera_load(slow + fast, deadline=0.02, service=0.006, swap_ms=5))
    assert optimum is not None
    assert 0.6 < optimum <= 1


def test_what_is_no_camera_has_no_optimum() -> None:
    times = jittered([0.03, 0.04], 60)
    trace = camera_load(times)
    assert cameras_optimum(trace) is not None
    replaced = msgspec.structs.replace
    endless = replaced(trace, arrivals=tuple(each._replace(deadline=math.inf) for each in trace.arrivals))
    client = ModelLoad(name="m", service=0.01, clients=1)
    others = [
        endless,
        replaced(trace, arrivals=()),
        replaced(trace, models=(*trace.models, client)),
        replaced(trace, groups=(GroupLoad("sim://0?residents=2"),)),
        replaced(trace, groups=(GroupLoad("sim+memx://0"),)),
        camera_load([times[0], np.random.default_rng(1).uniform(0, 4, 60).tolist()]),
        camera_load([times[0], times[0][::2] + times[0][1::2][:10]]),
        camera_load([times[0], [0.03 + 0.0571 * index for index in range(60)]]),
        camera_load(times[:1] * (MAX_CAMERAS + 1)),
        generate("T3", 1, 2.0),
    ]
    assert [cameras_optimum(each) for each in others] == [None] * len(others)
