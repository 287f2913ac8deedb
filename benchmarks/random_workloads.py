"""The default policy beside the baselines on loads that are drawn at random: nobody tuned it for them.

One line a load: goodput (answers in time over all requests, refused ones included) of each policy in percent,
what the default is ahead of the best of the others, and the goodput of the most urgent class, where there are
several. Everything runs in virtual time.

    python benchmarks/random_workloads.py --seeds 1-20 --seconds 20
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

import msgspec

from repertory.runtime.plan.random_load import draw
from repertory.runtime.plan.runner import Fate, Played, plan_trace
from repertory.runtime.plan.trace import Trace
from repertory.runtime.policies.named import policy_named

OURS = "swap-aware"

POLICIES = (
    OURS,
    "fifo",
    "hailort",
    "hailort:burst=32",
    "mxa-manager",
    "mxa-manager:frame_limit=8,time_limit=0.002",
    "rotation",
)

HEADS = ("ours", "fifo", "hailo", "hailo32", "mxa", "mxa8/2", "rotate")


class Line(msgspec.Struct, frozen=True):
    """What the policies came to on one load, in percent.

    Attributes:
        load: how it was drawn, in a few words.
        goodput: by policy.
        urgent: of the models of the highest priority, by policy; empty where all have the same.
        ahead: points between the default policy and the best of the others.
    """

    seed: int
    load: str
    goodput: dict[str, float]
    urgent: dict[str, float]
    ahead: float


def line(seed: int, seconds: float) -> Line:
    """Play one load under each policy."""
    trace = draw(seed, seconds=seconds)
    played = {name: plan_trace(trace, policy_named(name)) for name in POLICIES}
    top = max(model.priority for model in trace.models)
    classes = {model.priority for model in trace.models}
    goodput = {name: share(each, range(len(trace.models))) for name, each in played.items()}
    urgent = [index for index, model in enumerate(trace.models) if model.priority == top]
    return Line(
        seed=seed,
        load=told(trace),
        goodput=goodput,
        urgent={name: share(each, urgent) for name, each in played.items()} if len(classes) > 1 else {},
        ahead=goodput[OURS] - max(value for name, value in goodput.items() if name != OURS),
    )


def share(played: Played, models: Sequence[int]) -> float:
    """Return the percentage of the requests of these models that was answered in time."""
    fates = [request.fate for request in played.requests if request.model in models]
    return 100 * fates.count(Fate.ON_TIME) / len(fates) if fates else 100.0


def told(trace: Trace) -> str:
    """Put a load into a few words."""
    swap = trace.models[0].swap or 0.0
    return f"{len(trace.models):2} on {len(trace.groups)}, swap {1000 * swap:4.1f} ms"


def lines(seeds: Sequence[int], seconds: float, processes: int) -> Iterator[Line]:
    """Play all loads, several at once."""
    if processes == 1:
        yield from map(line, seeds, repeat(seconds))
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(line, seeds, repeat(seconds))


def seeds_of(text: str) -> range:
    """Read `7` or `1-20`."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--seeds", type=seeds_of, default=range(1, 21), help="7 or 1-20, the default")
    options.add_argument("--seconds", type=float, default=20.0, help="of each load; 20 by default")
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--json", action="store_true", help="one object a load")
    given = options.parse_args()
    found: list[Line] = []
    if not given.json:
        print(f"{'seed':>4} {'load':<22}", *(f"{head:>7}" for head in HEADS), "  ahead  most urgent class")
    for each in lines(given.seeds, given.seconds, given.processes):
        found.append(each)
        if given.json:
            print(msgspec.json.encode(each).decode(), flush=True)
            continue
        row = " ".join(f"{each.goodput[name]:7.1f}" for name in POLICIES)
        urgent = " ".join(f"{each.urgent[name]:.1f}" for name in POLICIES if name in each.urgent)
        print(f"{each.seed:4} {each.load:<22} {row} {each.ahead:+7.2f}  {urgent}", flush=True)
    good = sum(each.ahead >= 0 for each in found)
    worst = min(each.ahead for each in found)
    if not given.json:
        print(f"at least as good as the best other on {good} of {len(found)}; at worst {worst:+.2f} points")
    return 0 if good >= 0.9 * len(found) and worst >= -2 else 1


if __name__ == "__main__":
    sys.exit(main())
