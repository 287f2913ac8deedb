"""The NPU and its memory as one machine with a clock: what all ways to it share."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, final

from repertory.transports.world import World

from .core import Core
from .faults import Faults
from .graphs import Graphs
from .job import Job
from .memory import Mmz
from .order import Order
from .parameters import SimulatedNpu
from .program import Work

__all__ = ["NpuMachine"]

T = TypeVar("T")

_ENOUGH: Final = "no descriptor is left"


@final
class NpuMachine:
    """Holds what changes by calls and by time, and guards it.

    In real time a thread computes answers while a descriptor of the NPU is open; in virtual time they are
    there as soon as a job begins.

    Args:
        world: real or virtual; entered.
        params: what it is like.

    Attributes:
        world: likewise.
        params: likewise.
        condition: hold it while you touch what follows.
        switches: faults to come.
        notes: what hosts did wrong and no status told.
        mmz: its memory.
        core: its NPU.
    """

    def __init__(self, world: World, params: SimulatedNpu) -> None:
        self.world = world
        self.params = params
        self.condition = world.condition()
        self.switches = Faults()
        self.notes: list[str] = []
        self.mmz = Mmz(params.zones, self.switches, self.notes.append)
        self.core = Core(
            self._begin, params.seen_at, self.switches, inline=world.virtual, wanted=self.condition.notify
        )
        self._graphs = Graphs()
        self._owners = 0
        self._computing = False

    def owner(self) -> int:
        """Return a number for somebody who opens memory."""
        with self.condition:
            self._owners += 1
            return self._owners

    def call(self, operation: Callable[[float], T]) -> T:
        """Bring everything up to the present, do something, and let all who wait look again."""
        with self.condition:
            now = self.world.now()
            self.core.unit.advance(now)
            try:
                return operation(now)
            finally:
                self.condition.notify()

    async def wait(
        self,
        ready: Callable[[float], T],
        *,
        timeout: float | None = None,
        until: Callable[[], float] = lambda: math.inf,
    ) -> T:
        """Bring everything up to the present and call `ready`, until it is true or time is up.

        It is called whenever something changed, and at the time that `until` tells.
        """

        def look() -> T:
            now = self.world.now()
            self.core.unit.advance(now)
            return ready(now)

        return await self.condition.wait(
            look, timeout=timeout, next_event=lambda: min(self.core.unit.next_event(), until())
        )

    def open_file(self) -> None:
        """Open the NPU's node; the condition is held."""
        self.core.open_file()
        if not self.world.virtual and not self._computing:
            self._computing = True
            self.world.spawn(self._compute, name="repertory: simulated NPU")

    def _begin(self, order: Order) -> Work:
        return Work(self.mmz, self._graphs, self.params, order, self.notes.append)

    async def _compute(self) -> None:
        while isinstance(job := await self.wait(self._next), Job):
            if job.work is not None:
                job.work.compute()
            self.call(partial(self.core.unit.computed, job))

    def _next(self, _now: float) -> Job | str | None:
        if not self.core.counts[0]:
            self._computing = False
            return _ENOUGH
        return self.core.unit.claim()
