"""What a plan came to, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar, final

import msgspec
import numpy as np

from .played import Fate, Played
from .split import Split, time_split
from .waits import longest_waits

__all__ = ["Report", "jain", "mean", "report"]

T = TypeVar("T")


@final
class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One policy on one load, or the mean over several seeds of it.

    Attributes:
        policy: its name.
        trace: the load's name.
        seed: that the load was drawn with; None where there was none, and in a mean.
        seeds: likewise, all of them.
        seconds: how long requests came.
        groups: how many there were.
        arrivals: requests, those that were refused included; the base of all shares.
        goodput: share that was answered by its deadline, 0 to 1; 1 where there were no requests.
        worst_model: the least share of a model that anybody asked for.
        worst_name: that model.
        per_model: the share by model, of those that anybody asked for.
        on_time: requests that were answered by their deadline.
        late: those answered after it.
        rejected: those refused.
        rejected_full: among them, those for which the queue had no place.
        rejected_unreachable: among them, those whose deadline could not be met.
        expired: those admitted and ended by their deadline.
        superseded: those admitted and replaced by a newer one.
        withdrawn: those admitted and ended before their deadline, which could not be met any more.
        failed: those ended by an error.
        unanswered: those given up at the end of the plan.
        on_time_per_second: of the load's seconds.
        swaps_per_second: programs made resident, over all groups.
        p50: median seconds from a request to its answer, over all answers; None without one.
        p99: likewise.
        p999: likewise, 99.9 %.
        jain: Jain's fairness index over `per_model`, 1 where all fare alike.
        longest_wait: seconds that each model waited for its turn at the longest.
        time: how each group's time was spent, by address.
        decision_seconds: real time that the policy took, for one request.
        decisions: how often it was asked, for one request.
        simulated_per_second: requests that were played in a second of real time.
        bound: share that no schedule can exceed, or None where none is known.
        optimum: share that the best schedule reaches that knows all arrivals beforehand, or None likewise.
        bound_per_second: answers in time a second that no schedule can exceed, or None likewise.
    """

    policy: str
    trace: str
    seed: int | None
    seeds: tuple[int, ...]
    seconds: float
    groups: float
    arrivals: float
    goodput: float
    worst_model: float
    worst_name: str
    per_model: dict[str, float]
    on_time: float
    late: float
    rejected: float
    rejected_full: float
    rejected_unreachable: float
    expired: float
    superseded: float
    withdrawn: float
    failed: float
    unanswered: float
    on_time_per_second: float
    swaps_per_second: float
    p50: float | None
    p99: float | None
    p999: float | None
    jain: float
    longest_wait: dict[str, float]
    time: dict[str, Split]
    decision_seconds: float
    decisions: float
    simulated_per_second: float
    bound: float | None = None
    optimum: float | None = None
    bound_per_second: float | None = None


def report(
    played: Played,
    *,
    policy: str,
    bound: float | None = None,
    optimum: float | None = None,
    bound_per_second: float | None = None,
) -> Report:
    """Put what a load came to into numbers.

    Args:
        played: by `run`.
        policy: what to call it.
        bound: of the same trace, see `bound.py`.
        optimum: likewise, see `optimum.py`.
        bound_per_second: likewise.
    """
    trace = played.trace
    fates = Counter(request.fate for request in played.requests)
    arrivals = len(played.requests)
    per_model = _per_model(played)
    worst = min(per_model, key=lambda name: per_model[name], default="")
    p50, p99, p999 = _percentiles(played)
    return Report(
        policy=policy,
        trace=trace.name,
        seed=trace.seed,
        seeds=() if trace.seed is None else (trace.seed,),
        seconds=trace.seconds,
        groups=len(trace.groups),
        arrivals=arrivals,
        goodput=fates[Fate.ON_TIME] / arrivals if arrivals else 1.0,
        worst_model=per_model[worst] if per_model else 1.0,
        worst_name=worst,
        per_model=per_model,
        on_time=fates[Fate.ON_TIME],
        late=fates[Fate.LATE],
        rejected=fates[Fate.FULL] + fates[Fate.UNREACHABLE],
        rejected_full=fates[Fate.FULL],
        rejected_unreachable=fates[Fate.UNREACHABLE],
        expired=fates[Fate.EXPIRED],
        superseded=fates[Fate.SUPERSEDED],
        withdrawn=fates[Fate.WITHDRAWN],
        failed=fates[Fate.FAILED],
        unanswered=fates[Fate.UNANSWERED],
        on_time_per_second=fates[Fate.ON_TIME] / trace.seconds,
        swaps_per_second=played.swaps / played.seconds,
        p50=p50,
        p99=p99,
        p999=p999,
        jain=jain(list(per_model.values())),
        longest_wait=longest_waits(played),
        time=time_split(played),
        decision_seconds=played.decision_seconds / max(1, arrivals),
        decisions=played.decisions / max(1, arrivals),
        simulated_per_second=arrivals / played.real_seconds,
        bound=bound,
        optimum=optimum,
        bound_per_second=bound_per_second,
    )


def jain(shares: Sequence[float]) -> float:
    """Return Jain's fairness index: 1 where all shares are equal, 1/n where one has all."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def _per_model(played: Played) -> dict[str, float]:
    asked = Counter(request.model for request in played.requests)
    kept = Counter(request.model for request in played.requests if request.fate is Fate.ON_TIME)
    names = [model.name for model in played.trace.models]
    return {names[model]: kept[model] / asked[model] for model in sorted(asked)}


def _percentiles(played: Played) -> tuple[float | None, float | None, float | None]:
    answered = [r.end - r.arrival for r in played.requests if r.fate in (Fate.ON_TIME, Fate.LATE)]
    if not answered:
        return None, None, None
    p50, p99, p999 = np.percentile(answered, [50, 99, 99.9])
    return float(p50), float(p99), float(p999)


def mean(reports: Sequence[Report]) -> Report:
    """Return the mean of reports on several seeds of one load: of each number, and of each model's.

    The longest waits are the longest of all seeds, and `worst_name` is the model that is worst in the mean.
    A share that one of them does not have is None.
    """
    first = reports[0]
    if len(reports) == 1:
        return first
    numbers = {
        name: _mean([getattr(each, name) for each in reports])
        for name in first.__struct_fields__
        if isinstance(getattr(first, name), int | float) and name != "seed"
    }
    per_model = _means([each.per_model for each in reports])
    waits = [each.longest_wait for each in reports]
    return msgspec.structs.replace(
        first,
        **numbers,
        seed=None,
        seeds=tuple(seed for each in reports for seed in each.seeds),
        per_model=per_model,
        worst_name=min(per_model, key=lambda name: per_model[name], default=""),
        longest_wait={name: max(each.get(name, 0.0) for each in waits) for name in waits[0]},
        time={
            address: Split(**_means([msgspec.structs.asdict(each.time[address]) for each in reports]))
            for address in first.time
        },
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _means(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each key, over those that have it."""
    names = dict.fromkeys(name for each in several for name in each)
    found = {name: [each[name] for each in several if name in each] for name in names}
    return {name: sum(values) / len(values) for name, values in found.items()}
