"""Runs whose jobs the driver has, and what is said of them where the queue was lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from repertory.models.errors import DeviceError, DeviceLost
from repertory.transports.frame import Fate
from repertory.transports.xm_npu.errors import NpuAborted
from repertory.transports.xm_npu.npu import Ended, Run

from .generation import JobState
from .node import JobStatus

__all__ = ["Flight", "somebody", "taken_along", "unusable", "verdicts"]

_STOPPED: Final[Mapping[int, str]] = {
    JobState.SYNC: "was stopped by the code",
    JobState.TEMP: "is at a breakpoint",
    JobState.ABORT: "aborted its job",
}


@final
@dataclass(slots=True, eq=False)
class Flight:
    """A run whose jobs the driver has.

    Attributes:
        run: which.
        name: of its model.
        jobs: those that have not ended.
        whole: whether all its jobs were submitted.
        spared: whether it was to be broken off, and had not begun.
        blame: why it is to blame for a failure, where it is.
    """

    run: Run
    name: str
    jobs: list[int] = field(default_factory=list[int])
    whole: bool = True
    spared: bool = False
    blame: NpuAborted | None = None

    def blamed(self, status: JobStatus) -> NpuAborted:
        """Note that it stopped the NPU."""
        how = _STOPPED.get(status.state, f"ended its job in state {status.state}")
        self.blame = NpuAborted(f"{self.name}: the NPU {how}", call="WAIT_JOB", report=status.report)
        return self.blame


def verdicts(
    flights: Sequence[Flight],
    at: float,
    *,
    hung: Flight | None,
    why: DeviceError | None,
    trouble: DeviceError | None,
) -> list[Ended]:
    """Say what became of runs that the NPU has lost: one is to blame at most, the others may run again.

    Args:
        flights: in the order of their jobs.
        at: when.
        hung: the one that did not end, if one did not; another's abort comes first.
        why: its error.
        trouble: what is told where nobody is to blame.
    """
    blamed = next((flight for flight in flights if flight.blame is not None), None)
    if blamed is None and hung in flights:
        blamed = hung
    ends = list[Ended]()
    for flight in flights:
        if flight is blamed:
            ends.append(Ended(flight.run, Fate.FAILED, at, flight.blame or why))
        else:
            cause = taken_along(blamed.name) if blamed else _not_run(trouble)
            ends.append(Ended(flight.run, Fate.UNDONE, at, cause))
    return ends


def taken_along(name: str) -> DeviceError:
    """Another job aborted."""
    return DeviceError(f"the job was dropped: the abort of {name} took it along", family="xm-npu")


def somebody() -> DeviceError:
    """Another process has reset the NPU."""
    return DeviceError("the job was dropped: somebody else has reset the NPU", family="xm-npu")


def unusable(error: DeviceError) -> DeviceLost:
    """It did not become usable again."""
    return DeviceLost(
        f"the NPU cannot be made usable again: {error}",
        family="xm-npu",
        call=error.call,
        status=error.status,
    )


def _not_run(cause: object) -> DeviceError:
    return DeviceError(f"the job was not run: {cause}", family="xm-npu")
