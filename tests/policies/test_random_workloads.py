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
def test_hardly_any_swap_is_in_vain(seed: int) -> None:
    swaps = list(_swaps(_played(seed, OURS)))
    assert swaps.count(False) <= 0.1 * len(swaps)


def _swaps(played: Played) -> Iterator[bool]:
    """Tell of each swap whether any frame came of it."""
    for spans in played.spans.values():
        kinds = [span.kind for span in sorted(spans, key=lambda span: span.start)]
        kinds = [kind for kind in kinds if kind in ("swap", "compute")]
        for kind, then in pairwise(kinds):
            if kind == "swap":
                yield then == "compute"


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
