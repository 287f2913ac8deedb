"""The NPU and its driver of generation V500 as a state machine: no input or output, and no clock of its own.

Whoever calls holds what guards it. Methods raise OSError with the errno of the driver.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, final

from .faults import Faults, Kind
from .job import DeviceState, Job, JobState
from .memory import refuse
from .order import Order
from .program import Work
from .unit import Unit
from .window import Stopped

__all__ = ["Core"]

_WHOLE: Final = (0, 0xFFFFFFFF)


@final
class Core:
    """One NPU: one hardware job at a time, one queue for all.

    Args:
        begin: begins a run.
        seen_at: when the end of a job is seen that ends then.
        faults: switches.
        inline: whether answers are computed as a job begins.
        wanted: called where they are not, for somebody to claim them.

    Attributes:
        unit: the NPU itself.
        resets: how often it was reset.
        gone: whether it has vanished.
    """

    def __init__(
        self,
        begin: Callable[[Order], Work],
        seen_at: Callable[[float], float],
        faults: Faults,
        *,
        inline: bool,
        wanted: Callable[[], None],
    ) -> None:
        self.unit = Unit(begin, seen_at, faults, inline=inline, wanted=wanted, trouble=self._met)
        self.resets = 0
        self.gone = False
        self._faults = faults
        self._files = self._opens = self._queues = 0
        self._window = _WHOLE
        self._last = 0
        self._jobs: dict[int, Job] = {}

    @property
    def state(self) -> DeviceState:
        """Of the device."""
        return self.unit.state

    @property
    def stopped(self) -> Stopped | None:
        """Why the NPU stopped last, where its code or its addresses were to blame."""
        return self.unit.stopped

    @property
    def depth(self) -> int:
        """Jobs that run or wait."""
        return self.unit.depth

    # -- files and queues --------------------------------------------------------------------------

    @property
    def counts(self) -> tuple[int, int, int]:
        """Files, opens and queues that are out."""
        return self._files, self._opens, self._queues

    def open_file(self) -> None:
        """Count a descriptor."""
        self._check()
        self._files += 1

    def release_file(self) -> None:
        """Count one less; with the last one queues are dropped and the hardware is closed."""
        self._files -= 1
        if not self._files:
            self._opens = 0
            self.unit.audible = False
            self._drop()
            self.unit.stop()

    def open(self, base: int, end: int) -> None:
        """Count a use; only the first programs the window and lets the NPU interrupt."""
        self._check()
        if not self._opens:
            self._window = (base, end)
        self._opens += 1
        self.unit.audible = True

    def close(self) -> None:
        """Count a use less; queues are dropped with the last one."""
        self._check()
        if not self._opens:
            refuse(errno.EINVAL, "CLOSE of what is not open")
        self._opens -= 1
        if not self._opens:
            self.unit.audible = False
            self._drop()

    def create_queue(self) -> None:
        """Count a queue; the first lets ids begin at 1."""
        self._check()
        if not self._queues:
            self._last = 0
            self._jobs = {}
        self._queues += 1

    def destroy_queue(self) -> bool:
        """Count a queue less; with the last one drop what is pending.

        Returns:
            Whether a job still runs that is to be waited for: see `orphan`.
        """
        self._check_queue("DESTROY_QUEUE")
        if self._queues > 1:
            self._queues -= 1
            return False
        self.unit.drop_pending(JobState.UNKNOWN)
        if self.unit.running is not None and self.state is DeviceState.BUSY:
            return True
        self._drop()
        return False

    @property
    def runs(self) -> bool:
        """Whether a job runs."""
        return self.unit.running is not None

    def orphan(self) -> None:
        """Give up a queue, whose last job may still run.

        Raises:
            OSError: EPERM, it does.
        """
        self._drop()
        if self.unit.running is not None:
            self.unit.running.state = JobState.UNKNOWN
            self.unit.state = DeviceState.DRAINING
            refuse(errno.EPERM, "DESTROY_QUEUE: the job that runs does not end")

    def reset(self) -> None:
        """Drop queues, and make the NPU usable.

        Raises:
            OSError: EIO, it will not stop.
        """
        self._check()
        self._drop()
        if self.unit.running is None and self.state is not DeviceState.ABORTED:
            return
        if self._faults.stuck:
            refuse(errno.EIO, "RESET: the NPU will not stop")
        self.unit.stop()
        self.resets += 1

    # -- jobs --------------------------------------------------------------------------------------

    def submit(self, order: Order, base: int, end: int, now: float) -> Job:
        """Queue a job; it begins at once on an idle NPU.

        Args:
            order: where its window is empty, that of `base` and `end` counts.
            base: of a new window for this and later jobs; 0 keeps the one there is.
            end: likewise.
            now: the time.

        Raises:
            OSError: EFAULT, there is no queue, or the NPU has aborted; EBUSY, it drains.
        """
        self._check_queue("SUBMIT_JOB")
        if self.state is DeviceState.ABORTED:
            refuse(errno.EFAULT, "SUBMIT_JOB: the NPU has aborted, and wants a RESET")
        if self.state is DeviceState.DRAINING:
            refuse(errno.EBUSY, "SUBMIT_JOB: the NPU drains")
        self._window = (base or self._window[0], end or self._window[1])
        self._last += 1
        job = self._jobs[self._last] = Job(self._last, order)
        self.unit.put(job, now)
        return job

    @property
    def window(self) -> tuple[int, int]:
        """Where the NPU may read and write."""
        return self._window

    def check_wait(self, number: int) -> None:
        """Check what WAIT and QUERY are asked for.

        Raises:
            OSError: EFAULT, there is no queue, or never was such a job.
        """
        self._check_queue("WAIT_JOB")
        if number > self._last:
            refuse(errno.EFAULT, f"WAIT_JOB of {number}: the last job is {self._last}")

    def ended(self, number: int) -> bool:
        """Whether there is something to report of a job."""
        job = self._jobs.get(number)
        return job is None or job.ended

    def look(self, number: int) -> tuple[JobState, int]:
        """Return a job's state and report; once it has ended it is collected by this."""
        job = self._jobs.get(number)
        if job is None:
            return JobState.UNKNOWN, 0
        if job.ended:
            del self._jobs[number]
        return job.state, job.report

    def forget(self, job: Job) -> None:
        """Collect a job that is at hand."""
        if self._jobs.get(job.id) is job:
            del self._jobs[job.id]

    # -- inside ------------------------------------------------------------------------------------

    def _met(self, kind: Kind) -> None:
        """Let somebody else reset the NPU, or let it vanish."""
        self.gone = self.gone or kind is Kind.GONE
        self._drop()
        self.unit.stop()

    def _drop(self) -> None:
        """Drop the queue and all that waits in it; a job that runs goes on."""
        self.unit.drop_pending(JobState.UNKNOWN)
        self._queues = 0
        self._jobs = {}

    def _check(self) -> None:
        if self.gone:
            refuse(errno.ENODEV, "the NPU is gone")

    def _check_queue(self, call: str) -> None:
        self._check()
        if not self._queues:
            refuse(errno.EFAULT, f"{call}: there is no queue")
