"""The NPU itself: one job at a time, the others in line behind it, and what becomes of them in time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import final

from .faults import Fault, Faults, Kind
from .job import DeviceState, Job, JobState
from .order import Order
from .program import Work
from .window import Stopped

__all__ = ["Unit"]


@final
class Unit:
    """Jobs that run and wait. Whoever calls holds what guards it.

    Args:
        begin: begins a run.
        seen_at: when the end of a job is seen that ends then.
        faults: switches.
        inline: whether answers are computed as a job begins.
        wanted: called where they are not, for somebody to claim them.
        trouble: called where a job meets with what concerns more than this NPU.

    Attributes:
        state: of the device.
        audible: whether it may interrupt: else nobody ever sees an end.
        running: the job that runs, or None.
        aborts: how many jobs it has stopped in.
        jobs: how many have ended well.
        stopped: why it stopped last, where its code or its addresses were to blame.
        deepest: the most jobs that it had at a time.
    """

    def __init__(
        self,
        begin: Callable[[Order], Work],
        seen_at: Callable[[float], float],
        faults: Faults,
        *,
        inline: bool,
        wanted: Callable[[], None],
        trouble: Callable[[Kind], None],
    ) -> None:
        self.state = DeviceState.IDLE
        self.audible = False
        self.running: Job | None = None
        self.aborts = self.jobs = self.deepest = 0
        self.stopped: Stopped | None = None
        self._begin = begin
        self._seen_at = seen_at
        self._faults = faults
        self._inline = inline
        self._wanted = wanted
        self._trouble = trouble
        self._pending: deque[Job] = deque()

    @property
    def depth(self) -> int:
        """Jobs that run or wait."""
        return len(self._pending) + (self.running is not None)

    def put(self, job: Job, now: float) -> None:
        """Take a job; it begins at once if none runs."""
        self._pending.append(job)
        self.deepest = max(self.deepest, self.depth)
        self._next(now)

    def drop_pending(self, state: JobState) -> None:
        """Let go of what waits."""
        while self._pending:
            self._pending.popleft().state = state

    def stop(self) -> None:
        """Stop the job that runs, if any."""
        if self.running is not None:
            if self.running.work is not None:
                self.running.work.break_off()
            self.running.state = JobState.UNKNOWN
            self.running = None
        self.state = DeviceState.IDLE

    # -- time --------------------------------------------------------------------------------------

    def advance(self, now: float) -> None:
        """Do all that falls due up to `now`."""
        while (job := self.running) is not None and job.ready and job.ends <= now:
            self._end(job)

    def next_event(self) -> float:
        """Return when something will happen by itself."""
        job = self.running
        return job.ends if job is not None and job.ready else math.inf

    def claim(self) -> Job | None:
        """Return the job whose answers are to be computed, once."""
        job = self.running
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
        if self.running is not None or not self._pending or self.state is not DeviceState.IDLE:
            return
        job = self.running = self._pending.popleft()
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
        if kind is Kind.HANG or not self.audible:
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
        if kind in {Kind.FOREIGN_RESET, Kind.GONE}:
            self._trouble(kind)
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
        self.drop_pending(JobState.ABORT)

    def _settle(self, job: Job, state: JobState) -> None:
        if self.state is not DeviceState.DRAINING:
            job.state = state
        self.running = None
