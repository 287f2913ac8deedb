"""The rules of HailoRT's scheduler: as a function of the state, and on a device."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from repertory.actors.policy import GroupState
from repertory.models.errors import ConfigError
from repertory.runtime.policies.hailort import QUEUE, HailoModel, HailoRt

from .hand_made import NOW, among, context, entry, group, said, two_groups
from .played import played

NEVER = ("wait", "", math.inf)
BURST = 4


def _a_and_b(frames: int, a: int, b: int, *, urgent: int = 0, b_urgent: int = 0) -> GroupState:
    """Return a group where `a` is active, has sent so many frames, and so many wait for each."""
    first, second = context("a", a, priority=urgent), context("b", b, priority=b_urgent)
    return group(entry(first, 5, frames), entry(second, 1), residents="a")


@pytest.mark.parametrize(
    ("state", "decision"),
    [
        (group(), NEVER),
        (_a_and_b(0, 0, 0), NEVER),
        (_a_and_b(1, 9, 1), ("grant", "a", 3)),
        (_a_and_b(1, 2, 1), ("grant", "a", 2)),
        (_a_and_b(1, 0, 1), ("bind", "b", "a")),
        (_a_and_b(4, 9, 1), ("bind", "b", "a")),
        (_a_and_b(4, 9, 0), ("grant", "a", 9)),
        (_a_and_b(4, 9, 1, urgent=1), ("grant", "a", 1)),
        (_a_and_b(1, 9, 1, b_urgent=1), ("grant", "a", 3)),
        (_a_and_b(4, 9, 1, b_urgent=1), ("bind", "b", "a")),
    ],
    ids=[
        "nothing",
        "idle",
        "burst not spent",
        "what waits",
        "nothing left",
        "burst spent",
        "nobody else",
        "only a lower one",
        "a higher one waits for the burst",
        "a higher one",
    ],
)
def test_who_is_active_sends_until_it_should_stop(
    state: GroupState, decision: tuple[str, str, object]
) -> None:
    assert said(HailoRt(burst=BURST), state) == decision


def test_model_that_is_active_on_another_device_stops_nobody() -> None:
    first, second = two_groups(context("a", 9), context("b", 9), residents=("a", "b"))
    first.entries[0].turn_since, first.entries[0].turn_frames = 5.0, BURST
    second.entries[1].turn_since = 4.0
    assert said(HailoRt(burst=BURST), first) == ("grant", "a", 1)
    second.residents.clear()
    assert said(HailoRt(burst=BURST), first) == ("bind", "b", "a")
    second.binding = second.entries[1]
    assert said(HailoRt(burst=BURST), first) == ("grant", "a", 1)


def test_round_goes_on_after_the_last_turn_on_any_device() -> None:
    contexts = [context(name, 1) for name in "abc"]
    first, second = two_groups(*contexts)
    assert said(HailoRt(), first) == ("bind", "a", "")
    second.entries[0].turn_since = 3.0
    assert said(HailoRt(), first) == ("bind", "b", "")
    second.binding, second.bind_began = second.entries[1], 2.0
    assert said(HailoRt(), first) == ("bind", "c", "")
    contexts[2].waiting = 0
    assert said(HailoRt(), first) == ("bind", "a", "")
    among(first)
    assert said(HailoRt(), first) == ("bind", "a", "")


def test_higher_priorities_go_first_and_each_has_its_own_round() -> None:
    contexts = [context("a", 1), context("b", 1, priority=1), context("c", 1, priority=1), context("d", 1)]
    state = group(*(entry(each, turn) for each, turn in zip(contexts, (7, 5, 4, 1), strict=True)))
    assert said(HailoRt(), state) == ("bind", "c", "")
    contexts[2].waiting = contexts[1].waiting = 0
    assert said(HailoRt(), state) == ("bind", "d", "")
    assert said(HailoRt(models={"a": HailoModel(priority=9)}), state) == ("bind", "a", "")


@pytest.mark.parametrize(
    ("policy", "waiting", "lost", "decision"),
    [
        (HailoRt(3, 0.0), 1, NOW, "bind"),
        (HailoRt(3, 0.5), 3, NOW, "bind"),
        (HailoRt(3, 0.5), 2, NOW - 0.5, "bind"),
        (HailoRt(3, 0.5), 2, NOW - 0.4, "grant"),
        (HailoRt(3, 0.5), 2, -math.inf, "bind"),
        (HailoRt(3, math.inf), 2, -math.inf, "grant"),
        (HailoRt(3, 0.5, models={"b": HailoModel(threshold=2)}), 2, NOW, "bind"),
        (HailoRt(3, 0.5, models={"b": HailoModel(timeout=0.1)}), 2, NOW - 0.1, "bind"),
    ],
)
def test_threshold_or_timeout_makes_ready(policy: HailoRt, waiting: int, lost: float, decision: str) -> None:
    active = entry(context("a", 9), 5, QUEUE)
    state = group(active, entry(context("b", waiting), 1, lost=lost), residents="a")
    assert said(policy, state)[0] == decision


def test_device_with_nothing_else_to_do_ignores_the_threshold() -> None:
    state = group(entry(context("a"), 5), entry(context("b", 2), 1, lost=NOW - 0.4995), residents="a")
    assert said(HailoRt(3, 0.5), state) == ("bind", "b", "a")
    assert said(HailoRt(3, 0.5, idle_optimisation=False), state) == ("wait", "", pytest.approx(NOW + 0.0005))
    assert said(HailoRt(3, 9.0, idle_optimisation=False), state) == ("wait", "", pytest.approx(NOW + 0.001))
    state.entries[1].lost = -math.inf
    stranded = HailoRt(3, math.inf, idle_optimisation=False)
    assert said(stranded, state) == ("wait", "", pytest.approx(NOW + 0.001))
    state.entries.append(entry(context("c", 3), 0))
    assert said(HailoRt(3, math.inf), state) == ("bind", "c", "a")


def test_active_model_below_its_threshold_waits_its_turn() -> None:
    state = group(entry(context("a", 2), 5, 1, lost=NOW), entry(context("b", 3), 1), residents="a")
    assert said(HailoRt(3, 0.5), state) == ("bind", "b", "a")
    state.entries[1].context.waiting = 0
    assert said(HailoRt(3, 0.5), state) == ("turn", "a", 2)


def test_beside_what_is_pinned_only_what_fits_is_activated() -> None:
    pinned = group(entry(context("a")), entry(context("b", 1)), residents="a", pinned="a")
    assert said(HailoRt(), pinned) == NEVER
    wide = group(
        entry(context("a", 9), 5, granted=3),
        entry(context("b", 9), 6),
        entry(context("c", 1), 1),
        residents="ab",
        capacity=2,
    )
    assert said(HailoRt(burst=BURST), wide) == ("grant", "b", BURST)
    wide.entries[1].turn_frames = BURST
    assert said(HailoRt(burst=BURST), wide) == ("bind", "c", "b")
    wide.entries[1].granted = 1
    assert said(HailoRt(burst=BURST), wide) == NEVER


def test_networks_of_one_program_take_turns_without_a_swap() -> None:
    state = group(
        entry(context("a", 9), 5, BURST, program="p"), entry(context("b", 9), 1, program="p"), residents="p"
    )
    assert said(HailoRt(burst=BURST), state) == ("turn", "b", BURST)
    state.entries[1].turn_since, state.entries[1].turn_frames = 6.0, 1
    assert said(HailoRt(burst=BURST), state) == ("grant", "b", BURST - 1)


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": -1},
        {"threshold": 1.5},
        {"timeout": -0.1},
        {"timeout": math.nan},
        {"burst": 0},
        {"models": {"a": HailoModel(burst=0)}},
        {"models": {"a": HailoModel(priority=cast("int", "high"))}},
    ],
)
def test_wrong_parameters_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"hailort: a (threshold|timeout|burst|priority) of"):
        HailoRt(**options)


@pytest.mark.virtual
async def test_bursts_and_drains_on_a_device() -> None:
    story = await played(HailoRt(burst=2), "a0 a0 a0 a0 b1 a14 a100")
    assert story == "A a a B b A a a a a"


def test_frames_that_a_model_was_activated_with_are_sent_whatever_the_threshold() -> None:
    state = group(entry(context("a", 2, 4, 6), 5, 1), entry(context("b", 9), 1), residents="a")
    assert said(HailoRt(3, burst=BURST), state) == ("grant", "a", 1)
    state.entries[0].turn_frames = BURST
    assert said(HailoRt(3, burst=BURST), state) == ("bind", "b", "a")
    untold = group(entry(context("a", 2), 5), entry(context("b", 9), 1), residents="a")
    assert said(HailoRt(3, burst=BURST), untold) == ("grant", "a", 2)


@pytest.mark.virtual
async def test_models_below_their_thresholds_do_not_only_swap() -> None:
    assert await played(HailoRt(threshold=3), "a0 b0 a0 b1") == "A a a B b b"


@pytest.mark.virtual
async def test_lower_priority_starves() -> None:
    policy = HailoRt(burst=1, models={"b": HailoModel(priority=1)})
    assert await played(policy, "a0 b0 b1 b2 a3 b16") == "B b b b b A a a"


@pytest.mark.virtual
async def test_timeout_counts_from_the_loss_of_a_device_with_frames_waiting() -> None:
    policy = HailoRt(threshold=2, timeout=0.05, burst=1)
    assert await played(policy, "b0 b0 a1 a1 a1 a1") == "B b A a a a a B b"
