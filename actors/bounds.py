"""What a group holds a device to, whatever the device thinks of its own bounds."""

from __future__ import annotations

from typing import Final

import anyio

from repertory.models.errors import ContractError, DeviceError, DeviceHung, DeviceLost, RepertoryError
from repertory.transports.device import Completed, Device, Fault

__all__ = ["CLOSE_BOUND", "OPEN_BOUND", "as_fault", "close_device", "open_device"]

OPEN_BOUND: Final = 60.0
"""Seconds that opening a device may take."""

CLOSE_BOUND: Final = 5.0
"""Seconds that closing a device may take."""

_SLACK = 1.0  # for a device that keeps its bound, and takes a moment more to say so


async def open_device(device: Device, completed: Completed, fault: Fault, *, name: str) -> None:
    """Open a device.

    Raises:
        DeviceError: the device's own, or DeviceHung where it took longer than `OPEN_BOUND`.
    """
    with anyio.move_on_after(OPEN_BOUND) as scope:
        await device.open(completed, fault)
    if scope.cancelled_caught:
        raise DeviceHung(f"{name}: it has not opened within {OPEN_BOUND:g} s", family="group")


async def close_device(device: Device, *, name: str) -> DeviceHung | None:
    """Close a device, shielded; return that it hangs where it does not keep `CLOSE_BOUND`."""
    with anyio.move_on_after(CLOSE_BOUND + _SLACK, shield=True) as scope:
        await device.close(bound=CLOSE_BOUND)
    if scope.cancelled_caught:
        return DeviceHung(f"{name}: it has not closed within {CLOSE_BOUND:g} s", family="group")
    return None


def as_fault(error: Exception) -> DeviceError:
    """Return what callers are told of a group that ended in this."""
    if isinstance(error, DeviceError):
        return error
    if isinstance(error, ContractError):
        return DeviceLost(f"the device broke its contract: {error}", family="group")
    if isinstance(error, RepertoryError):
        return DeviceLost(str(error), family="group")
    return DeviceLost(f"the group's own code failed: {error!r}", family="group")
