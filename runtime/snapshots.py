"""How statistics are read off the actors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repertory.actors.context import ModelContext
from repertory.actors.group import DeviceGroup
from repertory.actors.policy import used
from repertory.transports.frame import Outcome

from .statistics import GroupStatistics, ModelStatistics
from .telemetry import Telemetry

__all__ = ["group_statistics", "model_statistics"]


def model_statistics(
    context: ModelContext, groups: Sequence[DeviceGroup], telemetry: Telemetry, now: float
) -> ModelStatistics:
    """Return one model's numbers."""
    p50, p99, p999 = _percentiles(context)
    outcomes = context.outcomes
    return ModelStatistics(
        offered=context.admitted + len(context.places) + context.refused.total(),
        queueing=len(context.places),
        admitted=context.admitted,
        answered=outcomes[Outcome.ANSWERED],
        failed=outcomes[Outcome.FAILED],
        expired=outcomes[Outcome.EXPIRED],
        cancelled=outcomes[Outcome.CANCELLED],
        superseded=outcomes[Outcome.SUPERSEDED],
        withdrawn=outcomes[Outcome.WITHDRAWN],
        waiting=context.state.waiting,
        in_flight=context.in_flight,
        refused={why: count for why, count in context.refused.items() if count},
        p50=p50,
        p99=p99,
        p999=p999,
        longest_wait=max(
            context.longest_wait, now - context.state.hungry_since if context.state.waiting else 0
        ),
        residency=_residency(context, groups, telemetry, now),
        swaps=sum(group.binds_for(context) for group in groups),
        evictions=sum(group.evictions_for(context) for group in groups),
        groups=[group.name for group in groups if context in group.contexts],
    )


def _percentiles(context: ModelContext) -> list[float] | list[None]:
    if not context.latencies:
        return [None, None, None]
    return [float(each) for each in np.percentile(np.fromiter(context.latencies, float), [50, 99, 99.9])]


def _residency(
    context: ModelContext, groups: Sequence[DeviceGroup], telemetry: Telemetry, now: float
) -> dict[str, float]:
    ages: dict[str, float] = {}
    for group in groups:
        entry = group.entry(context)
        if entry is not None and (key := entry.program.key) in group.state.residents:
            ages[group.name] = now - telemetry.resident_since[group.name][key]
    return ages


def group_statistics(group: DeviceGroup, telemetry: Telemetry, now: float) -> GroupStatistics:
    """Return one group's numbers."""
    split = group.flight.hours.split(now)
    capabilities = group.device.capabilities
    return GroupStatistics(
        family=capabilities.family,
        simulated=capabilities.simulated,
        in_service=group.error is None,
        error=None if group.error is None else str(group.error),
        residents=[program.name for program in group.state.residents.values()],
        in_flight=group.state.in_flight,
        completed=group.flight.completed,
        swaps=group.swaps,
        seconds=split.seconds,
        compute_seconds=split.compute,
        transfer_seconds=split.transfer,
        swap_seconds=split.swap,
        idle_with_work_seconds=split.idle_with_work,
        idle_seconds=split.idle,
        out_of_service_seconds=split.out_of_service,
        evictions=group.evictions,
        memory_used=used(group.state.residents.values()),
        memory=capabilities.memory,
        busy_seconds=group.flight.busy,
        incarnations=telemetry.incarnations.get(group.name, 0),
        readings={} if group.chart.health is None else dict(group.chart.health.readings),
    )
