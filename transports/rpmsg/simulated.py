"""`sim+c7x://`: a simulated DSP."""

from __future__ import annotations

from typing import Annotated, Literal, final

import msgspec

from repertory.models.errors import ConfigError
from repertory.models.extras import load_onnxruntime
from repertory.transports.address import Address
from repertory.transports.families import Connect
from repertory.transports.world import World

from .device import C7xDevice
from .dsp import DSPS, dsp_name
from .engine import RUN_BOUND
from .isolate import Isolation, in_process
from .session import LOAD_BOUND, Ledger
from .simulator.dsp import SimulatedDsp
from .simulator.parameters import SimulatedC7x

__all__ = ["SimulatedC7xOptions", "machine", "simulated", "simulated_dsp"]

Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=3_600_000)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


@final
class SimulatedC7xOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `sim+c7x://`; what is not told here are those of `SimulatedC7x`.

    Attributes:
        run_bound: seconds without an answer after which the DSP counts as hung.
        load_bound: seconds that loading a module may take.
        isolation: `process` simulates in a child process, `none` in this one.
    """

    wire: Literal[2, 3] = 2
    latency_ms: Milliseconds = 1.0
    load_ms: Milliseconds = 20.0
    load_mbs: Annotated[float, msgspec.Meta(ge=0.1, le=1_000_000)] = 400.0
    tsc_mhz: Annotated[float, msgspec.Meta(ge=0.1, le=100_000)] = 1000.0
    answers: Literal["twin", "hash"] = "twin"
    coherent: bool = True
    first_fit: bool = True
    heap_mb: Annotated[int, msgspec.Meta(ge=0, le=65_536)] = 352
    run_bound: Seconds = RUN_BOUND
    load_bound: Seconds = LOAD_BOUND
    isolation: Isolation = "none"


def simulated(address: Address, world: World) -> Connect:
    """Open a simulated DSP, which the address has for itself and which outlives whoever opens it."""
    options = address.options(SimulatedC7xOptions)
    if options.isolation == "process":
        _check_answers(options)
        machine(address)
        return in_process(address, world, run_bound=options.run_bound, load_bound=options.load_bound)
    dsp, ledger = simulated_dsp(address, world), Ledger()

    def make() -> C7xDevice:
        return C7xDevice(
            world,
            lambda: dsp,
            name=dsp.name,
            simulated=True,
            ledger=ledger,
            run_bound=options.run_bound,
            load_bound=options.load_bound,
            tsc_hz=options.tsc_mhz * 1e6,
        )

    return make


def simulated_dsp(address: Address, world: World, *, computes: bool = True) -> SimulatedDsp:
    """Return the lowest interface of a new DSP.

    Args:
        address: of the DSP.
        world: whose clock it lives by.
        computes: whether modules will run on it.

    Raises:
        ConfigError: the address is wrong; or twins will be computed, and onnxruntime is not installed.
    """
    if computes:
        _check_answers(address.options(SimulatedC7xOptions))
    return SimulatedDsp(machine(address), world, name=_name(address))


def machine(address: Address) -> SimulatedC7x:
    """Return the DSP that an address of `sim+c7x://` describes."""
    options = address.options(SimulatedC7xOptions)
    _name(address)
    told = msgspec.structs.asdict(options)
    for own in ("run_bound", "load_bound", "isolation"):
        del told[own]
    return SimulatedC7x(**told)


def _check_answers(options: SimulatedC7xOptions) -> None:
    """Miss what twins are computed with before the first frame does."""
    if options.answers == "twin":
        load_onnxruntime()


def _name(address: Address) -> str:
    """Return the DSP's name.

    Raises:
        ConfigError: there is no such DSP.
    """
    name = dsp_name(address.target)
    if name not in DSPS:
        raise ConfigError(f"{address.text}: {name!r} is no DSP; there are 0, 1, {', '.join(DSPS)}")
    return name
