"""The default policy on loads drawn at random, which nobody tuned it for; the benchmarks play many more."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest

from repertory.runtime.plan.overdue import feasible_turns, overdue
from repertory.runtime.plan.random_limits import with_random_limits
from repertory.runtime.plan.random_load import draw
from repertory.runtime.plan.runner import Fate, Played, plan_trace
from repertory.runtime.policies.named import policy_named
from repertory.runtime.timeline import Span

OURS = "swap-aware"
BASELINES = ("hailort:burst=32", "rotation")
SEEDS = (5, 9, 14)
LIMITED = (3, 5, 9, 12, 15, 22)


@cache
def _played(seed: int, policy: str) -> Played:
    return plan_trace(draw(seed, seconds=2.5), policy_named(policy))


def _goodput(played: Played) -> float:
    fates = [request.fate for request in played.requests]
    return fates.count(Fate.ON_TIME) / len(fates)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_better_than_the_baselines(seed: int) -> None:
    ours = _goodput(_played(seed, OURS))
    assert ours > max(_goodput(_played(seed, baseline)) for baseline in BASELINES)


@pytest.mark.parametrize("seed", SEEDS)
def test_hardly_any_swap_is_in_vain_for_which_frames_wait(seed: int) -> None:
    played = _played(seed, OURS)
    used = [used for swap, used in _swaps(played) if _waits(played, swap)]
    assert used.count(False) <= 0.03 * len(used)


def test_hardly_any_swap_is_in_vain() -> None:
    """Those count, too, that were made ahead of frames: nobody knows whether they come."""
    used = [used for seed in SEEDS for _, used in _swaps(_played(seed, OURS))]
    assert used.count(False) <= 0.1 * len(used)


def _swaps(played: Played) -> Iterator[tuple[Span, bool]]:
    """Tell each swap, and whether any frame came of it."""
    for each in played.spans.values():
        spans = [span for span in each if span.kind in ("swap", "compute")]
        for span, then in pairwise(sorted(spans, key=lambda span: span.start)):
            if span.kind == "swap":
                yield span, then.kind == "compute"


def _waits(played: Played, swap: Span) -> bool:
    """Whether a frame of the model was there when its swap began."""
    names = [model.name for model in played.trace.models]
    return any(
        names[each.model] == swap.model and each.arrival <= swap.start < each.end for each in played.requests
    )


def test_nobody_starves_whose_turns_are_feasible() -> None:
    late: dict[tuple[int, str], float] = {}
    feasible = 0
    for seed in LIMITED:
        trace = with_random_limits(draw(seed, seconds=2.0), seed)
        waits = overdue(plan_trace(trace, policy_named(OURS)))
        can = feasible_turns(trace)
        feasible += sum(can)
        late |= {(seed, m.name): waits[m.name] for m, ok in zip(trace.models, can, strict=True) if ok}
    assert feasible >= 25
    assert not {who: seconds for who, seconds in late.items() if seconds > 0}
