"""Priority among models: who is of a higher class goes first, and a lower one still has its turns."""

from __future__ import annotations

import math

import msgspec
import pytest

from repertory.runtime.plan.arrivals import random_source, renewal
from repertory.runtime.plan.runner import Played
from repertory.runtime.plan.trace import Trace
from repertory.runtime.plan.waits import longest_waits
from tests.policies.loads import a_load, a_model, every, kept_by, play, seconds_of, swaps_of

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


@pytest.mark.parametrize("since", [0.0, 1.0])
async def test_a_group_is_kept_for_who_is_urgent_and_could_not_wait_for_a_swap(since: float) -> None:
    """Or is got for him, if he asks only when all are taken."""
    urgent = a_model("urgent", 0.005, 0.015, priority=1)
    bulk = a_model("bulk", 0.01, math.inf, clients=8)
    times = [since + at for at in renewal(random_source(2, 1), 20, 4.0 - since)]
    load = a_load((urgent, times), (bulk, []), groups=2, swap=0.02, seconds=4.0)
    played = await play(load)
    assert kept_by(played, 0, since=since + 0.5) > 0.5
    assert seconds_of(played, "bulk") > 4


async def test_who_is_urgent_and_was_got_a_group_keeps_it_while_he_may_come_at_any_time() -> None:
    """The others share the other one: nobody swaps ahead of him again and again."""
    urgent = a_model("urgent", 0.003, 0.012, priority=2)
    others = [a_model(name, 0.005, 1.0) for name in ("b", "c")]
    source = random_source(1, 1)
    loads = [
        (model, list(renewal(source, rate, 5.0)))
        for model, rate in zip([urgent, *others], (10, 40, 40), strict=True)
    ]
    played = await play(a_load(*loads, groups=2, swap=0.02, seconds=5.0))
    assert kept_by(played, 0) > 0.85
    assert kept_by(played, 1, 2) == 1
    assert swaps_of(played).count("urgent") < 10


async def test_no_group_leaves_who_is_urgent_to_what_the_others_mean_to_do_later() -> None:
    urgent = a_model("urgent", 0.003, 0.039, priority=1)
    tight, slower = a_model("tight", 0.003, 0.021), a_model("slower", 0.008, 0.039)
    roomy = a_model("roomy", 0.008, 0.211)
    times = every(0.0207), every(0.0229), every(0.0397), every(0.111)
    load = a_load(*zip((urgent, tight, slower, roomy), times, strict=True), groups=3, swap=0.0376)
    assert kept_by(await play(load), 0) > 0.9


@pytest.mark.parametrize("order", [1, -1])
async def test_of_several_higher_classes_the_highest_comes_first_however_they_were_loaded(order: int) -> None:
    bulk = a_model("bulk", 0.01, math.inf, clients=8)
    trickles = [
        (a_model(f"class {n}", 0.005, math.inf, priority=n), renewal(random_source(1, n), 4, 6.0))
        for n in (1, 2, 3, 4, 5, 6)
    ]
    played = await play(a_load((bulk, []), *trickles[::order], swap=0.02, seconds=6.0))
    names = [model.name for model in played.trace.models]
    waits = {
        name: sorted(each.end - each.arrival for each in played.requests if each.model == number)
        for number, name in enumerate(names)
    }
    lowest, highest = waits["class 1"], waits["class 6"]
    assert highest[len(highest) // 2] < lowest[len(lowest) // 2]
    assert highest[-1] < lowest[-1]


@pytest.mark.parametrize("deadline", [1.0, math.inf])
async def test_where_all_are_resident_a_lower_class_is_in_time(deadline: float) -> None:
    urgent = a_model("urgent", 0.01, deadline, priority=1, clients=4)
    lower = a_model("lower", 0.005, 0.05), every(0.1, 0.5)
    played = await play(_with_residents(a_load((urgent, []), lower), 2))
    assert kept_by(played, 1) == 1
    assert seconds_of(played, "urgent") > 1.85
