"""Priority among models: who is of a higher class goes first, and a lower one still has its turns."""

from __future__ import annotations

import math

import msgspec
import pytest

from repertory.runtime.plan.arrivals import random_source, renewal
from repertory.runtime.plan.runner import Played
from repertory.runtime.plan.trace import Trace
from repertory.runtime.plan.waits import longest_waits
from tests.policies.loads import a_load, a_model, every, kept_by, play, seconds_of

pytestmark = pytest.mark.virtual


def _slowest(played: Played, model: int) -> float:
    """Return the longest time to an answer."""
    return max(each.end - each.arrival for each in played.requests if each.model == model)


def _with_residents(load: Trace, residents: int) -> Trace:
    groups = [
        msgspec.structs.replace(group, address=f"{group.address}&residents={residents}")
        for group in load.groups
    ]
    return msgspec.structs.replace(load, groups=tuple(groups))


@pytest.mark.parametrize("deadline", [0.5, math.inf])
@pytest.mark.parametrize("priorities", [(5, -5), (1, 0)])
async def test_a_higher_class_waits_for_a_few_swaps_at_most(
    priorities: tuple[int, int], deadline: float
) -> None:
    urgent = a_model("urgent", 0.005, deadline, priority=priorities[0])
    bulk = a_model("bulk", 0.01, math.inf, priority=priorities[1], clients=8)
    played = await play(a_load((urgent, every(0.25, 0.1)), (bulk, []), swap=0.02))
    assert _slowest(played, 0) <= 4 * 0.02 + 0.01 + 0.02 + 0.005 + 0.001
    assert seconds_of(played, "bulk") > 1.5


async def test_where_all_are_resident_a_lower_class_has_what_the_higher_one_leaves() -> None:
    urgent = a_model("urgent", 0.01, math.inf, priority=5)
    batch = [(a_model(name, 0.01, math.inf, priority=-5, clients=4), ()) for name in "abc"]
    load = a_load((urgent, renewal(random_source(1, 1), 60, 3.0)), *batch, seconds=3.0)
    played = await play(_with_residents(load, 4))
    assert _slowest(played, 0) < 0.15
    assert sum(seconds_of(played, each) for each in ("urgent", *"abc")) > 2.9


async def test_where_all_are_resident_a_lower_class_has_its_turns() -> None:
    urgent = a_model("urgent", 0.01, math.inf, priority=5, clients=8)
    batch = a_model("batch", 0.01, math.inf, clients=1, max_wait=0.3)
    played = await play(_with_residents(a_load((urgent, []), (batch, [])), 2))
    assert longest_waits(played)["batch"] <= 0.3
    assert seconds_of(played, "urgent") > 10 * seconds_of(played, "batch")


async def test_a_group_is_kept_for_who_is_urgent_and_could_not_wait_for_a_swap() -> None:
    urgent = a_model("urgent", 0.005, 0.015, priority=1)
    bulk = a_model("bulk", 0.01, math.inf, clients=8)
    times = renewal(random_source(2, 1), 20, 4.0)
    load = a_load((bulk, []), (urgent, times), groups=2, swap=0.02, seconds=4.0)
    played = await play(load)
    assert kept_by(played, 1, since=0.5) > 0.5
    assert seconds_of(played, "bulk") > 4
