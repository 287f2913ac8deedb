"""Whether a DSP can be used, looked at in the order in which things go wrong; nothing is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from repertory.models.errors import DeviceLost

from .discovery import FIRMWARE_ENDPOINT, Control, Processor, Sysfs
from .kernel import Kernel
from .permission import forbidden

__all__ = ["CHANNEL", "find_control", "find_processor"]

CHANNEL: Final = "rpmsg_chrdev"
"""The name that the firmware announces itself by."""

_ALIVE: Final = frozenset({"running", "attached"})


def find_processor(sysfs: Sysfs, name: str) -> Processor:
    """Return the DSP of this name.

    Raises:
        DeviceLost: there is none; names those that there are.
    """
    found = sysfs.processor(name)
    if found is None:
        names = ", ".join(each.name for each in sysfs.processors()) or "none"
        raise DeviceLost(f"{name}: no such DSP; remote processors here: {names}", family="c7x")
    return found


def find_control(sysfs: Sysfs, dev: Path, processor: Processor, kernel: Kernel) -> Control:
    """Return where endpoints of a DSP are made.

    Raises:
        DeviceLost: it does not run, has no rpmsg bus, this process may not use it, or its firmware is
            another.
    """
    if processor.state not in _ALIVE:
        raise _lost(
            processor,
            f"it is {processor.state or 'in no known state'}, with firmware"
            f" {processor.firmware or 'of no known name'}; start it:"
            f" echo start > {processor.directory}/state",
        )
    control = sysfs.control(processor)
    if control is None:
        raise _lost(
            processor, "no rpmsg_ctrl device: its firmware has no rpmsg, or `modprobe rpmsg_ctrl` is missing"
        )
    node = dev / control.directory.name
    if node.exists() and not kernel.may_use(node):
        raise forbidden(node, call="open")
    _check_channel(sysfs.channels(control), processor)
    return control


def _check_channel(channels: list[str], processor: Processor) -> None:
    """The kernel makes endpoints towards anything; only the announcement tells whether somebody listens."""
    if any(each.startswith(f"{CHANNEL}.") and each.endswith(f".{FIRMWARE_ENDPOINT}") for each in channels):
        return
    raise _lost(
        processor,
        f"its firmware {processor.firmware} is not c7x_compute: {CHANNEL} at {FIRMWARE_ENDPOINT} is not"
        f" announced; there are {', '.join(channels) or 'no channels'}",
    )


def _lost(processor: Processor, reason: str) -> DeviceLost:
    return DeviceLost(f"{processor.name}: {reason}", family="c7x")
