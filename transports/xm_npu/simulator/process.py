"""The library's state in one process, and its worker: jobs go to the driver, ends come back."""

from __future__ import annotations

import math
from collections import deque
from typing import TypeAlias, final

from repertory.transports.xm_npu.cl.library import EventStatus, Notify

from .holdings import WHOLE, Event, HeldGraph
from .job import DeviceState, JobState
from .machine import NpuMachine

__all__ = ["Process"]

_Call: TypeAlias = tuple[Notify, int, EventStatus]

_FIRST_HANDLE = 0x1000
_STEP = 0x10


@final
class Process:
    """A process that uses the library. Whoever calls holds the machine's condition.

    Args:
        machine: what stands behind the driver.

    Attributes:
        owner: of its memory.
        uses: how often the library was initialised.
        context: the handle of its context, or 0; and how often that is held.
        context_refs: likewise.
        workspace: address and size that were noted in the context, or None.
        system: whether the system module is open.
        graphs: by handle.
        events: by handle, until they are released.
        queue: whether it has a queue.
        dead: whether the library has called `abort`, as the NPU could not be reset.
        shared: numbers of models that other cores may run.
    """

    def __init__(self, machine: NpuMachine) -> None:
        self.owner = machine.owner()
        self.uses = 0
        self.context = self.context_refs = 0
        self.workspace: tuple[int, int] | None = None
        self.system = False
        self.graphs: dict[int, HeldGraph] = {}
        self.events: dict[int, Event] = {}
        self.queue = False
        self.dead = False
        self.shared: set[int] = set()
        self._machine = machine
        self._core = machine.core
        self._handle = _FIRST_HANDLE
        self._ready: list[Event] = []
        self._flying: list[Event] = []
        self._calls: deque[_Call] = deque()
        self._working = False

    def handle(self) -> int:
        """Return a new handle."""
        self._handle += _STEP
        return self._handle

    # -- the queue ---------------------------------------------------------------------------------

    def open_queue(self) -> None:
        """Open the NPU and make a queue, if that was not done.

        Raises:
            OSError: the driver refuses.
        """
        if self.queue:
            return
        self._machine.open_file()
        self._core.open(0, WHOLE)
        self._core.create_queue()
        self.queue = True
        if not self._working:
            self._working = True
            self._machine.world.spawn(self._work, name="repertory: simulated libxmedia_cl")

    def close_queue(self) -> None:
        """Close the NPU; a job that still runs is stopped."""
        if self.queue:
            self.queue = False
            self._core.release_file()

    def die(self) -> None:
        """Give back what the kernel takes back when a process ends; whoever waits is let go."""
        self.dead = True
        for event in (*self._flying, *self._ready):
            self._settle(event, EventStatus.FAILED)
        self._ready.clear()
        self._calls.clear()
        self.close_queue()
        self._machine.mmz.close(self.owner)
        self.graphs.clear()
        self.events.clear()
        self.shared.clear()
        self.uses = self.context = self.context_refs = 0
        self.system = False

    # -- runs --------------------------------------------------------------------------------------

    def start(self, graph: HeldGraph, now: float) -> Event:
        """Queue a run."""
        event = Event(self.handle(), graph, graph.orders())
        self.events[event.handle] = event
        self._ready.append(event)
        self.pump(now)
        return event

    def pump(self, now: float) -> None:
        """Take the ends of jobs from the driver, and hand over what waits."""
        if not self.queue or self.dead:
            return
        self._core.unit.advance(now)
        for event in list(self._flying):
            self._look(event)
        hung = [event for event in self._flying if self._late(event, now)]
        for event in hung:
            self._settle(event, EventStatus.FAILED)
        if hung or self._core.state is DeviceState.ABORTED:
            self._recover()
        self._submit(now)

    def next_event(self) -> float:
        """Return when the watchdog bites."""
        bound = self._machine.params.watchdog_ms / 1e3
        return min((job.begun + bound for event in self._flying if (job := event.job)), default=math.inf)

    def _late(self, event: Event, now: float) -> bool:
        bound = self._machine.params.watchdog_ms / 1e3
        return event.job is not None and event.job.begun + bound <= now

    def _look(self, event: Event) -> None:
        """Let an event have the state of its job."""
        job = event.job
        if job is None:
            return
        if job.state is JobState.PROCESS:
            event.status = EventStatus.RUNNING
        if not job.ended:
            return
        self._core.forget(job)
        self._flying.remove(event)
        event.job = None
        if job.state is JobState.SUCCESS:
            event.todo.pop(0)
            if event.todo:
                self._ready.insert(0, event)
            else:
                self._settle(event, EventStatus.COMPLETED)
        elif job.state is JobState.ABORT and job.report:
            self._settle(event, EventStatus.FAILED)
        else:
            event.status = EventStatus.QUEUED
            self._ready.append(event)

    def _settle(self, event: Event, status: EventStatus) -> None:
        """Fix an event's end; a callback for the other end is dropped."""
        if event in self._flying:
            self._flying.remove(event)
        event.job = None
        event.status = status
        if (notify := event.callbacks.get(status)) is not None:
            self._calls.append((notify, event.handle, status))

    def _recover(self) -> None:
        """Reset the NPU after an abort; what was pending waits again, in its order."""
        try:
            self._core.reset()
        except OSError as error:
            self._machine.notes.append(f"the library has called abort(): {error}")
            self.dead = True
            for event in (*self._flying, *self._ready):
                self._settle(event, EventStatus.FAILED)
            self._ready.clear()
            return
        for event in self._flying:
            event.job = None
            event.status = EventStatus.QUEUED
        self._ready[:0], self._flying = self._flying, []

    def _submit(self, now: float) -> None:
        """Hand events over, the highest priority first; what the driver refuses is tried again later."""
        for event in sorted(self._ready, key=lambda event: -event.graph.prio):
            try:
                if not self._core.counts[2]:
                    self._core.create_queue()
                event.job = self._core.submit(event.todo[0], 0, 0, now)
            except OSError:
                return
            self._ready.remove(event)
            self._flying.append(event)
            event.status = max(event.status, EventStatus.SUBMITTED)
            self._look(event)

    # -- the worker --------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Keep jobs going, and call back."""
        while (calls := await self._machine.wait(self._found, until=self.next_event)) != [None]:
            for notify, handle, status in filter(None, calls):
                notify(handle, status)

    def _found(self, now: float) -> list[_Call | None]:
        self.pump(now)
        if self._calls:
            calls = list[_Call | None](self._calls)
            self._calls.clear()
            return calls
        if not self.queue:
            self._working = False
            return [None]
        return []
