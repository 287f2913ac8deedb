"""`memx://`: a device group of a real card, in a process of its own unless told otherwise."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, final

import msgspec

from repertory.models.errors import ConfigError, DeviceLost
from repertory.transports.address import Address
from repertory.transports.families import Connect
from repertory.transports.world import World

from .binding import shared_libmemx
from .device import BIND_BOUND, STALL, MemxDevice
from .isolate import Isolation, in_process
from .library import Libmemx
from .lock import GroupLock
from .manager import MANAGER_DIR, check_manager

__all__ = ["MemxOptions", "hardware"]

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


@final
class MemxOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `memx://`.

    Attributes:
        library: path of libmemx; the loader's search path without one.
        window: frames in flight.
        isolation: `process` opens library and device in a child process, `none` in this one.
        lock_dir: where our lock file lies; shared by all who use the card.
        dev_dir: where the device nodes lie.
        manager_dir: where the vendor's daemon has its sockets.
        force: use the card even where the daemon serves it.
        log_level: bit mask of what the library logs, 65535 for all; as the environment has it without one.
        zero_copy: use buffers that the library lends, where it exports the calls.
        bind_bound: seconds that a swap may take.
        stall: seconds without a completion after which the device counts as hung.
    """

    library: str | None = None
    window: Annotated[int, msgspec.Meta(ge=1, le=999)] = 8
    isolation: Isolation = "process"
    lock_dir: str = "/run/lock"
    dev_dir: str = "/dev"
    manager_dir: str = MANAGER_DIR
    force: bool = False
    log_level: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    zero_copy: bool = True
    bind_bound: Seconds = BIND_BOUND
    stall: Seconds = STALL


def hardware(address: Address, world: World) -> Connect:
    """Open a device group; real time only. Nothing of the vendor is loaded before it opens."""
    options = address.options(MemxOptions)
    group_id = address.index()
    if world.virtual:
        raise ConfigError(f"{address.text}: real hardware does not run on virtual time; use sim+memx://")
    if options.isolation == "process":
        return in_process(address, world, simulated=False, bind_bound=options.bind_bound)

    def load() -> Libmemx:
        if not options.force:
            check_manager(Path(options.manager_dir))
        _check_node(Path(options.dev_dir), group_id)
        return shared_libmemx(options.library, log_level=options.log_level)

    def make() -> MemxDevice:
        return MemxDevice(
            world,
            load,
            group_id,
            simulated=False,
            window=options.window,
            lock=GroupLock(Path(options.lock_dir), group_id),
            zero_copy=options.zero_copy,
            bind_bound=options.bind_bound,
            stall=options.stall,
        )

    return make


def _access(node: Path, mode: int) -> bool:
    """Ask for who we are to the kernel, which after a `seteuid` is not who we were."""
    return os.access(node, mode, effective_ids=os.access in os.supports_effective_ids)


def _check_node(folder: Path, group_id: int) -> None:
    """Say plainly what libmemx would only count as absent."""
    for node in (
        folder / f"memx{group_id}",
        folder / f"memx{group_id}_feature",
        folder / f"memxchip{group_id}",
    ):
        if _access(node, os.F_OK) and not _access(node, os.R_OK | os.W_OK):
            raise DeviceLost(
                f"{node}: no permission to read and write; the driver's udev rule is"
                ' KERNEL=="memx*", MODE="0666"',
                family="memx",
            )
