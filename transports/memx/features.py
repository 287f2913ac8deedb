"""What a device group tells about itself: opcodes of `memx_get_feature` and `memx_set_feature`, and units.

Numbers are the vendor's header's (2.12); how many bytes each one writes was observed on libmemx 2.11.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final, final

__all__ = [
    "ALL_CHIPS",
    "FREQUENCIES_MHZ",
    "THROTTLE_K",
    "VOLTAGES_MV",
    "GetFeature",
    "HardwareInfo",
    "Operation",
    "PowerState",
    "SetFeature",
    "feature_bytes",
    "power_mw",
    "utilisation",
]

ALL_CHIPS: Final = 0xFF
"""Chip id that means every chip of a group, for the frequency."""

FREQUENCIES_MHZ: Final = range(200, 1001, 25)
"""What a chip's clock may be set to; 600 by default."""

VOLTAGES_MV: Final = range(670, 851, 5)
"""What the core voltage may be set to, for the whole group through chip 0; 700 by default."""

THROTTLE_K: Final = 373
"""A chip as hot as this, in kelvin (100 degrees Celsius), slows down by itself."""

_FEATURE_BYTES: Final = 8
_POWER_LIMIT_MW: Final = 17_000
_NOT_MEASURED: Final = 0xFF


@final
class GetFeature(IntEnum):
    """What can be read."""

    MANUFACTURERID = 0
    FW_COMMIT = 1
    DATE_CODE = 2
    COLD_WARM_REBOOT_COUNT = 3
    WARM_REBOOT_COUNT = 4
    KDRIVER_VERSION = 5
    TEMPERATURE = 6
    THERMAL_STATE = 7
    THERMAL_THRESHOLD = 8
    FREQUENCY = 9
    VOLTAGE = 10
    THROUGHPUT = 11
    POWER = 12
    POWERMANAGEMENT = 13
    POWER_ALERT = 14
    MODULE_INFORMATION = 15
    INTERFACE_INFO = 16
    IFMAP_CONTROL = 17
    HW_INFO = 18
    QSPI_RESET_RELEASE = 19
    MPU_UTILIZATION = 20
    FREQUENCY_EFFECTIVE = 21
    DEVICE_DMA_TRIGGER_TYPE = 22


@final
class SetFeature(IntEnum):
    """What can be set."""

    THERMAL_THRESHOLD = 0
    FREQUENCY = 1
    VOLTAGE = 2
    POWERMANAGEMENT = 3
    POWER_THRESHOLD = 4
    POWER_ALERT_FREQUENCY = 5
    IFMAP_CONTROL = 6
    QSPI_RESET_RELEASE = 7
    DEVICE_DMA_TRIGGER_TYPE = 8


@final
class Operation(IntEnum):
    """Commands of `memx_operation`."""

    READ_TOTAL_CHIP_COUNT = 0
    GET_FW_DOWNLOAD_STATUS = 1
    CONFIG_MPU_GROUP = 2
    RESET_DEVICE = 3
    SET_QSPI_RESET_RELEASE = 4
    GET_QSPI_RESET_RELEASE = 5


@final
class PowerState(IntEnum):
    """Power states; 0 and 1 run models. The C function takes 0 to 3, deep sleep has calls of its own."""

    PS0 = 0
    PS1 = 1
    PS2 = 2
    PS3 = 3
    PS4 = 4
    """Deep sleep, of the whole group."""


_WRITTEN: Final = MappingProxyType[int, int](
    {
        GetFeature.THROUGHPUT: 64,  # sixteen counters of 32 bits
        GetFeature.IFMAP_CONTROL: 4,
        GetFeature.QSPI_RESET_RELEASE: 4,
    }
)


def feature_bytes(opcode: int) -> int:
    """Return how many bytes `memx_get_feature` writes for an opcode."""
    return _WRITTEN.get(opcode, _FEATURE_BYTES)


def power_mw(value: int) -> int | None:
    """Return milliwatts of POWER, or None where the card has no power telemetry."""
    return value if 0 < value < _POWER_LIMIT_MW else None


def utilisation(value: int) -> float | None:
    """Return the busy part, 0 to 1, of MPU_UTILIZATION, or None: only a group's first chip tells it."""
    percent = value & 0xFF
    return None if percent == _NOT_MEASURED else percent / 100


@final
@dataclass(frozen=True, slots=True)
class HardwareInfo:
    """HW_INFO, unpacked."""

    generation: int
    chips: int
    configured: int
    groups: int

    @classmethod
    def unpack(cls, value: int) -> HardwareInfo:
        """Read the four 16-bit parts of the value, lowest first."""
        return cls(*((value >> shift) & 0xFFFF for shift in (0, 16, 32, 48)))

    def pack(self) -> int:
        """Return the value that `unpack` reads."""
        return self.generation | self.chips << 16 | self.configured << 32 | self.groups << 48
