"""Whether anybody starves: loads drawn at random, with random weights and random `max_wait`, in virtual time.

For each load in which a turn came too late it tells whose, by how much, and whether the limit was feasible
at all (see `repertory.runtime.plan.overdue`). Exits with 1 where a feasible one was not kept.

    python benchmarks/starvation.py --seeds 1-200 --seconds 4
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

import msgspec

from repertory.runtime.plan.overdue import feasible_turns, overdue
from repertory.runtime.plan.random_limits import with_random_limits
from repertory.runtime.plan.random_load import draw
from repertory.runtime.plan.runner import plan_trace
from repertory.runtime.policies.named import policy_named


class Late(msgspec.Struct, frozen=True):
    """A turn that came too late; seconds."""

    model: str
    load: str
    max_wait: float
    overdue: float
    deadline: float
    feasible: bool


class Found(msgspec.Struct, frozen=True):
    """What became of one load.

    Attributes:
        feasible: models whose limit was.
        late: whose turns came too late.
    """

    seed: int
    models: int
    feasible: int
    late: list[Late]


def judged(seed: int, seconds: float, policy: str) -> Found:
    """Play one load."""
    trace = with_random_limits(draw(seed, seconds=seconds), seed)
    waits = overdue(plan_trace(trace, policy_named(policy)))
    feasible = feasible_turns(trace)
    load = f"{len(trace.models)} on {len(trace.groups)}"
    late = [
        Late(each.name, load, each.max_wait, waits[each.name], each.deadline, can)
        for each, can in zip(trace.models, feasible, strict=True)
        if waits[each.name] > 0
    ]
    return Found(seed, len(trace.models), sum(feasible), late)


def all_of(seeds: Sequence[int], seconds: float, policy: str, processes: int) -> Iterator[Found]:
    """Play all loads, several at once."""
    if processes == 1:
        yield from map(judged, seeds, repeat(seconds), repeat(policy))
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(judged, seeds, repeat(seconds), repeat(policy))


def seeds_of(text: str) -> range:
    """Read `7` or `1-200`."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--seeds", type=seeds_of, default=range(1, 201), help="7 or 1-200, the default")
    options.add_argument("--seconds", type=float, default=4.0, help="of each load; 4 by default")
    options.add_argument("--policy", default="swap-aware")
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--json", action="store_true", help="one object a load")
    given = options.parse_args()
    found: list[Found] = []
    for each in all_of(given.seeds, given.seconds, given.policy, given.processes):
        found.append(each)
        if given.json:
            print(msgspec.json.encode(each).decode(), flush=True)
            continue
        for late in each.late:
            verdict = "FEASIBLE" if late.feasible else "not feasible"
            print(
                f"seed {each.seed:4}, {late.load:7} {late.model:<10} max_wait {late.max_wait:.1f} s, deadline"
                f" {late.deadline:.3f} s: overdue by {late.overdue:.3f} s, {verdict}",
                flush=True,
            )
    broken = [late for each in found for late in each.late if late.feasible]
    if not given.json:
        feasible, models = sum(each.feasible for each in found), sum(each.models for each in found)
        worst = max((late.overdue for late in broken), default=0.0)
        print(
            f"{len(found)} loads, {models} models, {feasible} of them feasible: {len(broken)} overdue,"
            f" {worst:.3f} s at most"
        )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
