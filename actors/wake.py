"""How a group's task waits, and what wakes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

from repertory.transports.loop import Loop, Slot
from repertory.transports.wheel import Alarm, Wheel

__all__ = ["Wake"]


@final
class Wake:
    """One task waits, whoever changes something wakes it; nothing is kept for a task that does not wait.

    Attributes:
        slot: what the task waits for; None while it does not wait, or has been woken.

    Args:
        loop: for the wait.
        wheel: for its end.
        ended: told at the end of a wait that nobody ended before its time; it must wake.
    """

    def __init__(self, loop: Loop, wheel: Wheel, ended: Callable[[], None]) -> None:
        self.slot: Slot | None = None
        self._loop = loop
        self._wheel = wheel
        self._alarm = Alarm(ended)

    def up(self) -> None:
        """Wake the task, if it waits."""
        if self.slot is not None:
            slot, self.slot = self.slot, None
            self._loop.fill(slot)

    async def wait(self, until: float = math.inf) -> None:
        """Wait until woken, at the latest until `until`."""
        slot = self.slot = self._loop.slot()
        if until < math.inf:
            self._wheel.add(self._alarm, until)
        try:
            await slot
        finally:
            self.slot = None
            self._wheel.discard(self._alarm)
