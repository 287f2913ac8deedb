"""How much memory a group counts on."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from repertory.models.program import Program
from repertory.transports.loop import Loop
from repertory.transports.wheel import Alarm, Wheel

from .policy import GroupState, used

__all__ = ["CRAMPED", "Budget"]

CRAMPED = 10.0
"""Seconds for which a group counts on less memory, after its device found no room where there should be."""


@final
class Budget:
    """Keeps `state.memory`: what the device has, and less for a while after it found no room.

    So the policy lets those have their turns that are there, and does not bind in vain again and again.

    Args:
        state: the group's.
        wheel: for the end of that while.
        loop: for the clock.
        changed: told at its end.
    """

    def __init__(self, state: GroupState, wheel: Wheel, loop: Loop, changed: Callable[[], None]) -> None:
        self._state = state
        self._wheel = wheel
        self._loop = loop
        self._changed = changed
        self._memory: int | None = None
        self._end = Alarm(self._count_on_all)

    def open(self, memory: int | None) -> None:
        """A device is open that has so many bytes, or sets no bound."""
        self._memory = self._state.memory = self._state.whole = memory

    def no_room(self, program: Program, *, last: bool) -> None:
        """The device found no room for a program beside what is resident, whatever the numbers say.

        `last` tells that nothing of that can go: then the program waits, with all that are as large, for
        whoever else uses the device. Otherwise something goes next, and each program alone counts as one
        that fits.
        """
        state = self._state
        fewer = used([*state.residents.values(), program]) - 1
        if state.memory is not None:
            fewer = min(fewer, state.memory)
        if not last:
            fewer = max(fewer, *(used([each]) for each in (program, *(e.program for e in state.entries))))
        state.memory = fewer
        self.close()
        self._wheel.add(self._end, self._loop.now() + CRAMPED)

    def close(self) -> None:
        """The device is gone: nothing is waited for."""
        self._wheel.discard(self._end)

    def _count_on_all(self) -> None:
        self._state.memory = self._memory
        self._changed()
