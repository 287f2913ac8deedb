"""`cpu://` and `sim+cpu://`."""

from __future__ import annotations

from typing import Annotated, final

import msgspec

from repertory.models.errors import ConfigError
from repertory.transports.address import Address
from repertory.transports.families import Connect
from repertory.transports.simulated import SimulatedDevice, SimulatedOptions
from repertory.transports.world import World

from .device import CpuDevice
from .program import graph, prepare_onnx

__all__ = ["CpuOptions", "hardware", "simulated"]


@final
class CpuOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `cpu://`.

    Attributes:
        threads: threads that one inference uses.
        window: frames of a program that may be started and not completed.
    """

    threads: Annotated[int, msgspec.Meta(ge=1, le=256)] = 1
    window: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2


def hardware(address: Address, world: World) -> Connect:
    """Open the host itself; real time only."""
    options = address.options(CpuOptions)
    _no_target(address)
    if world.virtual:
        raise ConfigError(f"{address.text}: a real processor does not run on virtual time; use sim+cpu://")
    return lambda: CpuDevice(world, threads=options.threads, window=options.window)


def simulated(address: Address, world: World) -> Connect:
    """Open a device that takes what `cpu://` takes, answers with hashes, and has the times it is told."""
    _no_target(address)
    options = address.options(SimulatedOptions)
    return lambda: SimulatedDevice(world, options, family="cpu", read=prepare_onnx, check=graph)


def _no_target(address: Address) -> None:
    if address.target:
        raise ConfigError(
            f"{address.text}: there is one {address.scheme}://, found nothing at {address.target!r}"
        )
