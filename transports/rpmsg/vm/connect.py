"""From an address to a DSP."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

from repertory.models.errors import ConfigError
from repertory.transports.address import Address
from repertory.transports.real import RealWorld
from repertory.transports.rpmsg.dsp import DSPS, Dsp
from repertory.transports.rpmsg.hardware import C7xOptions, hardware_dsp
from repertory.transports.rpmsg.session import Ledger
from repertory.transports.rpmsg.simulated import simulated_dsp
from repertory.transports.world import World

__all__ = ["ADDRESS", "Source", "Target", "target"]

ADDRESS: Final = "REPERTORY_C7X"
"""Environment variable with the address of the DSP where the script names none."""

Source: TypeAlias = str | Callable[[], Dsp]
"""An address, or what gives the lowest interface at each connection."""


@final
@dataclass(frozen=True, slots=True)
class Target:
    """A DSP that can be connected to.

    Attributes:
        connect: gives its lowest interface; nothing is opened by that.
        any_machine: take modules for another processor than the C7x is thought to be.
        ledger: what is known of it; of all connections of this process to that address.
        world: whose clock counts. It is not entered: there is no event loop.
    """

    connect: Callable[[], Dsp]
    any_machine: bool = False
    ledger: Ledger = field(default_factory=Ledger)
    world: World = field(default_factory=RealWorld)


_targets: Final[dict[str, Target]] = {}  # a DSP, simulated or not, outlives who connects
os.register_at_fork(after_in_child=_targets.clear)  # a simulated DSP's threads and memory are the parent's


def target(source: Source | None) -> Target:
    """Return what an address stands for: the environment's without one, else the first C7x.

    Raises:
        ConfigError: it is none of `c7x://` and `sim+c7x://`, or has parameters that these do not have.
    """
    if source is not None and not isinstance(source, str):
        return Target(source)
    text = source or os.environ.get(ADDRESS) or f"c7x://{DSPS[0]}"
    if text not in _targets:
        _targets.setdefault(text, _parsed(text))  # another thread may have been first
    return _targets[text]


def _parsed(text: str) -> Target:
    address, world = Address.parse(text), RealWorld()
    match address.scheme:
        case "c7x":
            any_machine = address.options(C7xOptions).any_machine
            hardware_dsp(address, world)  # nothing is opened; a wrong address shows here
            return Target(lambda: hardware_dsp(address, world), any_machine, world=world)
        case "sim+c7x":
            dsp = simulated_dsp(address, world)
            return Target(lambda: dsp, world=world)
        case scheme:
            raise ConfigError(f"{text}: a C7xVirtualMachine runs on c7x:// or sim+c7x://, not {scheme}://")
