"""Policies side by side, on one load or on several seeds of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

from repertory.runtime.policies.named import policy_named

from .bound import clairvoyant_bound, throughput_bound
from .optimum import cameras_optimum
from .played import Played
from .report import Report, report
from .runner import plan_trace
from .trace import Trace

__all__ = ["Ceilings", "ceilings", "compare", "play"]


@final
class Ceilings(NamedTuple):
    """What no policy can exceed on a load, or None where nothing is known or was not asked for.

    Attributes:
        bound: share of its requests, 0 to 1.
        optimum: likewise.
        throughput: answers in time a second.
    """

    bound: float | None
    optimum: float | None
    throughput: float | None


def ceilings(trace: Trace, *, optimum: bool = False) -> Ceilings:
    """Reckon what is at most achievable; the optimum, which may take as long as a plan, if asked for."""
    bound = clairvoyant_bound(trace)
    best = cameras_optimum(trace) if optimum else None
    if bound is None:
        return Ceilings(None, best, throughput_bound(trace))
    return Ceilings(bound, best, bound * len(trace.arrivals) / trace.seconds)


def play(trace: Trace, policy: str) -> Played:
    """Play a load under a named policy, a new one of its kind.

    Raises:
        ConfigError: there is no such policy, or a group's address is wrong.
        ArtifactError: a model file cannot be read, or no group takes it.
    """
    return plan_trace(trace, policy_named(policy))


def compare(
    trace: Trace, policies: Sequence[str], *, optimum: bool = False
) -> Iterator[tuple[Report, Played]]:
    """Play a load under each policy, and put beside it what is achievable.

    Args:
        trace: the load.
        policies: their names.
        optimum: whether to search the optimum too.

    Raises:
        ConfigError: there is no such policy, or a group's address is wrong.
        ArtifactError: a model file cannot be read, or no group takes it.
    """
    for policy in policies:
        policy_named(policy)
    known = ceilings(trace, optimum=optimum)
    for policy in policies:
        played = play(trace, policy)
        yield _told(played, policy, known), played


def _told(played: Played, policy: str, known: Ceilings) -> Report:
    return report(
        played, policy=policy, bound=known.bound, optimum=known.optimum, bound_per_second=known.throughput
    )
