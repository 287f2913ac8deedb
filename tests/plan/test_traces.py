"""The families of traces, against the figures that they are defined by."""

from __future__ import annotations

import itertools
import math
from functools import cache

import anyio
import numpy as np
import pytest

from repertory.models.errors import ConfigError
from repertory.runtime.plan.arrivals import Times, bursts, camera, check_load, random_source, renewal, zipf
from repertory.runtime.plan.generators import GENERATED, generate
from repertory.runtime.plan.generic import generic_groups
from repertory.runtime.plan.random_load import draw, load_factor
from repertory.runtime.plan.trace import Trace
from tests.runtime.support import open_virtual, sketched, tensor

REFERENCE = {
    "T0": (3600, 108002.502, 0.0),
    "T1": (7200, 215973.255, 323962.24),
    "T2": (7200, 215953.996, 755643.907),
    "T3": (21003, 617602.762, 2032848.419),
    "T4": (17387, 577610.192, 4352296.963),
    "T6": (21659, 650997.79, 1197171.722),
    "T7": (12015, 359795.395, 0.0),
}
"""Of the generator that they were first drawn with, seed 1: requests, sums of times and of times * model."""

generated = cache(generate)
drawn = cache(draw)


def times(trace: Trace, model: int) -> Times:
    return np.array([arrival.time for arrival in trace.arrivals if arrival.model == model])


def variation(gaps: Times) -> float:
    """Return standard deviation over mean."""
    return float(gaps.std() / gaps.mean())


def costs(trace: Trace) -> tuple[int, set[tuple[float, float | None, int]]]:
    """Return groups, and service, swap and deadline in ms of the models."""
    models = {(m.service * 1e3, m.swap and m.swap * 1e3, round(m.deadline * 1e3)) for m in trace.models}
    return len(trace.groups), models


def factor(trace: Trace) -> float:
    """Return the load factor of what really comes."""
    counts = [times(trace, index).size / trace.seconds for index in range(len(trace.models))]
    rates = [count + m.clients / m.deadline for count, m in zip(counts, trace.models, strict=True)]
    swap = trace.models[0].swap
    assert swap is not None
    services, deadlines = [m.service for m in trace.models], [m.deadline for m in trace.models]
    return load_factor(services, rates, deadlines, groups=len(trace.groups), swap=swap)


def test_a_seed_gives_the_requests_it_always_gave() -> None:
    found = {
        name: (
            len(trace.arrivals),
            round(math.fsum(a.time for a in trace.arrivals), 3),
            round(math.fsum(a.time * a.model for a in trace.arrivals), 3),
        )
        for name in REFERENCE
        if (trace := generated(name, 1))
    }
    assert found == REFERENCE


@pytest.mark.parametrize("name", GENERATED)
def test_a_trace_is_whole_and_depends_on_its_seed_alone(name: str) -> None:
    trace = generated(name, 1)
    moments = [arrival.time for arrival in trace.arrivals]
    assert moments == sorted(moments)
    assert trace == generate(name, 1)
    assert (trace.name, trace.seed, trace.seconds) == (name, 1, 60.0)
    assert name == "T5" or trace.arrivals != generate(name, 2, 10.0).arrivals
    for arrival in trace.arrivals:
        model = trace.models[arrival.model]
        assert (arrival.deadline, arrival.priority) == (model.deadline, model.priority)


def test_families_have_their_devices_and_costs() -> None:
    assert {name: costs(generated(name, 1)) for name in GENERATED} == {
        "T0": (1, {(3, 8, 100)}),
        "T1": (1, {(3, 8, 100)}),
        "T2": (2, {(6, 20, 66)}),
        "T3": (4, {(5, 15, 100)}),
        "T4": (4, {(5, 15, 250)}),
        "T5": (1, {(3, 8, 100)}),
        "T6": (1, {(3, 8, 33), (3, 8, 1000)}),
        "T7": (1, {(3, 8, 100)}),
    }
    assert [len(generated(name, 1).models) for name in GENERATED] == [1, 4, 8, 16, 32, 4, 4, 4]
    assert [m.priority for m in generated("T6", 1).models] == [1, 0, 0, 0]
    closed = generated("T5", 1)
    assert ([m.clients for m in closed.models], closed.arrivals) == ([8] * 4, ())
    assert {a.model for a in generated("T7", 1).arrivals} == {0}


