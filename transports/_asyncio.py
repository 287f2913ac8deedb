"""The seam of `loop.py` on asyncio (and uvloop)."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import final

from .loop import Loop, Slot

__all__ = ["make"]


@final
class AsyncioLoop(Loop):
    """Slots are futures: a future's own waking is the cheapest that asyncio has."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now = loop.time
        self.slot = loop.create_future
        self.fill = _fill

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(callback)

    async def wait_until(self, slot: Slot, when: float) -> None:
        if when == math.inf:
            await slot
            return
        timer = self._loop.call_at(when, self.fill, slot)
        try:
            await slot
        finally:
            timer.cancel()

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(callback)


def _fill(slot: asyncio.Future[None]) -> None:
    if not slot.done():
        slot.set_result(None)


def make() -> Loop:
    """Return the seam for the running asyncio loop."""
    return AsyncioLoop(asyncio.get_running_loop())
