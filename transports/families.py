"""Which addresses there are, and what opens each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

from repertory.models.errors import ConfigError

from .address import Address
from .device import Device
from .world import World

__all__ = ["Connect", "connect", "schemes"]

Connect: TypeAlias = Callable[[], Device]
"""Makes the device of one incarnation; what outlives incarnations (a loaded library) it keeps itself."""

_OPENERS = {
    "c7x": ".rpmsg.hardware:hardware",
    "cpu": ".cpu.connect:hardware",
    "memx": ".memx.hardware:hardware",
    "null": ".generic:null",
    "sim": ".generic:simulated",
    "sim+c7x": ".rpmsg.simulated:simulated",
    "sim+cpu": ".cpu.connect:simulated",
    "sim+memx": ".memx.simulated:simulated",
    "sim+xm-npu": ".xm_npu.simulated:simulated",
    "xm-npu": ".xm_npu.hardware:hardware",
}


def schemes() -> list[str]:
    """Return the schemes that an address may have."""
    return sorted(_OPENERS)


def connect(text: str, world: World) -> Connect:
    """Return what makes devices of this address; nothing is opened yet.

    Raises:
        ConfigError: the address is malformed, or names an unknown scheme or parameter.
    """
    address = Address.parse(text)
    opener = _OPENERS.get(address.scheme)
    if opener is None:
        raise ConfigError(f"{text}: unknown scheme {address.scheme!r}; there are {', '.join(schemes())}")
    module, _, function = opener.partition(":")
    make: Callable[[Address, World], Connect] = getattr(import_module(module, __package__), function)
    return make(address, world)