@pytest.mark.parametrize(("name", "fps", "cameras"), [("T1", 30, 4), ("T2", 15, 8), ("T6", 30, 1)])
def test_cameras_keep_their_period_but_for_a_millisecond(name: str, fps: int, cameras: int) -> None:
    phases: list[float] = []
    for model in range(cameras):
        moments = times(generated(name, 1), model)
        assert moments.size == 60 * fps
        late = moments - np.arange(moments.size) / fps  # the phase, and 0 to 1 ms
        assert late.max() - late.min() < 0.001
        assert late.std() == pytest.approx(0.001 / math.sqrt(12), rel=0.1)
        assert 0 <= late.min() < 1 / fps + 0.001
        phases.append(float(late.min()))
    assert len({round(phase, 4) for phase in phases}) == cameras


def test_unlike_streams_share_by_zipf_and_clump() -> None:
    trace = generated("T3", 7, 300.0)
    counts = [times(trace, model).size for model in range(16)]
    assert sum(counts) / 300 == pytest.approx(350, rel=0.07)
    assert counts[0] / sum(counts) == pytest.approx(1 / sum(k**-1.1 for k in range(1, 17)), rel=0.1)
    assert counts[0] / counts[7] == pytest.approx(8**1.1, rel=0.25)
    assert variation(np.diff(times(trace, 0))) == pytest.approx(4, rel=0.1)


def test_bulk_streams_have_no_memory() -> None:
    trace = generated("T6", 3, 150.0)
    for model in (1, 2, 3):
        moments = times(trace, model)
        assert moments.size / 150 == pytest.approx(110, rel=0.03)
        assert variation(np.diff(moments)) == pytest.approx(1, abs=0.03)


