"""Turns that came too late."""

from __future__ import annotations

import math

import pytest

from repertory.runtime.plan.overdue import feasible_turns, overdue
from repertory.runtime.plan.random_limits import with_random_limits
from repertory.runtime.plan.random_load import draw
from repertory.runtime.plan.runner import Fate, Played, Request
from repertory.runtime.plan.trace import GroupLoad, ModelLoad, Trace
from repertory.runtime.timeline import Span

GROUP = "sim://0?swap_ms=50"


def _load(*models: ModelLoad, groups: int = 1) -> Trace:
    return Trace(name="by hand", seconds=10.0, groups=(GroupLoad(GROUP),) * groups, models=models)


def _overdue(
    *requests: tuple[float, float | None, float], max_wait: float = 1.0, vain: tuple[float, ...] = ()
) -> float:
    """Judge requests of a model that takes 50 ms, as its swap: when each came, was begun, and was gone.

    Frames that were begun `vain` ended after their callers had gone.
    """
    model = ModelLoad(name="a", service=0.05, max_wait=max_wait)
    played = Played(
        trace=_load(model),
        requests=[
            Request(0, came, 99.0, gone, Fate.EXPIRED if begin is None else Fate.ON_TIME)
            for came, begin, gone in requests
        ],
        spans={
            GROUP: [
                *(Span("compute", "a", begin, gone) for _, begin, gone in requests if begin is not None),
                *(Span("compute", "a", begin, begin + 0.05) for begin in vain),
            ]
        },
        swaps=0,
        seconds=10.0,
        decisions=0,
        decision_seconds=0.0,
        real_seconds=0.0,
    )
    return overdue(played)["a"]


def test_a_turn_is_due_max_wait_after_the_first_request_for_it() -> None:
    assert _overdue() == 0
    assert _overdue((0.0, 1.0, 1.05)) == 0
    assert _overdue((0.0, 1.25, 1.3)) == pytest.approx(0.25)
    assert _overdue((0.0, 1.25, 1.3), max_wait=2.0) == 0
    assert _overdue((0.0, None, 1.5)) == pytest.approx(0.5)


def test_requests_that_expire_do_not_put_it_off() -> None:
    expired = [(at, None, at + 0.5) for at in (0.0, 0.4, 0.8, 1.2)]
    assert _overdue(*expired, (1.5, 1.6, 1.65)) == pytest.approx(0.6)


def test_a_frame_that_ends_too_late_for_its_caller_was_a_turn_all_the_same() -> None:
    requests = [(0.0, None, 0.5), (0.9, 1.7, 1.75)]
    assert _overdue(*requests) == pytest.approx(0.6)
    assert _overdue(*requests, vain=(0.48,)) == 0
    assert _overdue(*requests, (0.1, None, 0.6), vain=(0.48,)) == pytest.approx(0.22)  # beside one who waits


def test_a_begin_beside_which_others_wait_asks_for_the_next_turn() -> None:
    assert _overdue((0.0, 0.5, 0.55), (0.0, 1.6, 1.65)) == pytest.approx(0.1)
    assert _overdue((0.0, 0.5, 0.55), (0.7, 1.6, 1.65)) == 0


def test_who_comes_later_must_be_reached_after_what_runs() -> None:
    early = (0.0, None, 0.1)
    assert _overdue(early, (3.0, 3.2, 3.25)) == 0  # a swap and a frame that run, and its own
    assert _overdue(early, (3.0, 3.3, 3.35)) == pytest.approx(0.1)
    assert _overdue(early, (3.0, None, 3.1), (4.0, 4.1, 4.15)) == pytest.approx(0.9)


def test_turns_are_feasible_where_all_fit_and_the_deadlines_leave_time() -> None:
    a = ModelLoad(name="a", service=0.05, deadline=0.2, max_wait=0.4)
    assert feasible_turns(_load(a, a, a)) == [True] * 3  # what runs, and three turns of 100 ms
    assert feasible_turns(_load(*[a] * 4)) == [False] * 4
    assert feasible_turns(_load(*[a] * 4, groups=2)) == [True] * 4
    hasty = ModelLoad(name="b", service=0.05, deadline=0.19)
    assert feasible_turns(_load(a, hasty)) == [True, False]
    unknown = Trace(name="x", seconds=1.0, groups=(GroupLoad("sim+memx://0"),), models=(a,))
    assert feasible_turns(unknown) == [False]


def test_limits_are_drawn_and_the_rest_of_the_load_stays() -> None:
    load = draw(3, seconds=1.0)
    drawn = with_random_limits(load, 5)
    assert drawn == with_random_limits(load, 5) != with_random_limits(load, 6)
    assert drawn.arrivals == load.arrivals
    assert len({(model.weight, model.max_wait) for model in drawn.models}) > 3
    assert all(0 < model.max_wait <= 1 and math.isfinite(model.weight) for model in drawn.models)
