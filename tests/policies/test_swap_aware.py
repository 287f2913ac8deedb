"""The default policy where it is plain what is right: small loads, through the whole runtime."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial

import anyio
import msgspec
import pytest

from repertory.models.errors import RepertoryError
from repertory.runtime.model import Model
from repertory.runtime.plan.generators import generate
from repertory.runtime.plan.split import time_split
from repertory.runtime.plan.waits import longest_waits
from repertory.runtime.policies.swap_aware import SwapAware
from repertory.transports.frame import Fate as FrameFate
from repertory.transports.simulated import SimulatedDevice, SimulatedOptions
from tests.policies.loads import a_load, a_model, every, kept_by, play, seconds_of, swaps_of
from tests.runtime.support import Memory, Pending, lost, open_virtual, sketched, tensor

pytestmark = pytest.mark.virtual


async def test_a_model_alone_is_swapped_in_once() -> None:
    camera = every(1 / 60)
    played = await play(a_load((a_model("a"), sorted([*camera, 0.5, 0.5001, 0.5002]))))
    assert kept_by(played) == 1
    assert swaps_of(played) == ["a"]


async def test_cameras_that_fit_lose_no_frame() -> None:
    a, b = (a_model("a"), every(1 / 30)), (a_model("b"), every(1 / 30, 0.011))
    assert kept_by(await play(a_load(a, b))) == 1
    apart = await play(a_load(a, b, groups=2))
    assert kept_by(apart) == 1
    assert sorted(swaps_of(apart)) == ["a", "b"]


async def test_models_that_nobody_asks_for_cost_nothing() -> None:
    idle = [(a_model(name), [0.0]) for name in "bcd"]
    played = await play(a_load((a_model("a", deadline=0.5), every(0.004)), *idle))
    assert kept_by(played) == 1
    assert sorted(swaps_of(played, since=0.2)) in ([], ["a"])


async def test_an_urgent_camera_in_bulk_keeps_its_frames_and_leaves_most_of_the_time() -> None:
    played = await play(generate("T6", 7, 3.0))
    assert kept_by(played, 0, since=0.5) >= 0.98
    assert kept_by(played) >= 0.6


@pytest.mark.parametrize("weights", [(1.0, 3.0), (1.0, 1.0)])
async def test_models_that_ask_without_end_share_by_weight(weights: tuple[float, float]) -> None:
    models = [
        a_model(name, deadline=math.inf, weight=weight, clients=8, max_wait=0.5)
        for name, weight in zip("ab", weights, strict=True)
    ]
    none: list[float] = []
    played = await play(a_load(*((model, none) for model in models), seconds=3.0))
    a, b = (seconds_of(played, name) / weight for name, weight in zip("ab", weights, strict=True))
    assert b == pytest.approx(a, rel=0.15)


async def test_a_higher_class_goes_first_and_a_lower_one_is_not_starved() -> None:
    high = a_model("high", deadline=0.1, priority=2, clients=8)
    low = a_model("low", deadline=0.3, max_wait=0.5)
    played = await play(a_load((high, []), (low, every(0.02)), seconds=2.0))
    assert seconds_of(played, "high") > 4 * seconds_of(played, "low")
    assert longest_waits(played)["low"] <= 0.5
    assert kept_by(played, 0) >= 0.75


async def test_a_hot_model_gets_a_second_group() -> None:
    hot, cold = (a_model("hot"), every(0.002, end=1.5)), (a_model("cold"), [0.0, 0.01])
    played = await play(a_load(hot, cold, groups=2, seconds=1.5))
    assert kept_by(played, 0, since=0.5) >= 0.97
    assert swaps_of(played, since=0.5) == []


@pytest.mark.parametrize("deadline", [0.2, 2.0, math.inf])
@pytest.mark.parametrize(("groups", "clients"), [(2, 2), (3, 8)])
async def test_callers_of_one_model_keep_every_idle_group_busy(
    groups: int, clients: int, deadline: float
) -> None:
    """Though one group alone would answer them all in time; soon, not at once."""
    load = a_load((a_model("a", 0.01, deadline, clients=clients), []), groups=groups, seconds=3.0)
    played = await play(load)
    assert swaps_of(played) == ["a"] * groups
    assert seconds_of(played, "a") > 0.7 * 3.0 * groups


async def test_groups_that_are_busy_do_not_swap_for_what_another_answers_in_time() -> None:
    busy = [(a_model(name), every(0.004)) for name in "ab"]
    clumps = [at for begin in every(0.1, 0.03) for at in [begin] * 8]
    played = await play(a_load(*busy, (a_model("c", deadline=0.2), clumps), groups=3))
    assert kept_by(played, since=0.5) == 1
    assert swaps_of(played, since=0.5) == []


async def test_a_backlog_that_is_worth_no_swap_stays_on_one_group() -> None:
    bursts = [at for begin in every(0.04) for at in [begin] * 5]
    played = await play(a_load((a_model("a", deadline=0.2), bursts), groups=3, swap=0.04))
    assert kept_by(played) == 1
    assert swaps_of(played) == ["a"]


async def test_a_cold_model_takes_the_group_whose_resident_is_missed_least() -> None:
    cameras = [(a_model(name, deadline=0.05), every(0.03, shift)) for name, shift in (("a", 0), ("b", 0.01))]
    rare, cold = (a_model("rare"), [0.0]), (a_model("cold"), [1.0])
    played = await play(a_load(*cameras, rare, cold, groups=3))
    assert kept_by(played) == 1
    assert swaps_of(played, since=0.5) == ["cold"]


async def test_a_sick_group_drains_to_the_others() -> None:
    first, second = Memory("first", holding=True), Memory("second", holding=True)
    async with open_virtual(first, second, policy=SwapAware()) as rt:
        model = await rt.load(sketched("a"))
        callers = [Pending(model, number) for number in range(20)]
        async with anyio.create_task_group() as tasks:
            for each in callers:
                tasks.start_soon(each)
            await anyio.sleep(0.1)
            sick, well = (first, second) if first.device.held else (second, first)
            assert sick.device.held
            sick.open_errors += [lost()] * 100
            well.let_go()
            sick.device.fail(lost(), FrameFate.UNDONE)
        assert all(each.answered_by("a") for each in callers)


@pytest.mark.parametrize(("gap", "spilled"), [(0.02, False), (0.0015, True)])
async def test_a_slower_group_is_used_only_where_the_fast_one_is_too_busy(
    gap: float, *, spilled: bool
) -> None:
    groups = "sim://0?window=1&service_ms=2&swap_ms=10", "sim://1?window=1&service_ms=12&swap_ms=10"
    async with open_virtual(*groups, policy=SwapAware(), spans=9999) as rt:
        model = await rt.load(sketched("a"))
        answered: list[bool] = []

        async def ask(at: float) -> None:
            await anyio.sleep_until(at)
            try:
                await model.infer(tensor(1), timeout=0.1)
                answered.append(True)
            except RepertoryError:
                answered.append(False)

        async with anyio.create_task_group() as tasks:
            for at in every(gap, anyio.current_time(), anyio.current_time() + 1.5):
                tasks.start_soon(ask, at)
        slow = [span for span in rt.timeline().get(groups[1], []) if span.kind == "compute"]
        assert (len(slow) > 20) == spilled
        assert spilled or all(answered)
        assert answered.count(True) >= 0.8 * len(answered)


async def test_frames_that_take_a_hundred_times_as_long_are_got_over() -> None:
    options = SimulatedOptions(service_ms=1, swap_ms=5, window=1)
    kept: dict[str, list[float]] = {"a": [], "b": []}

    async def ask(model: Model, at: float) -> None:
        await anyio.sleep_until(start + at)
        with suppress(RepertoryError):
            await model.infer(tensor(1), timeout=0.5)
            kept[model.name].append(at)

    async with open_virtual(partial(SimulatedDevice, options=options), policy=SwapAware()) as rt:
        models = [await rt.load(sketched(name)) for name in kept]
        start = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for shift, model in enumerate(models):
                for at in every(0.025, 0.01 * shift, 6.0):
                    tasks.start_soon(ask, model, at)
            for at, service in (1.0, 100.0), (3.0, 1.0):
                await anyio.sleep_until(start + at)
                msgspec.structs.force_setattr(options, "service_ms", service)
        for model in models:
            times = kept[model.name]
            assert len([at for at in times if at < 0.9]) == 36
            assert len([at for at in times if 1.0 <= at < 3.0]) >= 4
            assert len([at for at in times if at >= 4.0]) == 80
            assert rt.statistics().models[model.name].longest_wait <= 1.0


async def test_a_clock_of_coarse_ticks() -> None:
    """All moments fall on ticks of 10 ms, so many of them together."""
    a = a_model("a", 0.01, 0.1), every(0.04)
    b = a_model("b", 0.01, 0.2), every(0.04)
    c = a_model("c", 0.01, 0.3), [each for at in every(0.2) for each in [at] * 4]
    played = await play(a_load(a, b, c, swap=0.01))
    assert kept_by(played) >= 0.95


async def test_no_cost_of_a_swap_and_none_of_a_frame() -> None:
    free = [(a_model(name, 0.0, 0.05), every(0.01)) for name in "abc"]
    assert kept_by(await play(a_load(*free, swap=0.0, seconds=1.0))) == 1


async def test_a_camera_whose_frames_are_left_out_is_still_foreseen_and_forgotten_when_it_stops() -> None:
    """Its deadline is shorter than a swap and a frame: it must be resident when its frame comes."""
    frames = [at for number, at in enumerate(every(1 / 30, end=3.0)) if number % 7 not in (3, 4)]
    camera = a_model("camera", 0.003, 0.0105), frames
    bulk = a_model("bulk", 0.003, 1.0), every(0.01, end=5.0)
    played = await play(a_load(camera, bulk, seconds=5.0))
    assert kept_by(played, 0, since=0.5) >= 0.97
    assert kept_by(played, 1) == 1
    assert len(swaps_of(played, since=3.2)) <= 1
    (split,) = time_split(played).values()
    assert split.idle_with_work < 0.2