def test_bursts_change_by_blocks_and_pause() -> None:
    rate, seconds = 40.0, 20_000.0
    moments = bursts(random_source(5, 0), rate, seconds)
    blocks = np.bincount((moments // 5).astype(int), minlength=4000) / 5
    assert moments.size / seconds == pytest.approx(rate * 0.65 * (1 + 0.03 * 7), rel=0.1)
    assert (blocks == 0).mean() == pytest.approx(0.35, abs=0.03)
    busy = np.log(blocks[blocks > 0] / rate)
    assert np.median(busy) == pytest.approx(-0.5, abs=0.1)
    inside = np.diff(np.quantile(busy, [0.159, 0.841]))[0] / 2  # eight times as much is beyond
    assert inside == pytest.approx(1, abs=0.12)


def test_a_broken_second_is_filled_to_its_end() -> None:
    moments = bursts(random_source(2, 0), 2000, 0.5, off=0)
    assert 0.48 < moments.max() < 0.5


def test_clumps_that_end_too_early_are_drawn_on() -> None:
    rng = random_source(0, 0)
    streams = [renewal(rng, 0.5, 40, cv=20) for _ in range(100)]
    assert max(each.size for each in streams) > 2 * 240  # what is drawn at once
    assert all((np.diff(each) >= 0).all() and each.max(initial=0) < 40 for each in streams)


def test_a_camera_drops_the_share_that_is_asked_for() -> None:
    frames = camera(random_source(1, 0), 20, 1000, jitter=0, dropped=0.25)
    assert frames.size / 20_000 == pytest.approx(0.75, abs=0.02)
    gaps = np.diff(frames) * 20
    assert np.allclose(gaps, gaps.round())
    assert zipf(4, 1).tolist() == pytest.approx([12 / 25, 6 / 25, 4 / 25, 3 / 25])


@pytest.mark.virtual
async def test_devices_are_told_apart_and_can_be_opened() -> None:
    addresses = [group.address for group in generic_groups(3, swap=0.0125, window=4)]
    async with open_virtual(*addresses) as rt:
        assert list(rt.statistics().groups) == addresses
        await (await rt.load(sketched("m", service=0.002))).infer(tensor(1))
        assert anyio.current_time() % 1 == pytest.approx(0.0145)
    assert generate("T2", 1, 1.0, window=3).groups[1].address == "sim://1?window=3&swap_ms=20"


@pytest.mark.parametrize(
    ("name", "seed", "seconds", "window", "word"),
    [
        ("T8", 1, 60.0, 1, "T8"),
        ("t1", 1, 60.0, 1, "t1"),
        ("T1", -1, 60.0, 1, "seed -1"),
        ("T1", 1.5, 60.0, 1, "seed 1.5"),
        ("T1", True, 60.0, 1, "seed True"),
        ("T1", 1, 0.0, 1, "seconds 0"),
        ("T1", 1, -3.0, 1, "seconds -3"),
        ("T5", 1, math.nan, 1, "seconds nan"),
        ("T1", 1, math.inf, 1, "seconds inf"),
        ("T1", 1, 1e9, 1, "at most"),
        ("T1", 1, 60.0, 0, "window 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    name: str, seed: int, seconds: float, window: int, word: str
) -> None:
    with pytest.raises(ConfigError, match=word):
        generate(name, seed, seconds, window=window)


def test_devices_that_cannot_be_are_refused() -> None:
    for count, swap in ((0, 0.01), (65, 0.01), (1, math.nan), (1, -0.001), (1, math.inf)):
        with pytest.raises(ConfigError, match=r"groups|swap"):
            generic_groups(count, swap=swap)
    with pytest.raises(ConfigError, match="seconds"):
        check_load(math.nan, 0)


def test_random_loads_differ_and_stay_in_their_ranges() -> None:
    traces = [drawn(seed) for seed in range(28)]
    assert drawn(3) == draw(3)
    assert len({trace.arrivals for trace in traces}) == 28
    assert {len(trace.groups) for trace in traces} == {1, 2, 3, 4}
    assert {len(trace.models) for trace in traces} <= set(range(2, 13))
    models = list(itertools.chain.from_iterable(trace.models for trace in traces))
    assert {model.name.rstrip("0123456789") for model in models} == {
        *("camera", "poisson", "clumps", "bursts", "clients")
    }
    assert all(0.001 <= m.service <= 0.01 and 0.02 <= m.deadline <= 1 for m in models)
    assert all(m.swap is not None and 0.005 <= m.swap <= 0.04 for m in models)
    assert {m.priority for m in models} == {0, 1, 2}
    assert np.mean([m.priority == 0 for m in models]) > 0.7
    assert 0 < sum(any(m.clients for m in trace.models) for trace in traces) < 20
    assert not any(m.clients for seed in range(20) for m in draw(seed, seconds=0.1, clients=False).models)


def test_random_loads_ask_for_less_and_for_more_than_there_is() -> None:
    factors = [factor(drawn(seed)) for seed in (*range(28), 62, 69)]  # the last two need a second try
    assert np.quantile(factors, 0.1) < 0.7
    assert np.quantile(factors, 0.9) > 1.2
    assert min(factors) > 0.25
    assert max(factors) < 2.5
    assert load_factor([0.01, 0.02], [10, 5], [0.1, 0.5], groups=1, swap=0.01) == pytest.approx(0.32)
    assert load_factor([0.01, 0.02], [10, 5], [0.1, 0.5], groups=2, swap=0.01) == pytest.approx(0.1)


def test_random_cameras_have_deadlines_near_their_period() -> None:
    ratios = [
        model.deadline * (times(trace, index).size / trace.seconds)
        for trace in map(drawn, range(20))
        for index, model in enumerate(trace.models)
        if model.name.startswith("camera") and 0.02 < model.deadline < 1
    ]
    assert len(ratios) > 20
    assert min(ratios) > 0.65
    assert max(ratios) < 2.2
