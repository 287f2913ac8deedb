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


def model_statistics(context: ModelContext, groups: Sequence[DeviceGroup]) -> ModelStatistics:
    """Return one model's numbers."""
    latencies = np.fromiter(context.latencies, float)
    p50, p99 = np.percentile(latencies, [50, 99]) if latencies.size else (None, None)
    outcomes = context.outcomes
    return ModelStatistics(
        admitted=context.admitted,
        answered=outcomes[Outcome.ANSWERED],
        failed=outcomes[Outcome.FAILED],
        expired=outcomes[Outcome.EXPIRED],
        cancelled=outcomes[Outcome.CANCELLED],
        superseded=outcomes[Outcome.SUPERSEDED],
        waiting=context.state.waiting,
        in_flight=context.in_flight,
        refused=dict(context.refused),
        p50=None if p50 is None else float(p50),
        p99=None if p99 is None else float(p99),
        swaps=sum(group.binds_for(context) for group in groups),
        evictions=sum(group.evictions_for(context) for group in groups),
        groups=[group.name for group in groups if context in group.contexts],
    )


def group_statistics(group: DeviceGroup, telemetry: Telemetry) -> GroupStatistics:
    """Return one group's numbers."""
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
        swap_seconds=telemetry.swap_seconds.get(group.name, 0.0),
        evictions=group.evictions,
        memory_used=used(group.state.residents.values()),
        memory=capabilities.memory,
        busy_seconds=group.flight.busy,
        incarnations=telemetry.incarnations.get(group.name, 0),
        readings={} if group.chart.health is None else dict(group.chart.health.readings),
    )
