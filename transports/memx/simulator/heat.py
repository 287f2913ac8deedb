"""How warm simulated chips become: one thermal resistance and one time constant for each chip."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from repertory.models.errors import ConfigError

__all__ = ["NOMINAL_MHZ", "Heat"]

NOMINAL_MHZ: Final = 600
"""The clock that latencies and powers are told for."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Power and temperature of a chip.

    The vendor gives 0.5 to 2 W a chip; the rest is made up: a chip that is always busy stays below the
    throttling threshold at every clock, in an ambient of up to 45 degrees Celsius.

    Attributes:
        ambient_k: around the card, in kelvin.
        kelvin_per_watt: by how much a chip ends above the ambient.
        seconds: time constant of warming and cooling.
        idle_mw: power without work.
        busy_mw: power more than that at 600 MHz with work all the time; it grows with the clock.
        telemetry: whether the card measures its power.
    """

    ambient_k: float = 308.0
    kelvin_per_watt: float = 25.0
    seconds: float = 20.0
    idle_mw: float = 500.0
    busy_mw: float = 1000.0
    telemetry: bool = True

    def __post_init__(self) -> None:
        if min(self.ambient_k, self.kelvin_per_watt, self.idle_mw, self.busy_mw) < 0 or self.seconds <= 0:
            raise ConfigError(
                "a simulated chip has a temperature, resistance and powers >= 0, and seconds > 0"
            )

    def power_mw(self, utilisation: float, mhz: float) -> float:
        """Return a chip's power at a clock, for the part of its time that it works."""
        return self.idle_mw + self.busy_mw * utilisation * mhz / NOMINAL_MHZ

    def settled_k(self, power_mw: float) -> float:
        """Return the temperature that a chip with this power comes to, in kelvin."""
        return self.ambient_k + self.kelvin_per_watt * power_mw / 1e3

    def after(self, kelvin: float, power_mw: float, seconds: float) -> float:
        """Return the temperature `seconds` later, in kelvin, with this power meanwhile."""
        settled = self.settled_k(power_mw)
        return settled + (kelvin - settled) * math.exp(-seconds / self.seconds)
