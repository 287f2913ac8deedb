"""The ring of mxa-manager: as a function of the state, and on a device."""

from __future__ import annotations

import math
from typing import Any

import pytest

from repertory.actors.policy import GroupState
from repertory.models.errors import ConfigError
from repertory.runtime.policies.mxa_manager import MxaManager

from .hand_made import NOW, among, context, entry, group, said, two_groups
from .played import played

NEVER = ("wait", "", math.inf)
IDLE = 0.25


def _ring(
    frames: int, a: int, *, since: float = NOW, served: float = -math.inf, progress: float = -math.inf
) -> GroupState:
    """Return a group of three, in the turn of `a`: frames it started, and frames that wait for it."""
    entries = [
        entry(context("a", a), since, frames, served=served),
        entry(context("b"), 1),
        entry(context("c")),
    ]
    state = group(*entries, residents="a")
    state.progress = progress
    return state


@pytest.mark.parametrize(
    ("state", "decision"),
    [
        (group(), NEVER),
        (group(entry(context("a")), entry(context("b", 9))), ("bind", "a", "")),
        (_ring(0, 9), ("grant", "a", 4)),
        (_ring(3, 9), ("grant", "a", 1)),
        (_ring(3, 0), ("wait", "", NOW + IDLE)),
        (_ring(4, 9), ("bind", "b", "a")),
        (_ring(0, 9, since=NOW - 1), ("grant", "a", 4)),
        (_ring(3, 0, since=NOW - IDLE), ("bind", "b", "a")),
        (_ring(3, 0, since=NOW - 1, served=NOW - 0.2), ("wait", "", NOW - 0.2 + IDLE)),
        (_ring(3, 0, since=NOW - 1, served=NOW - 0.5, progress=NOW - 0.1), ("wait", "", NOW - 0.1 + IDLE)),
        (group(entry(context("a", 99), 5, 50), residents="a"), ("grant", "a", 99)),
        (group(entry(context("a"), 5, 50), residents="a"), ("bind", "a", "a")),
        (group(entry(context("a"), 5), entry(context("b"), 6)), ("bind", "a", "")),
    ],
    ids=[
        "nobody",
        "first of the ring, ready or not",
        "whole turn",
        "rest of a turn",
        "time to come",
        "over by frames",
        "late, not idle",
        "over by time",
        "idle since the last start",
        "idle since the last completion",
        "alone, no limit",
        "alone and idle, bound again",
        "not resident any more",
    ],
)
def test_how_a_turn_goes(state: GroupState, decision: tuple[str, str, object]) -> None:
    assert said(MxaManager(4, IDLE), state) == decision


def test_idle_time_begins_with_the_last_completion() -> None:
    state = _ring(3, 0, since=NOW - 1)
    state.in_flight = 1
    assert said(MxaManager(4, IDLE), state) == ("wait", "", NOW + IDLE)


def test_no_time_limit_lets_a_stalled_client_hold_the_device() -> None:
    assert said(MxaManager(4, 0), _ring(3, 0, since=1.5)) == NEVER


def test_every_group_has_a_ring_of_all_unless_they_are_spread() -> None:
    first, second = two_groups(*(context(name) for name in "abc"))
    second.entries[0].turn_since = 3.0
    assert said(MxaManager(), first) == ("bind", "a", "")
    assert said(MxaManager(), second) == ("bind", "b", "")
    second.entries[0].turn_since = -math.inf
    first.entries[0].turn_since = 3.0
    spread = MxaManager(spread=True)
    assert said(spread, first) == ("bind", "c", "")
    assert said(spread, second) == ("bind", "b", "")
    del second.entries[1]
    first.entries[0].turn_since = -math.inf
    first.entries[2].turn_since = 3.0
    assert said(spread, second) == NEVER
    among(second)
    assert said(spread, second) == ("bind", "a", "")


def test_pinned_program_is_not_bound_again() -> None:
    state = group(
        entry(context("a", 9), 1), entry(context("b"), 5, 9), residents="ab", pinned="a", capacity=2
    )
    assert said(MxaManager(4), state) == ("turn", "a", 4)
    state.entries[0].context.waiting = 0
    state.entries[1].turn_since = NOW - 1
    assert said(MxaManager(4), state) == ("bind", "b", "b")
    alone = group(entry(context("a"), 1), entry(context("b", 9)), residents="a", pinned="a")
    assert said(MxaManager(4), alone) == NEVER


def test_networks_of_one_program_share_its_turn() -> None:
    first, second = entry(context("a", 9), 5, 3, program="p"), entry(context("b", 9), 1, 4, program="p")
    state = group(first, second, entry(context("c"), 2, 4), residents="p")
    assert said(MxaManager(4), state) == ("grant", "a", 1)
    first.context.waiting = 0
    assert said(MxaManager(4), state) == ("turn", "b", 1)
    second.turn_since, second.turn_frames = 6.0, 1
    assert said(MxaManager(4), state) == ("bind", "c", "p")


@pytest.mark.parametrize(
    "limits",
    [
        {"frame_limit": 0},
        {"frame_limit": 2.5},
        {"time_limit": -1},
        {"time_limit": 1e-6},
        {"time_limit": math.nan},
        {"time_limit": math.inf},
    ],
)
def test_wrong_limits_are_named(limits: dict[str, Any]) -> None:
    (name,) = limits
    with pytest.raises(ConfigError, match=f"mxa-manager: a {name} of"):
        MxaManager(**limits)


@pytest.mark.virtual
async def test_idle_models_cost_a_swap_and_their_time_in_every_round() -> None:
    story = await played(MxaManager(2, 0.1), "a0 a0 a0 b0", models="abc", seconds=0.45)
    assert story == "A a a B b C A a B"


@pytest.mark.virtual
async def test_the_same_program_is_bound_again() -> None:
    assert await played(MxaManager(2, 0.1), "a0 a0 a0", models="a", seconds=0.25) == "A a a a A A"
