"""The chips of a simulated group: clocks, heat, throttling, and the work that they did.

All of it is worked out when somebody looks: nothing happens here by itself.
"""

from __future__ import annotations

from typing import Final, final

from repertory.transports.memx.features import THROTTLE_K

from .heat import NOMINAL_MHZ, Heat

__all__ = ["Chip", "Chips"]

_LOOK: Final = 0.1
"""Seconds over which utilisation is measured at least; busy chips are looked at that often."""

_COOLER_K: Final = 5
"""Kelvin below the threshold at which throttling ends."""

_THROTTLED: Final = 0.5
"""Part of its clock that a throttled chip keeps."""


@final
class Chip:
    """One chip.

    Attributes:
        mhz: the clock that was set.
        kelvin: its temperature at the last look.
        throttled: whether it slows down.
    """

    def __init__(self, kelvin: float) -> None:
        self.mhz = NOMINAL_MHZ
        self.kelvin = kelvin
        self.throttled = False

    @property
    def effective_mhz(self) -> float:
        """The clock that it runs at."""
        return self.mhz * _THROTTLED if self.throttled else self.mhz

    def feel(self, threshold_k: float) -> None:
        """Begin or end to throttle."""
        self.throttled = self.kelvin >= threshold_k - (_COOLER_K if self.throttled else 0)


@final
class Chips:
    """All chips of a group; they work on one model together, at the pace of the slowest.

    Attributes:
        all: the chips, first the head.
        threshold_k: where they throttle.
        stretch: how much longer than at the nominal clock everything takes.
        due: when whoever lets a frame in is to `look`.
        busy: seconds of work since the last look; whoever lets frames in adds to it.
        sent: bytes of frames that came in so far, likewise.
        received: bytes of frames that left so far.
        utilisation: part of the time that they worked, up to the last look.
    """

    def __init__(self, count: int, heat: Heat) -> None:
        self._heat = heat
        kelvin = heat.settled_k(heat.power_mw(0.0, NOMINAL_MHZ))
        self.all = [Chip(kelvin) for _ in range(count)]
        self.threshold_k = float(THROTTLE_K)
        self.stretch = 1.0
        self.due = 0.0
        self.busy = 0.0
        self.sent = 0
        self.received = 0
        self.utilisation = 0.0
        self._looked = 0.0
        self.changed()

    @property
    def power_mw(self) -> int:
        """Of all chips together; 0 where the card does not measure it."""
        return round(sum(map(self._power, self.all))) if self._heat.telemetry else 0

    def look(self, now: float) -> None:
        """Bring temperatures, throttling and pace up to `now`."""
        passed = now - self._looked
        if passed < _LOOK:
            return
        self.utilisation = min(self.busy / passed, 1.0)
        for chip in self.all:
            chip.kelvin = self._heat.after(chip.kelvin, self._power(chip), passed)
        self.busy = 0.0
        self._looked = now
        self.due = now + _LOOK
        self.changed()

    def heat(self, kelvin: float, now: float) -> None:
        """Make every chip this warm, at once."""
        self.look(now)
        for chip in self.all:
            chip.kelvin = kelvin
        self._looked = now
        self.changed()

    def changed(self) -> None:
        """Let a clock, threshold or temperature take effect, from the next frame on."""
        for chip in self.all:
            chip.feel(self.threshold_k)
        self.stretch = NOMINAL_MHZ / min(chip.effective_mhz for chip in self.all)

    def _power(self, chip: Chip) -> float:
        return self._heat.power_mw(self.utilisation, chip.effective_mhz)
