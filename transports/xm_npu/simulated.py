"""`sim+xm-npu://`: a simulated NPU, below the vendor's library or below the driver's nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, final

import msgspec

from repertory.models.errors import ConfigError
from repertory.models.extras import load_onnxruntime
from repertory.transports.address import Address
from repertory.transports.families import Connect
from repertory.transports.world import World

from .cl.library import OPTIONAL
from .cl.npu import ClNpu
from .device import LOAD_BOUND, MMZ_MB, RESIDENTS, XmNpuDevice
from .engine import RUN_BOUND
from .hardware import NODE, Reading, check_way, reader
from .ioctl.npu import NodeNpu
from .isolate import Isolation, in_process
from .npu import Npu
from .simulator.board import Board
from .simulator.parameters import SimulatedNpu, Zone

__all__ = ["SimulatedXmNpuOptions", "parameters", "simulated", "way"]

Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=3_600_000)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


@final
class SimulatedXmNpuOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `sim+xm-npu://`; what is not told here are those of `SimulatedNpu` and `XmNpuOptions`.

    Attributes:
        via: `cl` puts the simulator below the calls of the vendor's library, `ioctl` below the system calls.
        events: whether the library has `graph_submit` and events; else each run blocks the driver loop.
        mmz_mb: megabytes (2^20) of the memory for models, whole pages of it; there is no other user.
        isolation: `process` simulates in a child process, `none` in this one.
    """

    via: Literal["cl", "ioctl"] = "cl"
    latency_ms: Milliseconds = 1.0
    floor_ms: Milliseconds = 0.0
    jiffy_ms: Milliseconds = 0.0
    load_ms: Milliseconds = 20.0
    clock_mhz: Annotated[float, msgspec.Meta(ge=1, le=10_000)] = 450.0
    answers: Literal["twin", "hash"] = "twin"
    events: bool = True
    memory: Literal["own", "library"] = "own"
    outputs: Literal["uncached", "cached"] = "uncached"
    mmz_mb: Annotated[float, msgspec.Meta(ge=0.0625, le=2048)] = MMZ_MB
    residents: Annotated[int, msgspec.Meta(ge=1, le=256)] = RESIDENTS
    batch: Annotated[int, msgspec.Meta(ge=1, le=32)] = 1
    run_bound: Seconds = RUN_BOUND
    load_bound: Seconds = LOAD_BOUND
    isolation: Isolation = "none"


def simulated(address: Address, world: World) -> Connect:
    """Open a simulated NPU, which the address has for itself and which outlives whoever opens it."""
    options = address.options(SimulatedXmNpuOptions)
    _check(address, options)
    params = parameters(options)
    read = reader(Reading(via=options.via, simulated=True, batch=options.batch, memory=params.zones[0].size))
    if options.isolation == "process":
        return in_process(address, world, read, run_bound=options.run_bound, load_bound=options.load_bound)
    board = Board(world, params)

    def make() -> XmNpuDevice:
        board.end_processes()  # each incarnation is one of its own, and what a hung one had is free
        return XmNpuDevice(
            world,
            lambda: way(board, world, options),
            read,
            name=address.target or "0",
            simulated=True,
            memory=params.zones[0].size,
            residents=options.residents,
            run_bound=options.run_bound,
            load_bound=options.load_bound,
        )

    return make


def parameters(options: SimulatedXmNpuOptions) -> SimulatedNpu:
    """Return the NPU that the parameters of an address describe."""
    pages = round(options.mmz_mb * 256)
    return SimulatedNpu(
        zones=(Zone(size=pages * 4096),),
        latency_ms=options.latency_ms,
        floor_ms=options.floor_ms,
        jiffy_ms=options.jiffy_ms,
        load_ms=options.load_ms,
        clock_mhz=options.clock_mhz,
        answers=options.answers,
        exports=OPTIONAL if options.events else OPTIONAL - {"xmedia_cl_graph_submit"},
    )


def way(board: Board, world: World, options: SimulatedXmNpuOptions) -> Npu:
    """Return one of the two ways to a simulated NPU."""
    if options.via == "ioctl":
        return NodeNpu(world, board.kernel(), node=Path(NODE), lock_dir=None)
    return ClNpu(
        board.library(),
        world,
        memory=options.memory,
        outputs=options.outputs,
        budget=board.params.zones[0].size,
        node=Path(NODE),
        lock_dir=None,
    )


def _check(address: Address, options: SimulatedXmNpuOptions) -> None:
    if address.target not in {"", "0", NODE}:
        raise ConfigError(f"{address.text}: {address.target!r} is no NPU; there is 0")
    check_way(address, options, options.via)
    if options.answers == "twin":
        load_onnxruntime()  # miss it before the first frame does
