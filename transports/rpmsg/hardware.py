"""`c7x://`: a DSP of this machine that runs c7x_compute."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, final

import msgspec

from repertory.models.errors import ConfigError
from repertory.transports.address import Address
from repertory.transports.families import Connect
from repertory.transports.world import World

from .device import C7xDevice
from .dsp import DSPS, Dsp, dsp_name
from .engine import RUN_BOUND
from .isolate import Isolation, in_process
from .linux.dsp import LinuxDsp
from .session import LOAD_BOUND, Ledger

__all__ = ["C7xOptions", "hardware", "hardware_dsp"]

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


@final
class C7xOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `c7x://`.

    Attributes:
        sysfs: where sysfs is mounted.
        dev: where the device nodes lie.
        heap: name below `/dev/dma_heap`, or path, of the heap that the DSP's memory comes from; without it
            TI's `carveout_vision_apps_shared-memories`, or else the only `carveout_*`.
        lock_dir: where our lock file lies; shared by all who use the DSP.
        run_bound: seconds without an answer after which the DSP counts as hung.
        load_bound: seconds that loading a module may take.
        any_machine: load modules too whose ELF header names another machine than a C7x.
        tsc_mhz: clock of the DSP's cycle counter.
        isolation: `process` opens the DSP in a child process, `none` in this one, where no code but our own
            runs.
    """

    sysfs: str = "/sys"
    dev: str = "/dev"
    heap: str | None = None
    lock_dir: str = "/run/lock"
    run_bound: Seconds = RUN_BOUND
    load_bound: Seconds = LOAD_BOUND
    any_machine: bool = False
    tsc_mhz: Annotated[float, msgspec.Meta(ge=0.1, le=100_000)] = 1000.0
    isolation: Isolation = "none"


def hardware(address: Address, world: World) -> Connect:
    """Open the DSP that the target names in the device tree, or by 0 or 1 on AM67A; real time only."""
    options = address.options(C7xOptions)
    _checked(address, world)
    if options.isolation == "process":
        return in_process(
            address,
            world,
            simulated=False,
            any_machine=options.any_machine,
            run_bound=options.run_bound,
            load_bound=options.load_bound,
        )
    ledger = Ledger()

    def make() -> C7xDevice:
        return C7xDevice(
            world,
            lambda: _dsp(address, options, world),
            name=_name(address),
            simulated=False,
            ledger=ledger,
            run_bound=options.run_bound,
            load_bound=options.load_bound,
            any_machine=options.any_machine,
            tsc_hz=options.tsc_mhz * 1e6,
        )

    return make


def hardware_dsp(address: Address, world: World) -> Dsp:
    """Return the lowest interface of a DSP; nothing is opened yet."""
    options = address.options(C7xOptions)
    _checked(address, world)
    return _dsp(address, options, world)


def _checked(address: Address, world: World) -> None:
    if world.virtual:
        raise ConfigError(f"{address.text}: real hardware does not run on virtual time; use sim+c7x://")
    if "/" in address.target or "\0" in address.target:
        raise ConfigError(
            f"{address.text}: {address.target!r} is no DSP's name; use {address.scheme}://{DSPS[0]}"
        )


def _name(address: Address) -> str:
    return dsp_name(address.target)


def _dsp(address: Address, options: C7xOptions, world: World) -> LinuxDsp:
    return LinuxDsp(
        _name(address),
        now=world.now,
        pause=time.sleep,
        sysfs=Path(options.sysfs),
        dev=Path(options.dev),
        heap=options.heap,
        lock_dir=Path(options.lock_dir),
    )
