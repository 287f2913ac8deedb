"""The oldest request first: as a function of the state, and on a device."""

from __future__ import annotations

import math

import pytest

from repertory.actors.policy import GroupState, Step
from repertory.runtime.policies.fifo import Fifo

from .hand_made import NOW, among, context, entry, group, said, two_groups
from .played import played

NEVER = ("wait", "", math.inf)


@pytest.mark.parametrize(
    ("state", "decision"),
    [
        (group(), NEVER),
        (group(entry(context("a")), residents="a"), NEVER),
        (group(entry(context("a", 2, 3, 4)), entry(context("b", 1, 2)), residents="a"), ("bind", "b", "a")),
        (group(entry(context("a", 2, 1, 4)), entry(context("b", 1, 2)), residents="a"), ("turn", "a", 1)),
        (group(entry(context("a", 2)), entry(context("b", 1, 2)), residents="b"), ("bind", "a", "b")),
        (
            group(entry(context("a", 1, 3)), entry(context("b", 1, 2)), residents="a", pinned="a"),
            ("turn", "a", 1),
        ),
        (group(entry(context("a")), entry(context("b", 1, 2)), residents="a", pinned="a"), NEVER),
        (
            group(
                entry(context("a", 2, 1, 3), granted=1), entry(context("b", 1, 2)), residents="ab", capacity=2
            ),
            ("turn", "b", 1),
        ),
        (
            group(
                entry(context("a", 2, 1, 3), granted=1), entry(context("b", 1, 4)), residents="ab", capacity=2
            ),
            NEVER,
        ),
    ],
    ids=[
        "nothing",
        "idle",
        "older elsewhere",
        "older here",
        "no arrivals told",
        "no place for the oldest",
        "no place",
        "the next beside a grant",
        "the next is behind the grant",
    ],
)
def test_who_came_first(state: GroupState, decision: tuple[str, str, object]) -> None:
    assert said(Fifo(), state) == decision


def test_what_another_group_is_about_to_take_is_passed_over() -> None:
    first, second = two_groups(context("a", 2, 1, 3), context("b", 1, 2), residents=("a", ""))
    first.plan = (Step(first.entries[0].context, NOW, NOW, 1),)
    assert said(Fifo(), second) == ("bind", "b", "")
    first.in_service = False
    assert said(Fifo(), second) == ("bind", "a", "")
    first.plan = ()
    first.entries[0].granted = 2
    second.entries[1].context.waiting = 0
    assert said(Fifo(), second) == NEVER
    among(second)
    assert said(Fifo(), second) == ("bind", "a", "")


@pytest.mark.virtual
async def test_every_request_of_another_model_costs_a_swap() -> None:
    assert await played(Fifo(), "a0 b1 a2 a3 b4") == "A a B b A a a B b"


@pytest.mark.virtual
async def test_groups_share_the_line() -> None:
    story = await played(Fifo(), "a0 b1 a20 b21", devices=2)
    assert sorted(story.split(" | ")) == ["A a a", "B b b"]  # whichever is the first to be told
