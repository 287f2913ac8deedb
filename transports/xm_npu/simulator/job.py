"""Jobs of an NPU, and the states of both."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import final

from .faults import Fault
from .order import Order
from .program import Work

__all__ = ["DeviceState", "Job", "JobState"]


@final
class DeviceState(IntEnum):
    """Of the NPU, as its driver has it."""

    IDLE = 1
    BUSY = 2
    ABORTED = 3
    DRAINING = 4


@final
class JobState(IntEnum):
    """As WAIT and QUERY tell it."""

    PEND = 0
    PROCESS = 1
    SUCCESS = 2
    SYNC = 3
    TEMP = 4
    ABORT = 5
    UNKNOWN = 6


@final
class Job:
    """One job.

    Attributes:
        id: within its queue.
        order: what to run.
        state: of it.
        report: DFX report of its abort; 0 where another's abort took it along.
        work: its run, from when it begins, if it begins well, until its results are there.
        claimed: whether somebody computes it, or has.
        ready: whether its answers are there.
        begun: when it began.
        ends: when it ends, or did; infinite until it has begun.
        fault: what befalls it.
    """

    def __init__(self, number: int, order: Order) -> None:
        self.id = number
        self.order = order
        self.state = JobState.PEND
        self.report = 0
        self.work: Work | None = None
        self.claimed = False
        self.ready = False
        self.begun = math.inf
        self.ends = math.inf
        self.fault: Fault | None = None

    @property
    def ended(self) -> bool:
        """Whether it will not change any more."""
        return self.state in {JobState.SUCCESS, JobState.ABORT, JobState.UNKNOWN}
