"""`sim+memx://`: a device group of a simulated machine."""

from __future__ import annotations

from typing import Annotated, Literal, final

import msgspec

from repertory.models.extras import load_onnxruntime
from repertory.transports.address import Address
from repertory.transports.families import Connect
from repertory.transports.world import World

from .device import MemxDevice
from .isolate import Isolation, in_process
from .simulator.heat import Heat
from .simulator.libmemx import SimulatedLibmemx
from .simulator.parameters import SimulatedMx3
from .simulator.profile import ProfileName

__all__ = ["SimulatedMemxOptions", "machine", "simulated"]

Window = Annotated[int, msgspec.Meta(ge=1, le=999)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=3_600_000)]


@final
class SimulatedMemxOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `sim+memx://`; what is not told here are those of `SimulatedMx3`.

    Attributes:
        window: frames in flight.
        isolation: `process` simulates in a child process, `none` in this one.
        groups: device groups in the simulated machine; as many as the address needs without it.
        ambient_k: temperature around the card, in kelvin.
    """

    groups: Annotated[int, msgspec.Meta(ge=0, le=128)] | None = None
    chips: Annotated[int, msgspec.Meta(ge=1, le=16)] = 4
    depth: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4
    latency_ms: Milliseconds = 1.0
    interval_ms: Milliseconds | None = None
    bandwidth_mbs: Annotated[float, msgspec.Meta(gt=0)] = 1500.0
    swap_ms: Milliseconds = 15.0
    profile: ProfileName = "strict"
    reconfigure: bool | None = None
    zero_copy: bool = True
    poll_factor: Annotated[float, msgspec.Meta(ge=1, le=1000)] | None = None
    admin_ms: Milliseconds = 0.0
    lock_dir: str | None = None
    ambient_k: Annotated[float, msgspec.Meta(ge=0, le=1000)] = 308.0
    answers: Literal["twin", "hash"] = "twin"
    window: Window = 8
    isolation: Isolation = "none"


def simulated(address: Address, world: World) -> Connect:
    """Open a device group of a simulated machine, which the address has for itself."""
    options = address.options(SimulatedMemxOptions)
    group_id, window = address.index(), options.window
    described = machine(address)
    if options.isolation == "process":
        return in_process(address, world, simulated=True)
    library = SimulatedLibmemx(world, described)
    return lambda: MemxDevice(world, lambda: library, group_id, simulated=True, window=window, lock=None)


def machine(address: Address) -> SimulatedMx3:
    """Return the machine that an address of `sim+memx://` describes."""
    options = address.options(SimulatedMemxOptions)
    if options.answers == "twin":
        load_onnxruntime()  # what it computes twins with: better missed here than at the first frame
    told = msgspec.structs.asdict(options)
    del told["window"], told["isolation"]
    told["heat"] = Heat(ambient_k=told.pop("ambient_k"))
    if options.groups is None:
        told["groups"] = address.index() + 1
    return SimulatedMx3(**told)
