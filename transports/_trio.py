"""The seam of `loop.py` on trio."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any, final

import trio

from .loop import Loop

__all__ = ["make"]


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
    """Callbacks go through the run's token, which serves the loop's thread and foreign ones alike."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self.now = trio.lowlevel.current_clock().current_time
        self.slot = TrioSlot
        self.fill = TrioSlot.fill

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._token.run_sync_soon(callback)

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(callback)


def make() -> Loop:
    """Return the seam for the running trio loop."""
    return TrioLoop()
