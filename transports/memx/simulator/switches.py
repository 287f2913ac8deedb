"""Faults of simulated hardware, switched on from outside."""

from __future__ import annotations

import math

from .board import Halt
from .machine import Machine

__all__ = ["Switches"]


class Switches(Machine):
    """What can go wrong with the machine; from any thread, at any moment."""

    def hang(self, group_id: int) -> None:
        """Let everything on a group stand still for ever: streams time out, and what waits never returns."""
        self._halt(group_id, Halt.HUNG)

    def gone(self, group_id: int) -> None:
        """Let a group's node vanish: it stays in the count, opens and commands fail, streams time out."""
        self._halt(group_id, Halt.GONE)

    def fail_download(self, count: int = 1) -> None:
        """Let the next `count` downloads return DOWNLOAD_FAILED when their time is over."""
        self._downloads.failing = count

    def fail_weights(self, count: int = 1) -> None:
        """Let the next `count` weight loads fail underneath; see `Trap.UNREPORTED_WEIGHTS`."""
        self._downloads.failing_weights = count

    def admin_timeout(self, group_id: int) -> None:
        """Let commands to a group's firmware return ADMIN_TIMEOUT after the kernel's 3 s."""
        self._core.group(group_id).slow_admin = True

    def slow_reader(self, group_id: int, bytes_per_second: float = math.inf) -> None:
        """Let outputs leave a group no faster than this."""
        with self._condition:
            self._core.group(group_id).slow(bytes_per_second, self._world.now())
            self._condition.notify()

    def leak_mutex(self, group_id: int) -> None:
        """Leave a group's lock taken in this process, as `Trap.LEAKED_MUTEX` does."""
        self._locks.leak(group_id)

    def heat(self, group_id: int, kelvin: float) -> None:
        """Make all chips of a group this warm; from there they go where their work and ambient bring them."""
        with self._condition:
            group, now = self._core.group(group_id), self._world.now()
            group.advance(now)
            group.chips.heat(kelvin, now)

    def _halt(self, group_id: int, why: Halt) -> None:
        with self._condition:
            self._core.group(group_id).halt(why, self._world.now())
            self._condition.notify()
