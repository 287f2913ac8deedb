from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repertory.runtime.plan.bound import clairvoyant_bound, throughput_bound
from repertory.runtime.plan.costs import Stream
from repertory.runtime.plan.generators import generate
from repertory.runtime.plan.residencies import most_worth
from repertory.runtime.plan.trace import Arrival, GroupLoad, ModelLoad, Trace

from .oracle import camera_load, most_of_all

MILLI = 1e-3
SERVICES = st.lists(st.integers(1, 8), min_size=3, max_size=3)
ARRIVALS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 2), st.integers(4, 50)), min_size=1, max_size=7
)


def load(arrivals: list[tuple[int, int, int]], services: list[int], swap: int, groups: int) -> Trace:
    """A load with all times in ms."""
    return Trace(
        name="test",
        seconds=0.06,
        groups=tuple(GroupLoad(f"sim://{index}?swap_ms={swap}") for index in range(groups)),
        models=tuple(
            ModelLoad(name=f"m{index}", service=each * MILLI) for index, each in enumerate(services)
        ),
        arrivals=tuple(
            Arrival(time * MILLI, model, deadline * MILLI, 0) for time, model, deadline in sorted(arrivals)
        ),
    )


@settings(max_examples=60)
@given(ARRIVALS, SERVICES, st.integers(0, 25), st.integers(1, 2))
def test_no_schedule_exceeds_the_bound(
    arrivals: list[tuple[int, int, int]], services: list[int], swap: int, groups: int
) -> None:
    trace = load(arrivals, services, swap, groups)
    most = most_of_all(trace.arrivals, [each * MILLI for each in services], swap * MILLI, groups)
    bound = clairvoyant_bound(trace)
    assert bound is not None
    assert most / len(arrivals) - 1e-9 <= bound <= 1


def test_under_lasting_overload_it_is_what_the_devices_can_do() -> None:
    times = [np.arange(0.0, 10.0, 0.01).tolist()]
    one, two = (camera_load(times, service=0.025, deadline=0.05, groups=each) for each in (1, 2))
    assert clairvoyant_bound(one) == pytest.approx(0.4, abs=0.005)
    assert clairvoyant_bound(two) == pytest.approx(0.8, abs=0.01)


def test_a_model_that_waits_for_its_next_request_holds_the_device() -> None:
    times = np.arange(0.0, 60.0, 0.5)
    held = camera_load([times.tolist(), (times + 0.25).tolist()], deadline=0.1, service=0.01, swap_ms=1000)
    bound, free = clairvoyant_bound(held), clairvoyant_bound(camera_load([times.tolist()] * 2, swap_ms=10))
    assert bound is not None
    assert bound == pytest.approx(0.5, abs=0.02)
    assert free == 1


def test_the_worth_of_a_stream_is_that_of_its_best_cut() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        times = np.sort(rng.uniform(0, 100, rng.integers(1, 40))).tolist()
        stream = Stream(times, rng.uniform(1, 30), rng.uniform(0.2, 3), rng.uniform(0, 20))
        price = rng.uniform(0, 0.6)
        assert most_worth(stream, price) == pytest.approx(worth(stream, price), abs=1e-9)


def worth(stream: Stream, price: float) -> float:
    """By the definition: all last residencies, of all beginnings of the stream."""
    times, deadline, service, swap = stream
    best = [0.0]
    for last in range(len(times)):
        lengths = [
            max((last + 1 - first) * service, times[last] - times[first] + 2 * service - deadline)
            for first in range(last + 1)
        ]
        values = [
            best[first] + last + 1 - first - price * (swap + length) for first, length in enumerate(lengths)
        ]
        best.append(max(best[-1], *values))
    return best[-1]


def test_requests_without_a_deadline_count_as_long_as_a_plan_waits() -> None:
    requests = tuple(Arrival(0.1 * index, 0, math.inf, 0) for index in range(100))
    trace = load([(0, 0, 38)], [600, 6, 6], 20, 1)
    trace = msgspec.structs.replace(trace, seconds=10.0, arrivals=requests)
    assert clairvoyant_bound(trace) == 1
    slower = msgspec.structs.replace(trace, models=(ModelLoad(name="slow", service=6.0),))
    assert clairvoyant_bound(slower) == pytest.approx(0.11, abs=0.001)


def test_devices_that_hold_several_models_are_bound_by_work_alone() -> None:
    times = [[0.0, 0.1, 0.2]] * 3
    trace = camera_load(times, deadline=0.05, service=0.01, swap_ms=40)
    roomy = msgspec.structs.replace(trace, groups=(GroupLoad("sim://0?swap_ms=40&residents=3"),))
    alone, together = clairvoyant_bound(trace), clairvoyant_bound(roomy)
    assert together == 1
    assert alone is not None
    assert alone < 0.7


def test_what_is_not_known_has_no_bound() -> None:
    trace = camera_load([[0.0, 0.1]])
    family = msgspec.structs.replace(trace, groups=(GroupLoad("sim+memx://0"),))
    clients = msgspec.structs.replace(trace, models=(ModelLoad(name="m", service=0.01, clients=1),))
    idle = msgspec.structs.replace(trace, arrivals=())
    assert [clairvoyant_bound(each) for each in (family, clients, idle)] == [None] * 3
    assert throughput_bound(family) is None


def test_clients_cannot_get_more_answers_than_the_devices_give() -> None:
    bound = throughput_bound(generate("T5", 1))
    assert bound == pytest.approx(1 / 0.003, rel=0.01)
    trace = generate("T1", 1, 5.0)
    assert throughput_bound(trace) == pytest.approx(len(trace.arrivals) / 5)


def test_one_camera_alone_and_a_load_beyond_what_the_device_can_do() -> None:
    assert clairvoyant_bound(generate("T0", 1, 5.0)) == 1
    bound = clairvoyant_bound(generate("T6", 1, 10.0))
    assert bound is not None
    assert 0.85 < bound < 1
