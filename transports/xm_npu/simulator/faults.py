"""What can go wrong with a simulated NPU, decided job by job, or switched on at any time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias, final

__all__ = ["Fault", "Faults", "Kind", "Rule", "scripted", "seeded"]


@final
class Kind(Enum):
    """Faults of jobs."""

    ABORT = auto()
    """The NPU stops half-way, with a report; until a RESET nothing runs."""
    HANG = auto()
    """It never ends, until a RESET."""
    LOST_INTERRUPT = auto()
    """Its results are there, and nobody is told: the driver takes it for running until a RESET."""
    SLOW = auto()
    """It takes `factor` times as long."""
    FOREIGN_RESET = auto()
    """While it runs another process resets the NPU: queues and jobs are gone."""
    GONE = auto()
    """While it runs the device vanishes: each call fails with ENODEV."""


@final
@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: which.
        report: DFX report of an abort.
        factor: of a slow job.
    """

    kind: Kind
    report: int = 0x000400
    factor: float = 10.0


Rule: TypeAlias = Callable[[int], Fault | None]
"""Asked with the number of a job, counted from 0 over all queues, as the NPU begins it."""


def scripted(faults: Mapping[int, Fault]) -> Rule:
    """Return a rule that lets a fault befall the job with that number."""
    return faults.get


def seeded(seed: int, rate: float, faults: Sequence[Fault]) -> Rule:
    """Return a rule that lets any of the faults befall a job, at that rate."""
    draw = random.Random(seed)  # noqa: S311  (faults are to be repeatable)
    return lambda _number: draw.choice(faults) if draw.random() < rate else None


@final
@dataclass(slots=True)
class Faults:
    """Switches of a simulated NPU; set them at any time.

    Attributes:
        on_job: asked as the NPU begins a job.
        full: whether MMZ has nothing to give.
        stuck: whether a RESET fails, as the NPU will not stop.
    """

    on_job: Rule | None = None
    full: bool = False
    stuck: bool = False
    _jobs: int = field(default=0, repr=False)

    def job(self) -> Fault | None:
        """Decide about a job that begins."""
        number, self._jobs = self._jobs, self._jobs + 1
        return None if self.on_job is None else self.on_job(number)
