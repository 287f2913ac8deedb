"""The NPU and its driver of generation V500 as a state machine: no input or output, and no clock of its own.

Whoever calls holds what guards it. Methods raise OSError with the errno of the driver.
"""

from __future__ import annotations

import errno
import math
from collections import deque
from collections.abc import Callable
from typing import Final, final

from .faults import Fault, Faults, Kind
from .job import DeviceState, Job, JobState
from .memory import refuse
from .order import Order
from .program import Work
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
        state: of the device.
        aborts: how many jobs the NPU has stopped in.
        jobs: how many have ended well.
        resets: how often it was reset.
        stopped: why it stopped last, where its code or its addresses were to blame.
        gone: whether it has vanished.
        deepest: the most jobs that were with the driver at a time.
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
        self.state = DeviceState.IDLE
        self.aborts = self.jobs = self.resets = 0
        self.stopped: Stopped | None = None
        self.gone = False
        self.deepest = 0
        self._begin = begin
        self._seen_at = seen_at
        self._faults = faults
        self._inline = inline
        self._wanted = wanted
        self._files = self._opens = self._queues = 0
        self._window = _WHOLE
        self._last = 0
        self._jobs: dict[int, Job] = {}
        self._pending: deque[Job] = deque()
        self._running: Job | None = None

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
            self._drop()
            self._stop()

    def open(self, base: int, end: int) -> None:
        """Count a use; only the first programs the window and lets the NPU interrupt."""
        self._check()
        if not self._opens:
            self._window = (base, end)
        self._opens += 1

    def close(self) -> None:
        """Count a use less; queues are dropped with the last one."""
        self._check()
        if not self._opens:
            refuse(errno.EINVAL, "CLOSE of what is not open")
        self._opens -= 1
        if not self._opens:
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
        while self._pending:
            self._pending.popleft().state = JobState.UNKNOWN
        if self._running is not None and self.state is DeviceState.BUSY:
            return True
        self._drop()
        return False

    @property
    def depth(self) -> int:
        """Jobs that run or wait."""
        return len(self._pending) + (self._running is not None)

    @property
    def runs(self) -> bool:
        """Whether a job runs."""
        return self._running is not None

    def orphan(self) -> None:
        """Give up a queue, whose last job may still run.

        Raises:
            OSError: EPERM, it does.
        """
        self._drop()
        if self._running is not None:
            self._running.state = JobState.UNKNOWN
            self.state = DeviceState.DRAINING
            refuse(errno.EPERM, "DESTROY_QUEUE: the job that runs does not end")

    def reset(self) -> None:
        """Drop queues, and make the NPU usable.

        Raises:
            OSError: EIO, it will not stop.
        """
        self._check()
        self._drop()
        if self._running is None and self.state is not DeviceState.ABORTED:
            return
        if self._faults.stuck:
            refuse(errno.EIO, "RESET: the NPU will not stop")
        self._stop()
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
        self._pending.append(job)
        self.deepest = max(self.deepest, len(self._pending) + (self._running is not None))
        self._next(now)
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

    # -- time --------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Do all that falls due up to `now`."""
        while (job := self._running) is not None and job.ready and job.ends <= now:
            self._end(job)

    def next_event(self) -> float:
        """Return when something will happen by itself."""
        job = self._running
        return job.ends if job is not None and job.ready else math.inf

    def claim(self) -> Job | None:
        """Return the job whose answers are to be computed, once."""
        job = self._running
        if job is None or job.claimed:
            return None
        job.claimed = True
        return job

    def computed(self, job: Job, now: float) -> None:
        """Note that a claimed job's answers are there."""
        job.ready = True
        job.ends = max(job.ends, self._seen_at(now))

    # -- inside ------------------------------------------------------------------------------------

    def _next(self, now: float) -> None:
        """Begin the next job, if the NPU is idle."""
        if self._running is not None or not self._pending or self.state is not DeviceState.IDLE:
            return
        job = self._running = self._pending.popleft()
        job.state = JobState.PROCESS
        job.begun = now
        self.state = DeviceState.BUSY
        job.fault = self._faults.job()
        try:
            job.work = self._begin(job.order)
        except Stopped as stop:
            self.stopped = stop
            job.fault = Fault(Kind.ABORT, report=stop.report)
        self._plan(job, now)

    def _plan(self, job: Job, now: float) -> None:
        """Fix when it ends; without interrupts, which OPEN lets through, nobody ever sees it."""
        kind = None if job.fault is None else job.fault.kind
        seconds = 0.0 if job.work is None else job.work.seconds
        if kind in {Kind.ABORT, Kind.FOREIGN_RESET, Kind.GONE}:
            seconds /= 2
        elif kind is Kind.SLOW and job.fault is not None:
            seconds *= job.fault.factor
        job.ends = self._seen_at(now + seconds)
        if kind is Kind.HANG or not self._opens:
            job.ends = math.inf
        if job.work is None or kind in {Kind.ABORT, Kind.FOREIGN_RESET, Kind.GONE, Kind.HANG}:
            job.claimed = job.ready = True
        elif self._inline:
            job.work.compute()
            job.claimed = job.ready = True
        else:
            self._wanted()

    def _end(self, job: Job) -> None:
        """Let what was planned for a job come true."""
        at, kind = job.ends, None if job.fault is None else job.fault.kind
        if kind is Kind.FOREIGN_RESET:
            self._drop()
            self._stop()
        elif kind is Kind.GONE:
            self._vanish()
        elif kind is Kind.ABORT and job.fault is not None:
            self._abort(job, job.fault.report)
        else:
            self._finish(job, at, told=kind is not Kind.LOST_INTERRUPT)

    def _finish(self, job: Job, at: float, *, told: bool) -> None:
        try:
            if job.work is not None:
                job.work.finish()
                job.work = None
        except Stopped as stop:
            self.stopped = stop
            self._abort(job, stop.report)
            return
        if not told:
            job.ends = math.inf
            return
        self.jobs += 1
        self._settle(job, JobState.SUCCESS)
        self.state = DeviceState.IDLE
        self._next(at)

    def _abort(self, job: Job, report: int) -> None:
        """Stop: the job and all behind it fail, and until a RESET nothing begins."""
        self.aborts += 1
        if job.work is not None:
            job.work.break_off()
        job.report = report
        self._settle(job, JobState.ABORT)
        self.state = DeviceState.ABORTED
        while self._pending:
            self._pending.popleft().state = JobState.ABORT

    def _settle(self, job: Job, state: JobState) -> None:
        if self.state is not DeviceState.DRAINING:
            job.state = state
        self._running = None

    def _vanish(self) -> None:
        self.gone = True
        self._drop()
        self._stop()

    def _drop(self) -> None:
        """Drop the queue and all that waits in it; a job that runs goes on."""
        for job in self._jobs.values():
            if not job.ended and job is not self._running:
                job.state = JobState.UNKNOWN
        self._queues = 0
        self._jobs = {}
        self._pending.clear()

    def _stop(self) -> None:
        """Stop the job that runs, if any."""
        if self._running is not None:
            if self._running.work is not None:
                self._running.work.break_off()
            self._running.state = JobState.UNKNOWN
            self._running = None
        self.state = DeviceState.IDLE

    def _check(self) -> None:
        if self.gone:
            refuse(errno.ENODEV, "the NPU is gone")

    def _check_queue(self, call: str) -> None:
        self._check()
        if not self._queues:
            refuse(errno.EFAULT, f"{call}: there is no queue")
