"""What a group tells about itself while it works: one reading of its features."""

from __future__ import annotations

import logging
from typing import Final

from repertory.models.errors import DeviceError
from repertory.transports.device import Health

from .checks import check
from .constants import Status
from .features import THROTTLE_K, GetFeature, power_mw, utilisation
from .library import Libmemx

__all__ = ["read_feature", "read_health"]

_log = logging.getLogger("repertory.memx")

_HEAD: Final = 0  # the chip that speaks for its group


async def read_feature(library: Libmemx, group_id: int, opcode: GetFeature, chip: int = _HEAD) -> int | None:
    """Read a feature as a number; None where the library or the firmware does not have it.

    Raises:
        DeviceError: the group does not answer.
    """
    if "memx_get_feature" not in library.exports:
        return None
    status, value = await library.memx_get_feature(group_id, chip, opcode)
    if status == Status.BAD_ARGUMENT:
        return None
    check(status, f"memx_get_feature {opcode.name}")
    return int.from_bytes(value, "little")


async def read_health(library: Libmemx, group_id: int, chips: int) -> Health:
    """Read the chips' temperatures, the clock, power and utilisation.

    Readings: `chips`; `temperature_k`, of the hottest chip; `throttling`, 1 where that one slows down by
    itself; `frequency_mhz` and `utilisation` (0 to 1) of the first chip; `power_mw`. What the library, the
    firmware or the card does not tell is left out. A group that does not answer at all is not well.
    """
    try:
        readings = await _read(library, group_id, chips)
    except DeviceError as error:
        _log.warning("memx group %d: %s", group_id, error)
        return Health(well=False, readings={"chips": float(chips)})
    found = {name: float(value) for name, value in readings.items() if value is not None}
    return Health(well=True, readings={"chips": float(chips), **found})


async def _read(library: Libmemx, group_id: int, chips: int) -> dict[str, float | None]:
    each = [await read_feature(library, group_id, GetFeature.TEMPERATURE, chip) for chip in range(chips)]
    hottest = max((kelvin for kelvin in each if kelvin is not None), default=None)
    power = await read_feature(library, group_id, GetFeature.POWER)
    busy = await read_feature(library, group_id, GetFeature.MPU_UTILIZATION)
    return {
        "temperature_k": hottest,
        "throttling": None if hottest is None else hottest >= THROTTLE_K,
        "frequency_mhz": await read_feature(library, group_id, GetFeature.FREQUENCY),
        "power_mw": None if power is None else power_mw(power),
        "utilisation": None if busy is None else utilisation(busy),
    }
