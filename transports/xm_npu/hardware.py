"""`xm-npu://`: the NPU of this board, by the vendor's library or by the driver's nodes."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal, final

import msgspec

from repertory.models.errors import ConfigError
from repertory.models.program import Artifact, Program
from repertory.transports.address import Address
from repertory.transports.families import Connect
from repertory.transports.world import World

from .cl.binding import shared_library
from .cl.npu import ClNpu
from .device import LOAD_BOUND, MMZ_MB, RESIDENTS, Prepare, XmNpuDevice
from .engine import RUN_BOUND
from .ioctl.generation import GENERATIONS, MMZ_LAYOUTS
from .ioctl.kernel import LinuxKernel
from .ioctl.npu import NodeNpu, check_process
from .isolate import Isolation, in_process
from .npu import Npu
from .program import BatchLayout, prepare_xmm

__all__ = ["NODE", "Reading", "XmNpuOptions", "check_way", "hardware", "reader"]

NODE = "/dev/npu.0"
"""The NPU's node."""

_OTHERS: Final = MappingProxyType(
    {
        "cl": ("generation", "mmz", "mmz_node"),
        "ioctl": (
            "lib",
            "revision",
            "prio",
            "memory",
            "outputs",
            "devices",
            "batch",
            "batch_layout",
            "events",
        ),
    }
)
"""By way, the parameters that only the other one has."""

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]
Megabytes = Annotated[float, msgspec.Meta(gt=0, le=4096)]


@final
class XmNpuOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `xm-npu://`.

    Attributes:
        via: `cl` calls the vendor's library, which is the way to a GK7206; `ioctl` speaks to the driver's
            nodes itself, as generation V500 (GK7205V500 and its siblings) has them, in a 32-bit process.
        lib: folder of the vendor's libraries, or path of `libxmedia_cl.so`; without it the usual folders.
        revision: `C` where the library is known to be of that though it exports nothing which only C has.
        prio: priority of all graphs, 0 to 3, 3 first, by `cl`; without it the library's own.
        memory: `own` loads models into memory that we take, and shares the workspace; `library` leaves that
            to the library. By `ioctl` memory is always our own.
        outputs: how outputs are mapped: `uncached` is right in any case, `cached` reads faster and leans on
            the library's own invalidation. By `ioctl` always uncached.
        devices: which devices a context is made of: `all`, as the current library wants, or `npu`, as the
            vendor's page has it.
        zone: of the memory for models; the zone `anonymous` without one.
        mmz_mb: megabytes (2^20) of it that models may take together.
        residents: graphs that may be resident at once.
        batch: items of a dynamic batch, for every model; by `cl` only.
        batch_layout: `tensors` where you have seen that the library lays a batch tensor by tensor; without it
            a batch is refused for models where it could lie otherwise.
        generation: of the driver's tables, for `ioctl`.
        mmz: layout of the memory's tables, for `ioctl`: `v500` has 76 bytes, `gk7206` 80.
        mmz_node: the memory's node, for `ioctl`.
        lock_dir: where our lock file lies; shared by all who use the NPU.
        run_bound: seconds in which the job at the head of the NPU's queue must end.
        load_bound: seconds that loading a model may take.
        isolation: `process` opens the NPU in a child process, which costs the memory of a second Python;
            `none` in this one.
    """

    via: Literal["cl", "ioctl"] = "cl"
    lib: str | None = None
    revision: Literal["C"] | None = None
    prio: Annotated[int, msgspec.Meta(ge=0, le=3)] | None = None
    memory: Literal["own", "library"] = "own"
    outputs: Literal["uncached", "cached"] = "uncached"
    devices: Literal["all", "npu"] = "all"
    zone: str | None = None
    mmz_mb: Megabytes = MMZ_MB
    residents: Annotated[int, msgspec.Meta(ge=1, le=256)] = RESIDENTS
    batch: Annotated[int, msgspec.Meta(ge=1, le=32)] = 1
    batch_layout: BatchLayout | None = None
    generation: Literal["v500"] = "v500"
    mmz: Literal["v500", "gk7206"] = "v500"
    mmz_node: str = "/dev/mmz_userdev"
    lock_dir: str = "/run/lock"
    run_bound: Seconds = RUN_BOUND
    load_bound: Seconds = LOAD_BOUND
    isolation: Isolation = "none"


def hardware(address: Address, world: World) -> Connect:
    """Open the NPU whose node the target is, `/dev/npu.0` without one; real time only."""
    options = address.options(XmNpuOptions)
    _check(address, options, world)
    reading = Reading(
        via=options.via,
        simulated=False,
        batch=options.batch,
        memory=int(options.mmz_mb * 2**20),
        batch_layout=options.batch_layout,
    )
    if options.isolation == "process":
        return in_process(
            address,
            world,
            reader(reading),
            run_bound=options.run_bound,
            load_bound=options.load_bound,
        )

    def make() -> XmNpuDevice:
        return XmNpuDevice(
            world,
            lambda: _npu(address, options, world),
            reader(reading),
            name=_node(address),
            simulated=False,
            memory=reading.memory,
            residents=options.residents,
            run_bound=options.run_bound,
            load_bound=options.load_bound,
        )

    return make


@final
class Reading(msgspec.Struct, frozen=True):
    """How model files are read for one way to the NPU: see `prepare_xmm`."""

    via: Literal["cl", "ioctl"]
    simulated: bool
    batch: int
    memory: int
    batch_layout: BatchLayout | None = None


def reader(reading: Reading) -> Prepare:
    """Return what reads model files so."""

    def prepare(artifact: Artifact) -> Program:
        return prepare_xmm(
            artifact,
            simulated=reading.simulated,
            via=reading.via,
            batch=reading.batch,
            budget=reading.memory,
            batch_layout=reading.batch_layout,
        )

    return prepare


def _check(address: Address, options: XmNpuOptions, world: World) -> None:
    if world.virtual:
        raise ConfigError(f"{address.text}: real hardware does not run on virtual time; use sim+xm-npu://")
    if "\0" in address.target or not _node(address).startswith("/"):
        raise ConfigError(f"{address.text}: {address.target!r} is no node; use {address.scheme}://{NODE}")
    check_way(address, options, options.via)
    if options.via == "ioctl":
        check_process(LinuxKernel())


def check_way(address: Address, options: msgspec.Struct, via: Literal["cl", "ioctl"]) -> None:
    """Refuse parameters of the other way, which would do nothing.

    Raises:
        ConfigError: there is one; names it.
    """
    defaults = type(options)()
    for name in _OTHERS[via]:
        if name in options.__struct_fields__ and getattr(options, name) != getattr(defaults, name):
            other = "cl" if via == "ioctl" else "ioctl"
            raise ConfigError(f"{address.text}: {name} means something for via={other} only")


def _node(address: Address) -> str:
    return {"": NODE, "0": NODE}.get(address.target, address.target)


def _npu(address: Address, options: XmNpuOptions, world: World) -> Npu:
    if options.via == "ioctl":
        return NodeNpu(
            world,
            LinuxKernel(),
            node=Path(_node(address)),
            mmz=Path(options.mmz_node),
            generation=GENERATIONS[options.generation],
            layout=MMZ_LAYOUTS[options.mmz],
            zone=options.zone,
            lock_dir=Path(options.lock_dir),
        )
    return ClNpu(
        shared_library(options.lib, revision=options.revision),
        world,
        memory=options.memory,
        outputs=options.outputs,
        devices=options.devices,
        zone=options.zone,
        prio=options.prio,
        budget=int(options.mmz_mb * 2**20),
        node=Path(_node(address)),
        lock_dir=Path(options.lock_dir),
    )
