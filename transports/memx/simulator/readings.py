"""What a simulated group tells about itself, and what it lets itself be told: features by their opcodes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from repertory.transports.memx.constants import CHIP_GENERATION, Status
from repertory.transports.memx.features import (
    ALL_CHIPS,
    FREQUENCIES_MHZ,
    VOLTAGES_MV,
    GetFeature,
    HardwareInfo,
    SetFeature,
    feature_bytes,
)

from .chips import Chip
from .rules import StatusError

if TYPE_CHECKING:
    from .board import Group
    from .parameters import SimulatedMx3

__all__ = ["read", "write"]

_Number: TypeAlias = Callable[["Group", Chip], int]

_DRIVER_VERSION: Final = b"1.3.4_1\0"
_PCIE_LINK: Final = 2 | 0x23 << 32 | 0x23 << 48
"""Low byte: PCIe. High word: Gen3 x2, able to and in use."""
_MODULE: Final = 5
"""Chip version A1, booted from QSPI."""
_NOT_MEASURED: Final = 0xFF

_SETTINGS: Final = MappingProxyType(
    {
        SetFeature.VOLTAGE: GetFeature.VOLTAGE,
        SetFeature.POWERMANAGEMENT: GetFeature.POWERMANAGEMENT,
        SetFeature.POWER_ALERT_FREQUENCY: GetFeature.POWER_ALERT,
        SetFeature.IFMAP_CONTROL: GetFeature.IFMAP_CONTROL,
        SetFeature.QSPI_RESET_RELEASE: GetFeature.QSPI_RESET_RELEASE,
        SetFeature.DEVICE_DMA_TRIGGER_TYPE: GetFeature.DEVICE_DMA_TRIGGER_TYPE,
    }
)
"""Numbers that are kept and told, and change nothing here."""


def read(group: Group, chip_id: int, opcode: int, mx3: SimulatedMx3, now: float) -> bytes:
    """Return what `memx_get_feature` writes; opcodes that stand for nothing here are 0."""
    chips = group.chips
    if not 0 <= chip_id < len(chips.all):
        raise StatusError(Status.BAD_ARGUMENT)
    chips.look(now)
    if opcode == GetFeature.KDRIVER_VERSION:
        return _DRIVER_VERSION
    if opcode == GetFeature.THROUGHPUT:
        return _throughput(group, mx3)
    if opcode == GetFeature.FW_COMMIT:
        number = mx3.firmware
    elif number_of := _NUMBERS.get(opcode):
        number = number_of(group, chips.all[chip_id])
    else:
        number = group.settings.get(opcode, 0)
    return number.to_bytes(feature_bytes(opcode), "little")


def write(group: Group, chip_id: int, opcode: int, parameter: int) -> None:
    """Set a feature to a number, as the firmware takes it."""
    chips = group.chips
    if opcode == SetFeature.FREQUENCY:
        _check(accepted=parameter in FREQUENCIES_MHZ)
        for chip in _chosen(group, chip_id):
            chip.mhz = parameter
    elif opcode == SetFeature.THERMAL_THRESHOLD:
        chips.threshold_k = parameter
    elif (kept := _SETTINGS.get(SetFeature(opcode))) is not None:
        _check(accepted=opcode != SetFeature.VOLTAGE or parameter in VOLTAGES_MV)
        group.settings[kept] = parameter
    chips.changed()


def _chosen(group: Group, chip_id: int) -> list[Chip]:
    chips = group.chips.all
    _check(accepted=chip_id == ALL_CHIPS or 0 <= chip_id < len(chips))
    return chips if chip_id == ALL_CHIPS else [chips[chip_id]]


def _check(*, accepted: bool) -> None:
    if not accepted:
        raise StatusError(Status.BAD_ARGUMENT)


def _utilisation(group: Group, chip: Chip) -> int:
    return round(100 * group.chips.utilisation) if chip is group.chips.all[0] else _NOT_MEASURED


def _hardware(group: Group, _chip: Chip) -> int:
    chips = len(group.chips.all)
    return HardwareInfo(int(CHIP_GENERATION), chips, group.configured, group.halves).pack()


def _throughput(group: Group, mx3: SimulatedMx3) -> bytes:
    """Four pairs of microseconds and kilobytes: ingress and egress, then the drivers' sides of them."""
    sent, received = (
        (round(count / mx3.bandwidth_mbs) % 2**32, count // 1024 % 2**32)
        for count in (group.chips.sent, group.chips.received)
    )
    ways = (sent, sent, received, received, sent, received, sent, received)
    return struct.pack("<16I", *(number for way in ways for number in way))


_NUMBERS: Final = MappingProxyType[int, _Number](
    {
        GetFeature.TEMPERATURE: lambda _group, chip: int(chip.kelvin),
        GetFeature.THERMAL_STATE: lambda _group, chip: int(chip.throttled),
        GetFeature.THERMAL_THRESHOLD: lambda group, _chip: int(group.chips.threshold_k),
        GetFeature.FREQUENCY: lambda _group, chip: chip.mhz,
        GetFeature.FREQUENCY_EFFECTIVE: lambda _group, chip: int(chip.effective_mhz),
        GetFeature.POWER: lambda group, _chip: group.chips.power_mw,
        GetFeature.MODULE_INFORMATION: lambda _group, _chip: _MODULE,
        GetFeature.INTERFACE_INFO: lambda _group, _chip: _PCIE_LINK,
        GetFeature.HW_INFO: _hardware,
        GetFeature.MPU_UTILIZATION: _utilisation,
    }
)
