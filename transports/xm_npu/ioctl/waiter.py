"""The loop that waits for jobs: the driver has no `poll`, so somebody has to stand in its blocking call."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from repertory.models.errors import DeviceError, DeviceHung, DeviceLost
from repertory.transports.world import World

from .generation import JobState
from .node import JobStatus, NpuNode

__all__ = ["PARK_BOUND", "SLICE", "Landing", "Waiter"]

SLICE: Final = 0.25
"""Seconds of one WAIT_JOB; so long, at most, the loop takes until it sees that it shall stop."""

PARK_BOUND: Final = 5.0
"""Seconds in which it must have come back from the driver."""

_log = logging.getLogger("repertory.xm_npu")


@final
@dataclass(frozen=True, slots=True)
class Landing:
    """What the driver said of a job.

    Attributes:
        job: its number.
        at: when, on the world's clock.
        status: the answer, or None where the call failed.
        error: why it did.
    """

    job: int
    at: float
    status: JobStatus | None
    error: DeviceError | None = None

    @property
    def well(self) -> bool:
        """Whether it ran to its end."""
        return self.status is not None and self.status.state == JobState.SUCCESS


@final
class Waiter:
    """Waits for jobs in their order, in a driver loop of its own.

    After the first that did not end well it parks: it makes no call until it is told to go on. For after a
    reset, ours or somebody else's, job numbers begin at 1 again, and a late call for an old job would take a
    new one's result.

    Args:
        world: real or virtual.
        node: whom to ask.
        bell: called, in the loop, after each landing.
    """

    def __init__(self, world: World, node: NpuNode, bell: Callable[[], None]) -> None:
        self._world = world
        self._node = node
        self._bell = bell
        self._condition = world.condition()
        self._jobs: deque[int] = deque()
        self._landings: list[Landing] = []
        self._asking = False
        self._parked = False
        self._closing = False
        self._over = False
        world.spawn(self._run, name="repertory: npu jobs")

    def watch(self, job: int) -> None:
        """Wait for this job too."""
        with self._condition:
            self._jobs.append(job)
            self._condition.notify()

    def unwatch(self, job: int) -> None:
        """Wait for this job no longer: somebody has asked how it ended; parked."""
        with self._condition:
            self._jobs.remove(job)

    def take(self) -> list[Landing]:
        """Return what has landed since.

        Raises:
            DeviceLost: the loop has ended by itself, and nothing will land any more.
        """
        with self._condition:
            landings, self._landings = self._landings, []
            if self._over and not landings:
                raise DeviceLost("the loop that waits for jobs has ended", family="xm-npu")
        return landings

    async def park(self) -> None:
        """Stop asking; returns when no call is out, so that the queue may be dropped.

        Raises:
            DeviceHung: the driver does not give the call back.
        """
        with self._condition:
            self._parked = True
        if not await self._condition.wait(
            lambda: self._over or not self._asking, timeout=PARK_BOUND, next_event=_never
        ):
            raise DeviceHung(
                f"WAIT_JOB has not come back within {PARK_BOUND:g} s", family="xm-npu", call="WAIT_JOB"
            )

    def forget(self) -> None:
        """Forget all jobs; parked."""
        with self._condition:
            self._jobs.clear()
            self._landings.clear()

    def go_on(self) -> None:
        """Ask again."""
        with self._condition:
            self._parked = False
            self._condition.notify()

    async def close(self) -> None:
        """End the loop. Never raises; any number of times."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if not await self._condition.wait(lambda: self._over, timeout=PARK_BOUND, next_event=_never):
            _log.warning("WAIT_JOB has not come back within %g s; its thread is left behind", PARK_BOUND)

    async def _run(self) -> None:
        try:
            while not self._closing:
                job = await self._condition.wait(self._next, timeout=None, next_event=_never)
                if job > 0:
                    self._told(job, await self._ask(job))
        finally:
            with self._condition:
                self._asking, self._over = False, True
                self._condition.notify()
            self._bell()

    def _next(self) -> int:
        """Return the next job to ask for; 0 while there is none, -1 at the end."""
        if self._closing:
            return -1
        if self._parked or not self._jobs:
            return 0
        self._asking = True
        return self._jobs.popleft()

    async def _ask(self, job: int) -> Landing | None:
        try:
            status = await self._node.wait(job, SLICE)
        except DeviceError as error:
            return Landing(job, self._world.now(), None, error)
        return None if status is None or status.pending else Landing(job, self._world.now(), status)

    def _told(self, job: int, landing: Landing | None) -> None:
        with self._condition:
            self._asking = False
            if landing is None:
                self._jobs.appendleft(job)
            else:
                self._landings.append(landing)
                self._parked = self._parked or not landing.well
            self._condition.notify()
        if landing is not None:
            self._bell()


def _never() -> float:
    return math.inf
