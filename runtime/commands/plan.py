"""`repertory plan`: what a scheduler would make of a load."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, final

import msgspec

from repertory.models.errors import ConfigError
from repertory.runtime.plan.compare import compare
from repertory.runtime.plan.csv_trace import read_csv
from repertory.runtime.plan.generators import GENERATED, generate
from repertory.runtime.plan.picture import draw
from repertory.runtime.plan.played import Played
from repertory.runtime.plan.report import Report, mean
from repertory.runtime.plan.svg import svg
from repertory.runtime.plan.toml_trace import read_toml
from repertory.runtime.plan.trace import Trace
from repertory.runtime.plan.variants import shortened, with_groups, with_window

from .command import Command, Step, progress
from .plan_text import comparison_text, report_text, seeds_text

__all__ = ["COMPARED", "DEFAULT", "Plan"]

DEFAULT: Final = "swap-aware"
"""The policy that a plan is played under, where none is named."""

COMPARED: Final = (
    "fifo",
    "hailort",
    "hailort-burst-32",
    "mxa-manager",
    "mxa-manager:frame_limit=8,time_limit=0.002",
    DEFAULT,
)
"""Policies that `--compare` sets side by side, where none is named."""

_MOST_SEEDS = 1000


@final
class Plan(Command):
    """Play a load on simulated devices, in virtual time, and tell how it went.

    The actual runtime serves the load, with the scheduler that is in service everywhere else; only the
    devices are simulated, and their clock jumps. So a plan tells whether a camera more would fit, or what a
    second device would help.

    A SOURCE is T0 to T7, a load that is drawn (the documentation describes them), or a .toml file that
    describes models, their requests, and groups. --arrivals reads requests from a CSV file.

    Shares count requests that were answered by their deadline, of all that were made, refused ones
    included. The bound is one that no schedule can exceed; the optimum, for cameras, what the best reaches
    that knows all arrivals beforehand.
    """

    name = "plan"
    summary = "play a load on simulated devices, in virtual time"

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("source", nargs="*", metavar="SOURCE", help="T0 to T7, or a .toml file")
        parser.add_argument(
            "--arrivals", metavar="FILE.csv", help="requests from a file; - for the standard input"
        )
        parser.add_argument(
            "--policy",
            action="append",
            metavar="NAME",
            help=f"may be given several times (default {DEFAULT}); parameters follow a colon",
        )
        parser.add_argument(
            "--compare", action="store_true", help="one table of policies; of all, where none is named"
        )
        parser.add_argument(
            "--optimum",
            action=argparse.BooleanOptionalAction,
            default=True,
            help="search the optimum of a load of cameras, which takes seconds (default: yes)",
        )
        parser.add_argument(
            "--seed", metavar="N[-M]", help="that a load is drawn with (default 1), or several and their mean"
        )
        parser.add_argument("--seconds", type=float, help="how long requests come (default 60, or all)")
        parser.add_argument("--groups", type=int, metavar="N", help="serve it on N groups like the first one")
        parser.add_argument(
            "--window", type=int, metavar="N", help="frames started at once on a sim:// group"
        )
        parser.add_argument(
            "--timeline", type=Path, metavar="FILE.svg", help="draw what each group did with its time"
        )
        parser.add_argument(
            "--span", type=float, default=2.0, metavar="SECONDS", help="that are drawn (default 2)"
        )
        parser.add_argument(
            "--json",
            action="store_true",
            help="print one JSON object for each policy and load, one a line; means of several seeds",
        )

    def run(self, options: argparse.Namespace) -> None:
        policies: list[str] = options.policy or list(COMPARED if options.compare else [DEFAULT])
        loads = list(_loads(options))
        _check_timeline(options, loads, policies)
        with progress("plans", sum(len(load) for load in loads) * len(policies)) as step:
            results = [
                _Result([list(_played(trace, policies, options, step)) for trace in load]) for load in loads
            ]
        for line in _json(results) if options.json else _text(results, compared=options.compare):
            print(line)


@final
class _Result(NamedTuple):
    """Reports of one load: for each seed one of each policy."""

    seeds: list[list[Report]]

    @property
    def policies(self) -> list[list[Report]]:
        """The same, for each policy one of each seed."""
        return [list(each) for each in zip(*self.seeds, strict=True)]


def _played(
    trace: Trace, policies: Sequence[str], options: argparse.Namespace, step: Step
) -> Iterator[Report]:
    for report, played in compare(trace, policies, optimum=options.optimum):
        if options.timeline is not None:
            _write(report, played, options.timeline, options.span)
        step()
        yield report


def _json(results: Sequence[_Result]) -> Iterator[str]:
    for result in results:
        for reports in result.policies:
            yield msgspec.json.encode(mean(reports)).decode()


def _text(results: Sequence[_Result], *, compared: bool) -> Iterator[str]:
    for at, result in enumerate(results):
        yield from [""] * (at > 0)
        if compared:
            yield from comparison_text([mean(reports) for reports in result.policies])
            continue
        for number, reports in enumerate(result.policies):
            yield from [""] * (number > 0)
            yield from report_text(reports[0]) if len(reports) == 1 else seeds_text(reports, mean(reports))


# -- what is asked for -----------------------------------------------------------------------------


def _loads(options: argparse.Namespace) -> Iterator[list[Trace]]:
    """Yield each load that is asked for, as a list of what its seeds draw."""
    if bool(options.source) == (options.arrivals is not None):
        raise ConfigError(
            f"a load is wanted: one of {', '.join(GENERATED)}, a .toml file, or --arrivals FILE"
        )
    if not options.span > 0:
        raise ConfigError(f"--span {options.span:g}: more than 0 seconds are wanted")
    for source in options.source or [None]:
        traces = _from_file(options) if source is None else _drawn(source, options)
        yield [_varied(trace, options) for trace in traces]


def _from_file(options: argparse.Namespace) -> list[Trace]:
    if options.seed is not None:
        raise ConfigError(f"--seed {options.seed}: nothing is drawn where --arrivals gives the requests")
    return [_cut(read_csv(options.arrivals, groups=options.groups), options.seconds)]


def _drawn(source: str, options: argparse.Namespace) -> list[Trace]:
    if source in GENERATED:
        draw_one = partial(generate, source, seconds=60.0 if options.seconds is None else options.seconds)
        return [draw_one(seed) for seed in _seeds(options.seed or "1")]
    if not source.endswith(".toml"):
        raise ConfigError(f"{source}: one of {', '.join(GENERATED)} or a .toml file is wanted")
    seeds: Sequence[int | None] = [None] if options.seed is None else _seeds(options.seed)
    return [_cut(read_toml(Path(source), seed=seed), options.seconds) for seed in seeds]


def _seeds(text: str) -> range:
    found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", text, re.ASCII)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
    if not 0 <= last - first < _MOST_SEEDS:
        raise ConfigError(
            f"--seed {text}: a whole number or two, as 1-5, at most {_MOST_SEEDS} seeds, are wanted"
        )
    return range(first, last + 1)


def _cut(trace: Trace, seconds: float | None) -> Trace:
    return trace if seconds is None else shortened(trace, seconds)


def _varied(trace: Trace, options: argparse.Namespace) -> Trace:
    if options.groups is not None:
        trace = with_groups(trace, options.groups)
    return trace if options.window is None else with_window(trace, options.window)


# -- the picture -----------------------------------------------------------------------------------


def _check_timeline(
    options: argparse.Namespace, loads: Sequence[Sequence[Trace]], policies: Sequence[str]
) -> None:
    path: Path | None = options.timeline
    if path is None:
        return
    if path.suffix != ".svg":
        raise ConfigError(f"--timeline {path}: the name of an .svg file is wanted")
    if len(policies) * sum(len(load) for load in loads) > 1:
        raise ConfigError(f"--timeline {path}: draws one policy on one load")


def _write(report: Report, played: Played, path: Path, seconds: float) -> None:
    title = f"{report.trace} under {report.policy}: {report.goodput:.1%} in time"
    try:
        path.write_text(svg(draw(played, title=title, seconds=seconds)))
    except OSError as error:
        raise ConfigError(f"--timeline {path}: {error.strerror or error}") from error
