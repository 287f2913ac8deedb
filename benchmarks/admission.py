"""Whether requests are turned away that could have been met, and kept that expire: loads around capacity.

A verdict against a request comes at its offer (it is refused), or while it waits, when a group commits
itself to other models (it is withdrawn). Each load is played three times in virtual time: as it is; with
every verdict noted and none acted on; and with one request in twenty spared all verdicts, at random. Of
those that a verdict was against, in the second and in the third run, it tells the share that was answered
in time.

    python benchmarks/admission.py --seconds 60 --seeds 1-5
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from random import Random
from statistics import mean, median
from unittest.mock import patch

import msgspec
import numpy as np

from repertory.actors.verdicts import Verdict, Verdicts
from repertory.runtime.plan.arrivals import Times, camera, merged, random_source, renewal, zipf
from repertory.runtime.plan.generic import generic_groups
from repertory.runtime.plan.runner import Fate, Played, plan_trace
from repertory.runtime.plan.trace import ModelLoad, Trace
from repertory.runtime.policies.named import policy_named
from repertory.transports.frame import Frame, Outcome

OF_CAPACITY = (0.8, 1.0, 1.5)

SPARED = 0.05
"""Share of the requests on whose verdicts the third run does not act."""


class Family(msgspec.Struct, frozen=True):
    """A load at a share of capacity; times in seconds.

    Attributes:
        draw: draws the arrivals of each model, at so many requests a second in all.
    """

    models: int
    groups: int
    service: float
    swap: float
    deadline: float
    capacity: float
    draw: Callable[[np.random.Generator, float, float], list[Times]]


class Told(msgspec.Struct, frozen=True):
    """What became of one load; shares are of 1, and NaN where there was nothing to take a share of.

    Attributes:
        arrivals: requests in all.
        refused: refused for their deadline at the offer.
        withdrawn: told while they waited.
        left: seconds that those had left to their deadline, the median, as a share of the whole time.
        expired: admitted, not withdrawn, and not answered in time.
        goodput: answered in time, of all.
        goodput_off: the same with no verdict acted on.
        noted: verdicts against a request, where none was acted on.
        noted_met: of them, answered in time.
        spared: requests on whose verdict nobody acted, where nearly all others were acted on.
        spared_met: of them, answered in time.
    """

    load: str
    share: float
    seed: int
    arrivals: int
    refused: int
    withdrawn: int
    left: float
    expired: int
    goodput: float
    goodput_off: float
    noted: int
    noted_met: int
    spared: int
    spared_met: int


def poisson(models: int) -> Callable[[np.random.Generator, float, float], list[Times]]:
    """Draw Poisson arrivals of equal rates."""
    return lambda rng, rate, seconds: [renewal(rng, rate / models, seconds) for _ in range(models)]


def unlike(rng: np.random.Generator, rate: float, seconds: float) -> list[Times]:
    """Draw Poisson arrivals of 16 models, the first ones far more often."""
    return [renewal(rng, rate * share, seconds) for share in zipf(16, 1.1)]


def cameras(rng: np.random.Generator, rate: float, seconds: float) -> list[Times]:
    """Draw the frames of four cameras."""
    return [camera(rng, rate / 4, seconds) for _ in range(4)]


FAMILIES = {
    "one model": Family(1, 1, 0.005, 0.008, 0.05, 1 / 0.005, poisson(1)),
    "four models": Family(4, 1, 0.003, 0.008, 0.25, (1 - 4 * 0.008 / 0.25) / 0.003, poisson(4)),
    "16 on 4": Family(16, 4, 0.005, 0.015, 0.1, 4 * (1 - 16 * 0.015 / (4 * 0.1)) / 0.005, unlike),
    "cameras": Family(4, 1, 0.003, 0.008, 0.1, 241.0, cameras),
}
"""Capacity is the ceiling of turns in a circle, 1 - S / (k D) of the devices' time, and for cameras, whose
frames are foreseen, 1 - S / (k (D + period)): S all swaps, k groups, D the deadline."""


def trace_of(name: str, share: float, seed: int, seconds: float) -> Trace:
    """Draw a load."""
    family = FAMILIES[name]
    models = [
        ModelLoad(name=f"m{index}", service=family.service, swap=family.swap, deadline=family.deadline)
        for index in range(family.models)
    ]
    times = family.draw(random_source(seed, 9), share * family.capacity, seconds)
    return Trace(
        name=name,
        seconds=seconds,
        groups=generic_groups(family.groups, swap=family.swap),
        models=tuple(models),
        arrivals=merged(times, models),
        seed=seed,
    )


def played(trace: Trace, policy: str, spared: float) -> tuple[Played, list[Frame]]:
    """Play a load; return also the requests that were spared a verdict, in that share of cases.

    What has been taken from the queue, and could only be late, ends in any case.
    """
    chance, judged = Random(trace.seed), dict[Frame, bool]()
    at_offer, in_queue = Verdicts.at_offer, Verdicts.in_queue

    def is_spared(frame: Frame) -> bool:
        return judged.setdefault(frame, chance.random() < spared)

    def offered(verdicts: Verdicts, frame: Frame, left: float, now: float) -> str | None:
        told = at_offer(verdicts, frame, left, now)
        return None if told is None or is_spared(frame) else told

    def queued(verdicts: Verdicts, now: float) -> Iterator[Verdict]:
        return (verdict for verdict in in_queue(verdicts, now) if not is_spared(verdict[0]))

    with patch.object(Verdicts, "at_offer", offered), patch.object(Verdicts, "in_queue", queued):
        return plan_trace(trace, policy_named(policy)), [frame for frame, free in judged.items() if free]


def goodput(result: Played) -> float:
    """Return the share that was answered in time."""
    return sum(request.fate is Fate.ON_TIME for request in result.requests) / len(result.requests)


def met(frames: Sequence[Frame]) -> int:
    """Count those that were answered, which is in time."""
    return sum(frame.outcome is Outcome.ANSWERED for frame in frames)


def told(name: str, share: float, seed: int, seconds: float, policy: str) -> Told:
    """Play one load in all three ways."""
    trace = trace_of(name, share, seed, seconds)
    acted, _ = played(trace, policy, 0.0)
    off, noted = played(trace, policy, 1.0)
    _, spared = played(trace, policy, SPARED)
    fates = Counter(request.fate for request in acted.requests)
    left = [
        (request.deadline - request.end) / (request.deadline - request.arrival)
        for request in acted.requests
        if request.fate is Fate.WITHDRAWN
    ]
    return Told(
        load=name,
        share=share,
        seed=seed,
        arrivals=len(acted.requests),
        refused=fates[Fate.UNREACHABLE],
        withdrawn=fates[Fate.WITHDRAWN],
        left=median(left) if left else math.nan,
        expired=fates[Fate.EXPIRED] + fates[Fate.LATE],
        goodput=goodput(acted),
        goodput_off=goodput(off),
        noted=len(noted),
        noted_met=met(noted),
        spared=len(spared),
        spared_met=met(spared),
    )


def row(load: str, share: float, rows: Sequence[Told]) -> str:
    """Put the runs of one load together, over all seeds."""
    arrivals, refused = sum(each.arrivals for each in rows), sum(each.refused for each in rows)
    withdrawn = [each for each in rows if each.withdrawn]
    cells = (
        f"{100 * refused / arrivals:8.2f}",
        f"{100 * sum(each.withdrawn for each in rows) / arrivals:9.2f}",
        f"{100 * mean(each.left for each in withdrawn):8.0f}" if withdrawn else f"{'-':>8}",
        _percent(sum(each.expired for each in rows), arrivals - refused),
        _percent(sum(each.noted_met for each in rows), sum(each.noted for each in rows)),
        _percent(sum(each.spared_met for each in rows), sum(each.spared for each in rows)),
        f"{100 * mean(each.goodput for each in rows):8.2f}",
        f"{100 * mean(each.goodput_off for each in rows):8.2f}",
    )
    return f"{load:<12} {share:4.1f} {arrivals:8} " + " ".join(cells)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:8.2f}" if whole else f"{'-':>8}"


def seeds_of(text: str) -> range:
    """Read `7` or `1-5`."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def all_of(
    loads: Sequence[str], seeds: Sequence[int], seconds: float, policy: str, processes: int
) -> Iterator[Told]:
    """Play everything, several loads at once."""
    cases = [(*case, seconds, policy) for case in product(loads, OF_CAPACITY, seeds)]
    if processes == 1:
        yield from (told(*case) for case in cases)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(told, *zip(*cases, strict=True))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--seeds", type=seeds_of, default=range(1, 6), help="7 or 1-5, the default")
    options.add_argument("--seconds", type=float, default=60.0, help="of each load; 60 by default")
    options.add_argument("--policy", default="swap-aware")
    options.add_argument("--loads", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    options.add_argument("--processes", type=int, default=2)
    options.add_argument("--json", action="store_true", help="one object a load")
    given = options.parse_args()
    found: dict[tuple[str, float], list[Told]] = {}
    if not given.json:
        print("In percent: refused and withdrawn, of arrivals; the time that was left to the deadline when")
        print("a request was withdrawn, of all it had (median); expired, of admitted; of the verdicts, what")
        print("was answered in time where none is acted on (noted), and of those spared; goodput.")
        heads = "  refused withdrawn     left  expired    noted   spared  goodput      off"
        print(f"{'load':<12}     {'arrivals':>9}{heads}")
    for each in all_of(given.loads, given.seeds, given.seconds, given.policy, given.processes):
        if given.json:
            print(msgspec.json.encode(each).decode(), flush=True)
            continue
        rows = found.setdefault((each.load, each.share), [])
        rows.append(each)
        if len(rows) == len(given.seeds):
            print(row(each.load, each.share, rows), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
