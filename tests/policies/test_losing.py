"""Where requests were lost lately, or come in a rhythm, the default policy looks ahead."""

from __future__ import annotations

import pytest

from repertory.actors.policy import KEPT, ContextState, GroupState
from repertory.runtime.policies.swap_aware import SwapAware

from .hand_made import NOW, context, entry, group

SERVICE, SWAP = 0.01, 0.02
AWAY = 0.5


def _two(here: float, away: float) -> GroupState:
    """Return a group that holds `a`, which waits as `b` does: with so much time each."""
    state = group(*(entry(context(name, 1, NOW)) for name in "ab"), residents="a")
    for each, left in zip(state.entries, (here, away), strict=True):
        for _ in range(2):  # a single one is not believed
            each.service.add(SERVICE)
        each.swap.add(SWAP)
        each.served = each.turn_since = NOW - 1
        each.turn_frames = 1
        each.context.hungry_since = NOW
        each.context.rhythm.allowance = left
        _wait_until(each.context, NOW + left)
    state.peers = [state]
    return state


def _wait_until(context: ContextState, deadline: float) -> None:
    context.glance = lambda: (0, deadline)
    context.outline = lambda _most: [(0, [deadline])]


def _why(state: GroupState) -> str:
    return SwapAware().decide(state, NOW).reason


@pytest.mark.parametrize("loser", [0, 1])
def test_it_is_not_plain_that_nobody_loses_where_somebody_lost_lately(loser: int) -> None:
    state = _two(AWAY, AWAY)
    plain = "all that wait will be in time, with {:.3f} s to spare"
    assert _why(state) == plain
    state.entries[loser].context.kept = KEPT
    assert _why(state) == plain
    state.entries[loser].context.kept = KEPT - 0.01
    assert _why(state) != plain


def test_a_resident_with_a_rhythm_is_not_left_undisturbed() -> None:
    state = _two(AWAY, SWAP)  # the other one cannot be met any more
    state.load.add(NOW, 1.0, 1000.0)  # and the time earns much as it is
    calm = "nobody who waits is worth a swap"
    assert _why(state) == calm
    for number in range(9, 0, -1):
        state.entries[0].context.rhythm.arrive(NOW - number * 0.1, NOW - number * 0.1 + AWAY)
    assert state.entries[0].context.rhythm.period == pytest.approx(0.1)
    assert _why(state) != calm
