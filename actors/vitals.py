"""What devices last told of their health: temperature, power, utilisation."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, final

from repertory.transports.device import Health
from repertory.transports.loop import Loop, Slot

if TYPE_CHECKING:  # a group has a chart
    from .group import DeviceGroup

__all__ = ["FRESH", "Chart", "Vitals"]

_log = logging.getLogger("repertory.runtime")

FRESH: Final = 1.0
"""Seconds for which a reading is taken for the present one."""


@final
class Chart:
    """One device's readings.

    Attributes:
        health: the last ones, or None where nobody has looked yet.
        read: when that was, on the loop's clock.
    """

    def __init__(self) -> None:
        self.health: Health | None = None
        self.read = -math.inf

    def note(self, health: Health, now: float) -> None:
        """Keep what was read now."""
        self.health, self.read = health, now


@final
class Vitals:
    """Reads what is old when somebody asks, in a task of its own; where nobody asks, nothing is read.

    Only devices that can be asked beside frames in flight are read in this way.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._asked: dict[DeviceGroup, None] = {}
        self._wanted: Slot | None = None

    def ask(self, groups: Iterable[DeviceGroup]) -> None:
        """Have old readings read again, soon."""
        due = self._loop.now() - FRESH
        for group in groups:
            if group.in_service and group.chart.read < due and not group.device.capabilities.probe_needs_idle:
                self._asked[group] = None
        if self._asked and self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            self._loop.fill(wanted)

    async def run(self) -> None:
        """Read, until cancelled."""
        while True:
            while self._asked:
                group = next(iter(self._asked))
                await self._read(group)
                del self._asked[group]
            self._wanted = self._loop.slot()
            await self._wanted

    async def _read(self, group: DeviceGroup) -> None:
        try:
            health = await group.device.probe()
        except Exception as error:  # noqa: BLE001  (the group is going out of service, and says so itself)
            _log.info("%s: its health cannot be read: %s", group.name, error)
            return
        group.chart.note(health, self._loop.now())
