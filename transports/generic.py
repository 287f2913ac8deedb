"""`null://` and `sim://`: devices of no family."""

from __future__ import annotations

from typing import Annotated, final

import msgspec

from .address import Address
from .families import Connect
from .null import NullDevice
from .simulated import SimulatedDevice, SimulatedOptions
from .world import World

__all__ = ["NullOptions", "null", "simulated"]


@final
class NullOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `null://`: frames in flight."""

    window: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 1024


def null(address: Address, world: World) -> Connect:
    """Open `null://?window=`."""
    options = address.options(NullOptions)
    return lambda: NullDevice(world, window=options.window)


def simulated(address: Address, world: World) -> Connect:
    """Open `sim://?service_ms=&swap_ms=&window=&residents=&memory_mb=`."""
    options = address.options(SimulatedOptions)
    return lambda: SimulatedDevice(world, options)
