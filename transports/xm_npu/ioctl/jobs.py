"""The jobs of ours that the driver has, their ends, and how the NPU is made usable again after a bad one."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import Final, final

from repertory.models.errors import DeviceError, DeviceHung, DeviceLost, again
from repertory.transports.frame import Fate
from repertory.transports.world import World
from repertory.transports.xm_npu.errors import NpuRefusal
from repertory.transports.xm_npu.npu import Ended, Run

from .flight import Flight, somebody, taken_along, unusable, verdicts
from .generation import JobState
from .node import NpuNode
from .waiter import Landing, Waiter
from .window import Window

__all__ = ["JobQueue"]

_QUEUE_LOST: Final = frozenset({errno.EFAULT, errno.EBUSY})


@final
class JobQueue:
    """Our part of the NPU's one queue.

    A job that fails takes all behind it along, those of other processes too. Then the queue is made anew.

    Args:
        world: real or virtual.
        node: with a queue.
        bell: to be rung when `collect` may have something.
        reload: brings every graph's code and parameters into memory again, which a job that went astray may
            have written over.
    """

    def __init__(
        self,
        world: World,
        node: NpuNode,
        bell: Callable[[], None],
        reload: Callable[[], None],
    ) -> None:
        self._now = world.now
        self._node = node
        self._bell = bell
        self._reload = reload
        self._waiter = Waiter(world, node, bell)
        self._flights: list[Flight] = []
        self._last = 0
        self._trouble: DeviceError | None = None
        self._foreign = False  # the queue is another's by now
        self._sure = True  # else nobody knows whether it is
        self._fatal: DeviceError | None = None

    @property
    def jobs(self) -> int:
        """How many of ours the driver has."""
        return sum(len(flight.jobs) for flight in self._flights)

    async def submit(self, run: Run, window: Window) -> None:
        """Queue the jobs of a run.

        Where the queue is lost, or is lost in the middle of it, that is no refusal: the run ends as UNDONE.

        Raises:
            NpuRefusal: nothing of it was queued.
            DeviceLost, DeviceHung: the NPU is unusable.
        """
        if self._fatal is not None:
            raise again(self._fatal)
        flight = Flight(run, window.name)
        for step in window.steps:
            try:
                job = await self._node.submit(step)
            except NpuRefusal as refusal:
                if not flight.jobs and refusal.status not in _QUEUE_LOST:
                    raise
                flight.whole = self._sure = False
                self._troubled(refusal)
                break
            self._number(job)
            flight.jobs.append(job)
            self._waiter.watch(job)
        self._flights.append(flight)

    async def collect(self) -> list[Ended]:
        """See `Npu.collect`."""
        if self._fatal is not None:
            raise again(self._fatal)
        ended = self._land(self._waiter.take())
        if self._trouble is None:
            return ended
        return await self._recovered(ended, None)

    async def break_off(self, why: DeviceError) -> list[Ended]:
        """See `Npu.break_off`: the oldest run is spared once if it has not begun, and never blamed then."""
        if not self._flights:
            return []
        oldest = self._flights[0]
        await self._waiter.park()
        ended = self._land(self._waiter.take())
        stuck = self._trouble is None and not ended and await self._stuck(oldest, ended)
        if self._trouble is None and not stuck:
            self._waiter.go_on()
            return ended
        return await self._recovered(ended, why, oldest if stuck else None)

    async def _stuck(self, oldest: Flight, ended: list[Ended]) -> bool:
        """Whether the oldest run has begun and does not end; `ended` gets it if it has in this moment."""
        job = oldest.jobs[0]
        try:
            status = await self._node.query(job)
        except NpuRefusal as refusal:
            self._failed(oldest, Landing(job, self._now(), None, refusal))
            return False
        if status.state == JobState.PEND:
            if oldest.spared:
                self._troubled(DeviceError("jobs of another program before it do not end", family="xm-npu"))
            oldest.spared = True
        elif not status.pending:
            self._waiter.unwatch(job)
            ended += self._land([Landing(job, self._now(), status)])
        return status.state == JobState.PROCESS

    async def close(self) -> None:
        """Stop the NPU if a job of ours runs, and leave the queue. Raises DeviceErrors, once all is tried."""
        await self._waiter.close()
        if self.jobs:
            await self._node.reset()

    def _troubled(self, error: DeviceError, *, foreign: bool = False) -> None:
        self._foreign = self._foreign or foreign
        if self._trouble is None:
            self._trouble = error
        self._bell()

    def _number(self, job: int) -> None:
        """Job numbers rise, unless somebody else has made the queue anew."""
        if job <= self._last:
            self._troubled(somebody(), foreign=True)
        self._last = job

    def _land(self, landings: Iterable[Landing]) -> list[Ended]:
        """Note what the driver said, and return the runs that are done."""
        ended: list[Ended] = []
        for landing in landings:
            flight = next((each for each in self._flights if landing.job in each.jobs), None)
            if flight is None:
                continue
            if not landing.well:
                self._failed(flight, landing)
                continue
            flight.jobs.remove(landing.job)
            if flight.whole and not flight.jobs:
                self._flights.remove(flight)
                ended.append(Ended(flight.run, Fate.DONE, landing.at))
        return ended

    def _failed(self, flight: Flight, landing: Landing) -> None:
        """Note why a job did not end well, and whether that is its own fault."""
        status = landing.status
        if status is None:  # of a job that was submitted: the queue that it was in is gone
            self._troubled(landing.error or somebody(), foreign=True)
        elif status.pending:
            pass  # a look at it, and no end
        elif status.state == JobState.ABORT and not status.report:
            self._troubled(taken_along("a job of another process"))
        elif status.state == JobState.UNKNOWN:
            self._troubled(somebody(), foreign=True)
        else:
            self._troubled(flight.blamed(status))

    async def _recovered(
        self, ended: list[Ended], why: DeviceError | None, hung: Flight | None = None
    ) -> list[Ended]:
        """Make the NPU usable again, and say of every run what became of it."""
        try:
            await self._waiter.park()
            ended += self._land(self._waiter.take())
            ended += self._land(await self._looks())
            ends = verdicts(self._flights, self._now(), hung=hung, why=why, trouble=self._trouble)
            await self._renew()
        except DeviceError as error:
            self._fatal = error if isinstance(error, DeviceHung | DeviceLost) else unusable(error)
            if not ended:
                raise again(self._fatal) from error
            self._bell()  # what is done is told first
            return ended
        return [*ended, *ends]

    async def _looks(self) -> list[Landing]:
        """Look at the jobs that nobody has asked for, unless their numbers may be somebody else's by now.

        A submit is refused alike by an NPU that has aborted and where the queue is gone. Then only the blame
        is believed: a job that seems to have ended well runs again.
        """
        landings: list[Landing] = []
        if self._foreign:
            return landings
        for job in [job for flight in self._flights if flight.blame is None for job in flight.jobs]:
            try:
                landings.append(Landing(job, self._now(), await self._node.query(job)))
            except NpuRefusal:
                return []  # it is another's, and so may be what was told before
        return [landing for landing in landings if self._sure or not landing.well]

    async def _renew(self) -> None:
        """Reset the NPU; job numbers begin at 1 again, so nobody may ask for an old one from here on."""
        await self._node.reset()
        await self._node.create_queue()
        self._waiter.forget()
        self._flights.clear()
        self._last, self._trouble, self._foreign, self._sure = 0, None, False, True
        self._reload()
        self._waiter.go_on()
