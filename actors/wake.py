"""How a group's task waits, and what wakes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import final

from repertory.transports.loop import Loop, Slot

__all__ = ["Wake"]


@final
class Wake:
    """One task waits, whoever changes something wakes it; nothing is kept for a task that does not wait.

    Attributes:
        slot: what the task waits for; None while it does not wait, or has been woken.

    Args:
        loop: for the wait. It ends on time and not with the wheel's next tick: a swap that is to be ready
            for a camera's frame cannot be 5 ms late.
        ended: told at the end of a wait that nobody ended before its time.
    """

    def __init__(self, loop: Loop, ended: Callable[[], None]) -> None:
        self.slot: Slot | None = None
        self._loop = loop
        self._ended = ended

    def up(self) -> None:
        """Wake the task, if it waits."""
        if self.slot is not None:
            slot, self.slot = self.slot, None
            self._loop.fill(slot)

    def _woken(self) -> bool:
        return self.slot is None

    async def wait(self, until: float = math.inf) -> None:
        """Wait until woken, at the latest until `until`."""
        slot = self.slot = self._loop.slot()
        try:
            if until < math.inf:
                await self._loop.wait_until(slot, until)
                if not self._woken():
                    self._ended()
            else:
                await slot
        finally:
            self.slot = None
