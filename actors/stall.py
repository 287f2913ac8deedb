"""A device that works owes progress: how a hang is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from repertory.transports.loop import Loop
from repertory.transports.wheel import Alarm, Wheel

__all__ = ["StallWatch"]


@final
class StallWatch:
    """Waits time out on lack of progress, not on total time: a long backlog is no hang.

    Args:
        wheel: for the alarm; at most one is set.
        loop: for the clock.
        patience: how many seconds without progress are too many, as of now.
        stalled: told how long there was none.
    """

    def __init__(
        self, wheel: Wheel, loop: Loop, *, patience: Callable[[], float], stalled: Callable[[float], None]
    ) -> None:
        self._wheel = wheel
        self._loop = loop
        self._patience = patience
        self._stalled = stalled
        self._alarm = Alarm(self._look)
        self._progress: float | None = None

    def begin(self, now: float) -> None:
        """The device begins to work."""
        self._progress = now
        if self._alarm.bucket is None:
            self._wheel.add(self._alarm, now + self._patience())

    def progress(self, now: float, *, more: bool) -> None:
        """Something was completed, and `more` is in flight, or nothing is and nothing is owed."""
        self._progress = now if more else None

    def stop(self) -> None:
        """Nothing is owed any more."""
        self._progress = None
        self._wheel.discard(self._alarm)

    def _look(self) -> None:
        if self._progress is None:
            return
        silent = self._loop.now() - self._progress
        patience = self._patience()
        if silent < patience:
            self._wheel.add(self._alarm, self._progress + patience)
        else:
            self._stalled(silent)
