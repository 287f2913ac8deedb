"""The seam of `loop.py` on trio."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Generator
from threading import get_ident
from typing import Any, final

import trio

from .loop import Loop, Slot

__all__ = ["JumpingClock", "make"]


@final
class TrioSlot:
    """Park and reschedule: what trio's own primitives are made of."""

    __slots__ = ("_filled", "_task")

    def __init__(self) -> None:
        self._filled = False
        self._task: trio.lowlevel.Task | None = None

    def fill(self) -> None:
        self._filled = True
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)
            self._task = None

    async def _wait(self) -> None:
        if self._filled:
            await trio.lowlevel.checkpoint()
            return
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def __await__(self) -> Generator[Any, Any, None]:
        return self._wait().__await__()


@final
class TrioLoop(Loop):
    """Callbacks run in a system task of the run, which is woken like any other.

    The run's own token would do for them too, but it goes through a socket; foreign threads use it.
    """

    def __init__(self) -> None:
        self._thread = get_ident()
        self._token = trio.lowlevel.current_trio_token()
        self.now = trio.lowlevel.current_clock().current_time
        self.slot = TrioSlot
        self.fill = TrioSlot.fill
        self._soon: deque[Callable[[], None]] = deque()
        self._idle: TrioSlot | None = None
        trio.lowlevel.spawn_system_task(self._dispatch, name="repertory: callbacks")

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)
        if self._idle is not None:
            idle, self._idle = self._idle, None
            idle.fill()

    async def wait_until(self, slot: Slot, when: float) -> None:
        with trio.CancelScope(deadline=when):
            await slot

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        if get_ident() == self._thread:
            self.call_soon(callback)
            return
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(callback)

    async def _dispatch(self) -> None:
        while True:
            for _ in range(len(self._soon)):  # what they call for comes in the next step
                self._soon.popleft()()
            if self._soon:
                await trio.lowlevel.cancel_shielded_checkpoint()
                continue
            self._idle = TrioSlot()
            await self._idle


@final
class JumpingClock(trio.abc.Clock):
    """Virtual time: jumps to the next deadline when no task can run.

    trio's own MockClock does the same in an idle pass of its own, over the run's whole statistics; this one
    does it where trio asks how long it may sleep, which it does only when nothing can run.
    """

    def __init__(self) -> None:
        self._time = 0.0

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return self._time

    def deadline_to_sleep_time(self, deadline: float) -> float:
        if deadline == math.inf:
            return math.inf  # only something from outside goes on: the run's own end is such a thing
        self._time = max(self._time, deadline)
        return 0.0


_loops: trio.lowlevel.RunVar[TrioLoop] = trio.lowlevel.RunVar("repertory_loop")


def make() -> Loop:
    """Return the seam for the running trio loop: one a run."""
    try:
        return _loops.get()
    except LookupError:
        _loops.set(loop := TrioLoop())
        return loop
