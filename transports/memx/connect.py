"""`memx://` and `sim+memx://`."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, final

import msgspec

from repertory.models.errors import ConfigError, DeviceLost
from repertory.models.extras import load_onnxruntime
from repertory.transports.address import Address
from repertory.transports.families import Connect
from repertory.transports.world import World, drive

from .binding import CtypesLibmemx
from .control import check
from .device import MemxDevice
from .lock import GroupLock
from .parameters import SimulatedMx3
from .simulator import SimulatedLibmemx

__all__ = ["MemxOptions", "SimulatedMemxOptions", "hardware", "simulated", "survey"]

Window = Annotated[int, msgspec.Meta(ge=1, le=999)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=3_600_000)]


@final
class MemxOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `memx://`.

    Attributes:
        library: path of libmemx; the loader's search path without one.
        window: frames in flight.
        lock_dir: where our lock file lies; shared by all who use the card.
        dev_dir: where the device nodes lie.
    """

    library: str | None = None
    window: Window = 8
    lock_dir: str = "/run/lock"
    dev_dir: str = "/dev"


@final
class SimulatedMemxOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `sim+memx://`; all but `window` are those of `SimulatedMx3`.

    Attributes:
        groups: device groups in the simulated machine; as many as the address needs without it.
    """

    groups: Annotated[int, msgspec.Meta(ge=0, le=128)] | None = None
    chips: Annotated[int, msgspec.Meta(ge=1, le=16)] = 4
    depth: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    latency_ms: Milliseconds = 1.0
    interval_ms: Milliseconds | None = None
    bandwidth_mbs: Annotated[float, msgspec.Meta(gt=0)] = 1500.0
    swap_ms: Milliseconds = 15.0
    reconfigure: bool = True
    answers: Literal["twin", "hash"] = "twin"
    window: Window = 8


def hardware(address: Address, world: World) -> Connect:
    """Open a device group of a real card; real time only. Nothing of the vendor is loaded before it opens."""
    options = address.options(MemxOptions)
    group_id = address.index()
    if world.virtual:
        raise ConfigError(f"{address.text}: real hardware does not run on virtual time; use sim+memx://")

    def make() -> MemxDevice:
        _check_node(Path(options.dev_dir), group_id)
        library = _library(options.library)
        lock = GroupLock(Path(options.lock_dir), group_id)
        return MemxDevice(world, library, group_id, window=options.window, lock=lock)

    return make


def simulated(address: Address, world: World) -> Connect:
    """Open a device group of a simulated machine, which the address has for itself."""
    options = address.options(SimulatedMemxOptions)
    group_id = address.index()
    if options.answers == "twin":
        load_onnxruntime()  # what it computes twins with: better missed here than at the first frame
    machine = SimulatedMx3(
        groups=group_id + 1 if options.groups is None else options.groups,
        chips=options.chips,
        depth=options.depth,
        latency_ms=options.latency_ms,
        interval_ms=options.interval_ms,
        bandwidth_mbs=options.bandwidth_mbs,
        swap_ms=options.swap_ms,
        reconfigure=options.reconfigure,
        answers=options.answers,
    )
    library = SimulatedLibmemx(world, machine)
    return lambda: MemxDevice(world, library, group_id, window=options.window, lock=None)


@cache
def _library(path: str | None) -> CtypesLibmemx:
    """Return the one libmemx of this process: its contexts are counted in one table."""
    return CtypesLibmemx(path)


def _check_node(folder: Path, group_id: int) -> None:
    """Say plainly what libmemx would only count as absent."""
    for node in (folder / f"memx{group_id}", folder / f"memxchip{group_id}"):
        if node.exists() and not os.access(node, os.R_OK | os.W_OK):
            raise DeviceLost(
                f"{node}: no permission to read and write; the driver's udev rule is"
                ' KERNEL=="memx*", MODE="0666"',
                family="memx",
            )


def survey(path: str | None = None) -> dict[str, Any]:
    """Tell what the library on this machine sees: its version, optional functions, and groups.

    Raises:
        ConfigError: there is no libmemx, or it lacks a function.
        DeviceError: it does not answer.
    """
    library = _library(path)
    status, count = drive(library.memx_operation_get_device_count())
    check(status, "memx_operation_get_device_count")
    groups: list[dict[str, Any]] = []
    for group_id in range(count):
        status, chips = drive(library.memx_get_total_chip_count(group_id))
        check(status, "memx_get_total_chip_count")
        groups.append({"address": f"memx://{group_id}", "chips": chips})
    return {"library": library.version, "optional": sorted(library.exports), "groups": groups}
