"""Whose turn is due: also where a device is held for others, or goes to another anyway."""

from __future__ import annotations

import math

import pytest

from repertory.actors.policy import Bind, ContextState, Decision, Grant, GroupState, Step, Wait
from repertory.actors.rhythm import Rhythm
from repertory.runtime.plan.arrivals import random_source, renewal
from repertory.runtime.plan.overdue import feasible_turns, overdue
from repertory.runtime.policies.swap_aware import SwapAware

from .hand_made import NOW, context, entry, group
from .loads import a_load, a_model, play

SERVICE, SWAP = 0.01, 0.02


def _group(*contexts: ContextState, turn: float) -> GroupState:
    """Return a group that has held the first one since `turn`, and knows what all cost."""
    first, *others = contexts
    state = group(entry(first, turn, frames=1), *(entry(other) for other in others), residents=first.name)
    for each in state.entries:
        for _ in range(2):  # a single one is not believed
            each.service.add(SERVICE)
        each.swap.add(SWAP)
    return state


def _asking(name: str, hungry: float, left: float, waiting: int = 1) -> ContextState:
    """Return a model that has asked for so long, whose frames have so much time left."""
    model = context(name, waiting, NOW - hungry)
    model.hungry_since = NOW - hungry
    model.glance = lambda: (0, NOW + left)
    model.outline = lambda most: [(0, [NOW + left] * min(most, waiting))]
    return model


def _steady(name: str, period: float, allowance: float) -> ContextState:
    """Return a model that waits for nothing, whose next frame comes in half a period."""
    model = context(name)
    model.rhythm = Rhythm()
    for number in range(8):
        at = NOW - period * (7.5 - number)
        model.rhythm.arrive(at, at + allowance)
    return model


def _said(state: GroupState) -> Decision:
    return SwapAware().decide(state, NOW)


@pytest.mark.parametrize("hungry", [0.5, 0.67, 0.69, 0.9])
def test_no_device_is_held_beyond_what_a_lone_model_waits_at_most(hungry: float) -> None:
    here = _steady("a", 0.03, 0.04)
    here.weight = 1000.0  # worth any wait
    away = _asking("b", hungry, 0.5)
    decision = _said(_group(here, away, turn=NOW - 1))
    if hungry < 0.7 - SWAP:
        assert isinstance(decision, Wait)
        assert NOW < decision.until <= NOW - hungry + 0.7 - SWAP
    else:
        assert isinstance(decision, Bind)
        assert decision.entry.context is away


@pytest.mark.parametrize("overdue", [False, True])
def test_whose_wait_is_over_comes_before_whoever_takes_the_device(overdue: bool) -> None:
    """The resident may keep its turn as long as its swap; if it goes, nobody else is to come before."""
    here = _asking("a", 0.0, 0.5)
    here.weight = 1e-6
    here.kept = 0.5  # so it is not plain that nobody loses
    urgent = _asking("b", 0.05, 0.1, waiting=30)
    urgent.weight = 1000.0
    waits = _asking("c", 0.95 if overdue else 0.2, 0.9)
    decision = _said(_group(here, urgent, waits, turn=NOW - 0.001))
    assert isinstance(decision, Bind)
    assert decision.entry.context is (waits if overdue else urgent)


def test_turns_come_in_the_order_of_what_is_left_of_each_wait() -> None:
    contexts = [_asking(name, hungry, 2.0) for name, hungry in zip("bcd", (0.8, 0.9, 0.7), strict=True)]
    decision = _said(_group(context("a"), *contexts, turn=-math.inf))
    assert isinstance(decision, Bind)
    assert decision.entry.context is contexts[1]


def test_the_first_in_line_goes_when_one_behind_it_would_be_late() -> None:
    """Neither is due by itself, but the second one could not go behind the first one's last moment."""
    first, second = _asking("b", 0.67, 2.0), _asking("c", 0.66, 2.0)
    decision = _said(_group(context("a"), first, second, turn=-math.inf))
    assert isinstance(decision, Bind)
    assert decision.entry.context is first


@pytest.mark.parametrize("hungry", [0.65, 0.9])
def test_who_has_a_device_waits_no_longer_than_others_where_it_is_kept_for_a_foreseen_frame(
    hungry: float,
) -> None:
    here, away = _asking("a", hungry, 0.5, waiting=2), _asking("c", 0.0, 0.5)
    away.kept = 0.5  # so it is not plain that nobody loses
    state = _group(here, away, _steady("b", 0.2, 0.04), turn=NOW - 1)
    other = group(entry(here), entry(away))
    other.plan = (Step(here, NOW, NOW + 1, 2), Step(away, NOW + 1, NOW + 2, 1))  # it means to serve all that
    state.peers = [state, other]
    decision = _said(state)
    if hungry < 0.7:
        assert isinstance(decision, Wait)
        assert NOW < decision.until <= NOW - hungry + 0.7
    else:
        assert isinstance(decision, Grant)
        assert (decision.entry.context, decision.frames) == (here, 1)


@pytest.mark.parametrize(("planned", "frames"), [(0, 1), (1, 1), (2, 2), (9, 2)])
def test_a_turn_begins_with_the_frames_that_it_was_decided_for_as_long_as_its_swap(
    planned: int, frames: int
) -> None:
    here, away = _asking("a", 0.1, 0.5, waiting=9), _asking("b", 0.1, 0.5)
    state = _group(here, away, turn=NOW)
    resident = state.entries[0]
    resident.turn_frames = 0
    state.by_program = {resident.program.key: [resident]}
    state.plan = (Step(here, NOW - SWAP, NOW + 1, planned),)
    decision = _said(state)
    assert isinstance(decision, Grant)
    assert (decision.entry, decision.frames) == (resident, frames)


@pytest.mark.virtual
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("most", [0.7, 1.0])
async def test_who_asks_for_more_turns_than_there_can_be_takes_nobodys(most: float, groups: int) -> None:
    source = random_source(4, 1)
    waits = [most] + [0.2] * (5 * groups)
    models = [a_model(f"m{number}", 0.004, 3.0, max_wait=wait) for number, wait in enumerate(waits)]
    sources = [(model, list(renewal(source, 30, 4.0))) for model in models]
    load = a_load(*sources, groups=groups, swap=0.08, seconds=4.0)
    assert feasible_turns(load)[:2] == [True, False]
    late = overdue(await play(load))
    assert late["m0"] == 0
    assert late["m1"] > 0


@pytest.mark.virtual
@pytest.mark.parametrize("wait", [0.6, 0.7, 0.8, 1.0])
async def test_a_turn_is_no_longer_than_a_frame_where_no_more_is_feasible(wait: float) -> None:
    source = random_source(4, 1)
    models = [a_model(f"m{number}", 0.004, 3.0, max_wait=wait) for number in range(6)]
    load = a_load(*[(model, list(renewal(source, 30, 4.0))) for model in models], swap=0.08, seconds=4.0)
    assert all(feasible_turns(load))
    assert not any(overdue(await play(load)).values())
