"""A GK7206 NPU behind the device contract, by the vendor's library or by the driver's nodes alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar, final

from repertory.models.errors import ArtifactError, DeviceError, DeviceHung, DeviceLost
from repertory.models.program import Artifact, Program
from repertory.transports.device import Capabilities, Completed, Completion, Device, Fault, Health, Residency
from repertory.transports.flight import Flight
from repertory.transports.frame import Fate, Frame
from repertory.transports.world import Driver, Outbox, World

from .engine import RUN_BOUND, Engine
from .errors import NpuRefusal
from .npu import Npu

__all__ = [
    "LOAD_BOUND",
    "MMZ_MB",
    "OPEN_BOUND",
    "PROBE_BOUND",
    "RESIDENTS",
    "UNLOAD_BOUND",
    "WINDOW",
    "Prepare",
    "XmNpuDevice",
]

Prepare = Callable[[Artifact], Program]
"""Reads a model file for one way to the NPU."""

WINDOW: Final = 2
"""Frames of a graph in flight: one that runs, and one that is staged or waits for its place."""

RESIDENTS: Final = 16
"""Graphs that may be resident at once; nobody has published the NPU's own limit."""

MMZ_MB: Final = 96
"""Megabytes (2^20) of the memory for models: what the vendor's scripts leave on a board of 128 MB."""

OPEN_BOUND: Final = 15.0
"""Seconds for taking the NPU."""

LOAD_BOUND: Final = 30.0
"""Seconds that loading a model may take; 0.7 to 0.8 were measured on a sibling of this NPU."""

UNLOAD_BOUND: Final = 5.0
"""Seconds that taking a model off may take."""

PROBE_BOUND: Final = 3.0
"""Seconds for reading the health."""

_MARGIN = 1.0

T = TypeVar("T")

_log = logging.getLogger("repertory.xm_npu")


@final
class XmNpuDevice(Device):
    """Several graphs are resident at once, with a job of each in flight, as the memory's budget allows.

    Args:
        world: real time or virtual.
        connect: makes the way to the NPU when the device opens; called in the driver loop.
        prepare: reads model files.
        name: of the NPU, for people.
        simulated: whether no hardware stands behind it.
        memory: bytes for models.
        residents: graphs that may be resident at once.
        run_bound: seconds in which the job at the head of the NPU's queue must end.
        load_bound: seconds that a load may take.
    """

    def __init__(
        self,
        world: World,
        connect: Callable[[], Npu],
        prepare: Prepare,
        *,
        name: str,
        simulated: bool,
        memory: int = MMZ_MB << 20,
        residents: int = RESIDENTS,
        run_bound: float = RUN_BOUND,
        load_bound: float = LOAD_BOUND,
    ) -> None:
        self._world = world
        self._prepare = prepare
        self._name = name
        self._load_bound = load_bound
        self._flight = Flight("xm-npu", world.working)
        self._health = Health(well=True)
        self._outbox: Outbox[Completion] = world.outbox(self._flight.complete)
        self._engine = Engine(world, connect, self._outbox, run_bound=run_bound)
        self._driver: Driver | None = None
        self.capabilities = Capabilities(
            "xm-npu",
            simulated=simulated,
            window=WINDOW * residents,
            residents=residents,
            memory=memory,
            bind_needs_idle=False,
            probe_needs_idle=False,
            stall=2 * run_bound + load_bound + _MARGIN,  # a load and a recovery keep it from collecting
        )

    async def open(self, completed: Completed, fault: Fault) -> None:
        engine = self._engine
        self._driver = self._world.spawn(
            engine.serve, name=f"repertory: npu {self._name}", on_exit=self._ended
        )
        await engine.orders.call(engine.connect, bound=OPEN_BOUND, what="open")
        self._check_driven()
        self._flight.open(completed, fault)

    def prepare(self, artifact: Artifact) -> Program:
        program = self._prepare(artifact)
        self._engine.scratch = max(self._engine.scratch, program.scratch)
        return program

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        self._flight.check()
        self._flight.evict(evict)
        bound = UNLOAD_BOUND * len(evict)
        if program is None:
            await self._call(partial(self._engine.unload, tuple(evict)), "unload", bound + _MARGIN)
            return None
        try:
            await self._call(
                partial(self._swap, program, tuple(evict)), "load", bound + self._load_bound + _MARGIN
            )
        except NpuRefusal as refusal:
            raise ArtifactError(f"{program.name}: {refusal}") from refusal
        return self._flight.settle_in(Residency(program, WINDOW))

    def start(self, frame: Frame) -> None:
        self._flight.start(frame)
        self._engine.put(frame)

    def abandon(self, frame: Frame) -> None:
        pass  # the loop skips it if it is not submitted; else its answer is thrown away

    async def probe(self) -> Health:
        """Ask the driver loop; while that is at another call, tell what it said last."""
        self._flight.check()
        if not self._engine.orders.busy:
            self._health = await self._call(self._engine.look, "health", PROBE_BOUND + _MARGIN)
        return self._health

    async def close(self, *, bound: float) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            self._engine.close()
            if not await driver.join(bound * 3 / 4):
                self._engine.give_up()
                if not await driver.join(bound / 4):
                    _log.warning("%s: the driver loop hangs in a call, and is left behind", self._name)
            self._outbox.flush()
        self._flight.close()

    def _check_driven(self) -> None:
        if self._driver is None:
            raise DeviceLost("open: the device was closed meanwhile", family="xm-npu", call="open")

    async def _swap(self, program: Program, evict: Sequence[Program]) -> None:
        await self._engine.unload(evict)
        await self._engine.load(program)

    async def _call(self, job: Callable[[], Coroutine[Any, Any, T]], what: str, bound: float) -> T:
        try:
            result = await self._engine.orders.call(job, bound=bound, what=what)
        except (DeviceHung, DeviceLost) as error:
            if self._driver is not None:  # else it was closed meanwhile, which is no fault
                self._flight.lose(error, Fate.UNDONE)
            raise
        self._flight.check()  # it may have been closed meanwhile
        return result

    def _ended(self, error: BaseException | None) -> None:
        self._outbox.flush()
        lost = _lost(error)
        self._engine.refuse(lost)
        if error is not None:
            self._flight.complete(self._engine.fallen)
            self._flight.lose(lost, Fate.UNDONE)


def _lost(error: BaseException | None) -> DeviceError:
    """Return what those are told who come after the loop's end."""
    if isinstance(error, DeviceError):
        return error
    return DeviceLost("the device is closed" if error is None else f"driver: {error!r}", family="xm-npu")
