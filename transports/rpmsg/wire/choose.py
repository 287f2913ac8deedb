"""Which wire version to speak, by what the firmware answered to PING."""

from __future__ import annotations

from typing import Final

from repertory.models.errors import DeviceLost

from .v2 import V2
from .v3 import V3
from .wire import Wire

__all__ = ["wire_for"]

_WIRES: Final[dict[int, Wire]] = {V2.major: V2(), V3.major: V3()}


def wire_for(version: int) -> Wire:
    """Return the wire for a firmware of `version`, 0xMMmmpp; minor and patch do not matter.

    Raises:
        DeviceLost: this package does not speak that major version.
    """
    wire = _WIRES.get(version >> 16)
    if wire is None:
        supported = " and ".join(f"{major}.x" for major in _WIRES)
        found = f"{version >> 16}.{version >> 8 & 0xFF}.{version & 0xFF}"
        raise DeviceLost(
            f"the firmware speaks version {found} (0x{version:06X}) of its protocol; "
            f"this package speaks {supported}",
            family="c7x",
            call="PING",
        )
    return wire
