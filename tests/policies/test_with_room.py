"""Where there is time enough for all, nobody loses, whoever asks beside him."""

from __future__ import annotations

import math
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from repertory.runtime.plan.arrivals import random_source, renewal
from repertory.runtime.plan.split import time_split
from repertory.transports.simulated import SimulatedDevice
from tests.policies.loads import a_load, a_model, every, kept_by, play, seconds_of

pytestmark = pytest.mark.virtual


def _poisson(rate: float, seconds: float) -> list[float]:
    return list(renewal(random_source(1, 1), rate, seconds))


@pytest.mark.parametrize("priority", [0, 1])
@pytest.mark.parametrize("rate", [50, 65, 70])
async def test_a_camera_leaves_the_time_between_its_frames(rate: float, priority: int) -> None:
    camera = a_model("camera", 0.005, 0.1, priority=priority)
    other = a_model("other", 0.01, 1.0)
    load = a_load((camera, every(0.1, end=6)), (other, _poisson(rate, 6)), swap=0.02, seconds=6.0)
    played = await play(load)
    assert kept_by(played) > 0.99
    (split,) = time_split(played).values()
    assert split.idle_with_work < 0.1


@pytest.mark.parametrize("fps", [4, 2])
async def test_a_camera_is_kept_beside_callers_that_ask_without_end(fps: float) -> None:
    camera, bulk = a_model("camera", 0.005, 0.19), a_model("bulk", 0.01, math.inf, clients=8)
    played = await play(a_load((camera, every(1 / fps, end=4)), (bulk, []), swap=0.02, seconds=4.0))
    assert kept_by(played, 0) == 1
    assert seconds_of(played, "bulk") > 4 * (1 - fps * 2 * 0.025)


@pytest.mark.parametrize("deadline", [1.0, math.inf])
@pytest.mark.parametrize("allowance", [0.03, 0.06])
async def test_a_hot_model_takes_no_group_from_who_needs_it(allowance: float, deadline: float) -> None:
    hot = a_model("hot", 0.02, deadline, clients=8)
    camera = a_model("camera", 0.005, allowance)
    load = a_load((hot, []), (camera, every(0.1, 0.5, 4.0)), groups=2, swap=0.02, seconds=4.0)
    played = await play(load)
    assert kept_by(played, 1, since=2.0) >= 0.9
    assert seconds_of(played, "hot") > 3.9


@pytest.mark.parametrize("by", [0.05, 0.2, 0.4])
async def test_a_deadline_has_a_margin_where_device_times_vary(by: float) -> None:
    dice, service = Random(3), vars(SimulatedDevice)["_service"]

    def varied(device: SimulatedDevice, *args: Any) -> float:
        seconds: float = service(device, *args)
        return seconds * dice.uniform(1 - by, 1 + by)

    urgent, bulk = a_model("urgent", 0.005, 0.19), a_model("bulk", 0.01, math.inf, clients=8)
    load = a_load((urgent, every(0.25, 0.05, 6)), (bulk, []), swap=0.02, seconds=6.0)
    with patch.object(SimulatedDevice, "_service", varied):
        played = await play(load)
    assert kept_by(played, 0) >= (1 if by < 0.1 else 0.9)
    assert seconds_of(played, "bulk") > 6 * 0.75


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("deadline", [0.5, 0.8, math.inf])
async def test_who_is_rare_and_in_a_hurry_is_kept_beside_who_can_wait(deadline: float, groups: int) -> None:
    hot = a_model("hot", 0.01, deadline, clients=12)
    rare = a_model("rare", 0.005, 0.06), _poisson(2, 10)
    played = await play(a_load((hot, []), rare, groups=groups, swap=0.02, seconds=10.0))
    assert kept_by(played, 1) > 0.9
    assert seconds_of(played, "hot") > 8.5 * groups


@pytest.mark.parametrize("gap", [0.5, 5.0])
async def test_a_group_that_is_held_for_who_may_come_at_any_time_asks_seldom(gap: float) -> None:
    source = random_source(3, 1)
    sources = [(a_model(name, 0.003, 0.012), list(renewal(source, 1 / gap, 20.0))) for name in ("a", "b")]
    load = a_load(*sources, swap=0.02, seconds=20.0)
    played = await play(load)
    assert played.decisions < 20 / 0.05 + 10 * len(load.arrivals)
