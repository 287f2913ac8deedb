"""Reports of plans, said to a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from repertory.runtime.plan.report import Report

from .command import table

__all__ = ["comparison_text", "report_text", "seeds_text"]

_HEAD = (
    "policy",
    "goodput",
    "worst",
    "on-time/s",
    "swaps/s",
    "compute",
    "swap",
    "idle*",
    "p50",
    "p99",
    "p99.9",
    "Jain",
    "refused",
    "late",
    "withdrawn",
    "expired",
    "wait",
    "decide",
)
_UNITS = (
    "Shares in %; answers in ms; * idle though a request waited; the longest wait for a turn in s; decisions"
    " in us of real time a request."
)


def report_text(report: Report) -> Iterator[str]:
    """Say one report at length."""
    waits = report.longest_wait
    longest = max(waits, key=lambda name: waits[name])
    yield f"{_load(report)}, {_requests([report])}: {report.policy}"
    kept, rate = _percent(report.goodput), report.on_time_per_second
    yield f"  goodput        {kept} %, {rate:.1f} on time a second; {_ceilings(report)}"
    yield f"  worst model    {_percent(report.worst_model)} %, {report.worst_name or '-'}"
    yield f"  swaps          {report.swaps_per_second:.1f} a second"
    yield f"  answers        p50 {_ms(report.p50)} ms, p99 {_ms(report.p99)} ms, p99.9 {_ms(report.p999)} ms"
    yield f"  fairness       {report.jain:.3f} (Jain's index over the models' goodput)"
    yield f"  not on time    {_lost(report)}"
    yield f"  longest wait   {waits[longest]:.3f} s for a turn, {longest}"
    cost = report.decision_seconds * 1e6
    yield f"  decisions      {report.decisions:.2f} a request, {cost:.1f} us of real time a request"
    yield f"  speed          {report.simulated_per_second:.0f} requests played in a second of real time"
    yield ""
    yield from table(("group", "compute %", "swap %", "transfer %", "idle+work %", "idle %"), _groups(report))
    yield ""
    yield from table(("model", "goodput %", "longest wait s"), _models(report))


def seeds_text(reports: Sequence[Report], mean: Report) -> Iterator[str]:
    """Say reports of several seeds, one a line, and their mean."""
    head = ("seed", *_HEAD[1:])
    rows = [(each.seed, *_row(each)[1:]) for each in reports]
    yield f"{_load(mean)}, {_requests(reports)}: {mean.policy}; {_ceilings(mean)} in the mean"
    yield from table(head, [*rows, ("mean", *_row(mean)[1:])])
    yield _UNITS


def comparison_text(reports: Sequence[Report]) -> Iterator[str]:
    """Say reports of several policies on one load, side by side, with what is achievable below."""
    first = reports[0]
    yield f"{_load(first)}, {_requests(reports)}:"
    yield from table(
        _HEAD,
        [
            *map(_row, reports),
            *_ceiling_rows(first),
        ],
    )
    yield _UNITS


def _load(report: Report) -> str:
    seeds = report.seeds
    drawn = (
        f", seed {seeds[0]}"
        if len(seeds) == 1
        else f", mean of seeds {seeds[0]} to {seeds[-1]}"
        if seeds
        else ""
    )
    models, groups = len(report.longest_wait), len(report.time)
    return (
        f"{report.trace}{drawn}: {report.seconds:g} s, {models} model{'s' * (models > 1)} on {groups}"
        f" group{'s' * (groups > 1)}"
    )


def _requests(reports: Sequence[Report]) -> str:
    """Say how many requests there were; clients that wait for their answers make as many as they get."""
    counts = sorted({report.arrivals for report in reports})
    return " to ".join(f"{count:.0f}" for count in counts[:: max(1, len(counts) - 1)]) + " requests"


def _row(report: Report) -> tuple[str, ...]:
    splits = report.time.values()
    return (
        report.policy,
        _percent(report.goodput),
        _percent(report.worst_model),
        f"{report.on_time_per_second:.1f}",
        f"{report.swaps_per_second:.1f}",
        _percent(sum(split.compute for split in splits) / len(splits)),
        _percent(sum(split.swap for split in splits) / len(splits)),
        _percent(sum(split.idle_with_work for split in splits) / len(splits)),
        _ms(report.p50),
        _ms(report.p99),
        _ms(report.p999),
        f"{report.jain:.3f}",
        f"{report.rejected:.0f}",
        f"{report.late + report.unanswered:.0f}",
        f"{report.withdrawn:.0f}",
        f"{report.expired:.0f}",
        f"{max(report.longest_wait.values()):.3f}",
        f"{report.decision_seconds * 1e6:.1f}",
    )


def _ceiling_rows(report: Report) -> Iterator[tuple[str, ...]]:
    """Lay out what is achievable like a policy's row."""
    rest = ["-" for _ in _HEAD[4:]]
    for name, share in (("bound", report.bound), ("optimum", report.optimum)):
        if share is not None:
            yield name, _percent(share), "-", f"{share * report.arrivals / report.seconds:.1f}", *rest
    if report.bound is None and report.bound_per_second is not None:
        yield "bound", "-", "-", f"{report.bound_per_second:.1f}", *rest


def _ceilings(report: Report) -> str:
    found = [f"the clairvoyant bound is {_percent(report.bound)} %"] if report.bound is not None else []
    if report.optimum is not None:
        found.append(f"the optimum {_percent(report.optimum)} %")
    if report.bound is None and report.bound_per_second is not None:
        found.append(f"the bound is {report.bound_per_second:.1f} a second")
    return ", ".join(found) or "no bound is known"


def _lost(report: Report) -> str:
    kinds = {
        "late": report.late,
        "refused for a full queue": report.rejected_full,
        "refused for their deadline": report.rejected_unreachable,
        "expired": report.expired,
        "superseded": report.superseded,
        "withdrawn before their deadline": report.withdrawn,
        "failed": report.failed,
        "never answered": report.unanswered,
    }
    return ", ".join(f"{count:.0f} {kind}" for kind, count in kinds.items() if count) or "none"


def _groups(report: Report) -> Iterator[tuple[str, ...]]:
    for address, split in report.time.items():
        shares = (split.compute, split.swap, split.transfer, split.idle_with_work, split.idle)
        yield (address, *map(_percent, shares))


def _models(report: Report) -> Iterator[tuple[str, ...]]:
    for name, wait in report.longest_wait.items():
        share = report.per_model.get(name)
        yield name, "-" if share is None else _percent(share), f"{wait:.3f}"


def _percent(share: float) -> str:
    return f"{share * 100:.1f}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"
