"""A C7x DSP behind the device contract, over rpmsg or a simulated one alike."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, final

from repertory.models.errors import ArtifactError, ContractError, DeviceError, DeviceHung, DeviceLost
from repertory.models.program import Artifact, Program
from repertory.transports.device import Capabilities, Completed, Completion, Device, Fault, Health, Residency
from repertory.transports.flight import Flight
from repertory.transports.frame import Fate, Frame
from repertory.transports.world import Driver, Outbox, World

from .client import PING_BOUND
from .dsp import Dsp
from .engine import PINGS, RUN_BOUND, Engine
from .errors import DspRefusal
from .program import loadable, prepare_dynmod
from .session import LOAD_BOUND, OPEN_BOUND, UNLOAD_BOUND, Ledger, Session
from .tensors import INLINE_OUTPUTS, room_for, table_size
from .wire.messages import INLINE_INPUTS
from .workspace import Need

__all__ = ["PROBE_BOUND", "RETURN_BOUND", "TSC_HZ", "WINDOWS", "C7xDevice"]

PROBE_BOUND: Final = 3.0
"""Seconds for asking an idle DSP how it is: a PING that is lost is repeated after one."""

TSC_HZ: Final = 1e9
"""Ticks of the DSP's counter in a second, as the vendor's tests assume; one of its headers says 800 MHz."""

WINDOWS: Final = {False: 2, True: 3}
"""Frames in flight, by whether the wire names the result's place: one that is staged, and one or two that
the DSP has."""

RETURN_BOUND: Final = 30.0
"""Seconds that a DSP which was there before may take to come back: it restarts, and Linux finds it again."""

_RETRY = 0.2  # seconds between two looks for it
_NODE = 2.0  # seconds for the endpoint's node to appear
_MARGIN = 1.0

T = TypeVar("T")

_log = logging.getLogger("repertory.c7x")


@final
class C7xDevice(Device):
    """One module at a time: a swap is unload and load.

    Args:
        world: real time or virtual.
        connect: gives the lowest interface when the device opens; called in the driver loop.
        name: of the DSP, for people.
        simulated: whether no hardware stands behind it.
        ledger: what is known of the DSP over incarnations; a new one without it.
        run_bound: seconds without an answer after which a DSP with work is asked whether it lives.
        load_bound: seconds that a load may take.
        any_machine: take modules for another processor than the C7x is thought to be.
        tsc_hz: ticks of the DSP's counter in a second.
    """

    def __init__(
        self,
        world: World,
        connect: Callable[[], Dsp],
        *,
        name: str,
        simulated: bool,
        ledger: Ledger | None = None,
        run_bound: float = RUN_BOUND,
        load_bound: float = LOAD_BOUND,
        any_machine: bool = False,
        tsc_hz: float = TSC_HZ,
    ) -> None:
        self._world = world
        self._connect = connect
        self._name = name
        self._ledger = ledger or Ledger()
        self._load_bound = load_bound
        self._any_machine = any_machine
        self._flight = Flight("c7x", world.working)
        self._health = Health(well=True)
        self._session: Session | None = None
        self._outbox: Outbox[Completion] = world.outbox(self._flight.complete)
        self._engine = Engine(world, self._open, self._outbox, run_bound=run_bound, tsc_hz=tsc_hz)
        self._driver: Driver | None = None
        self._clockwork = world.condition()
        self.capabilities = Capabilities(
            "c7x",
            simulated=simulated,
            window=WINDOWS[False],
            residents=1,
            probe_needs_idle=False,
            stall=run_bound + PINGS * PING_BOUND + _MARGIN,
        )

    async def open(self, completed: Completed, fault: Fault) -> None:
        engine = self._engine
        self._driver = self._world.spawn(
            engine.serve, name=f"repertory: c7x {self._name}", on_exit=self._ended
        )
        bound = RETURN_BOUND + OPEN_BOUND + _NODE + UNLOAD_BOUND + _MARGIN
        session = await engine.orders.call(engine.connect, bound=bound, what="open")
        self._check_driven()
        self._session = session
        self.capabilities = replace(self.capabilities, window=WINDOWS[session.client.wire.names_result])
        self._flight.open(completed, fault)

    def prepare(self, artifact: Artifact) -> Program:
        program = prepare_dynmod(
            artifact, simulated=self.capabilities.simulated, any_machine=self._any_machine
        )
        if self._session is not None and (excess := self._session.workspace.excess(_need(program))):
            raise ArtifactError(f"{program.name}: {excess}")
        return program

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        self._flight.check()
        if len(self._flight):
            raise ContractError(f"bind with {len(self._flight)} frames in flight")
        self._flight.evict(evict)
        if program is None:
            if not self._flight.residents:
                await self._call(self._opened().unload, "DYN_UNLOAD", UNLOAD_BOUND + _MARGIN)
            return None
        if self._flight.residents:
            raise ContractError(f"{program.name} does not fit beside what is resident")
        bound = 2 * self._load_bound + UNLOAD_BOUND + _MARGIN  # it may be tried twice
        await self._call(partial(self._load, program), "DYN_LOAD", bound)
        return self._flight.settle_in(Residency(program, len(self._opened().workspace.slots)))

    def start(self, frame: Frame) -> None:
        self._flight.start(frame)
        self._engine.put(frame)

    def abandon(self, frame: Frame) -> None:
        pass  # the loop skips it if it is not sent; else its answer is thrown away

    async def probe(self) -> Health:
        """Ask the firmware; while it works or loads, tell what it said last, for it would not answer."""
        self._flight.check()
        if not len(self._flight) and not self._engine.orders.busy:
            await self._call(self._look, "GET_STATUS", PROBE_BOUND + _MARGIN)
        return self._health

    async def close(self, *, bound: float) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            with self._clockwork:
                self._clockwork.notify()
            self._engine.close()
            if not await driver.join(bound * 3 / 4):
                self._engine.give_up()
                if not await driver.join(bound / 4):
                    _log.warning("%s: the driver loop hangs in a system call, and is left behind", self._name)
            self._outbox.flush()
        self._flight.close()

    def _opened(self) -> Session:
        assert self._session is not None, "checked: the device is open"
        return self._session

    def _check_driven(self) -> None:
        if self._driver is None:
            raise DeviceLost("open: the device was closed meanwhile", family="c7x", call="open")

    async def _open(self) -> Session:
        """Connect; a DSP that was there before is given time to boot."""
        now = self._world.now
        began = now()
        while True:
            try:
                return await Session.open(
                    self._connect(), self._ledger, now=now, stopped=lambda: self._engine.interrupted
                )
            except DeviceLost:
                if now() >= began + RETURN_BOUND:
                    self._ledger.uptime = None  # it is not waited for again
                if self._ledger.uptime is None or self._driver is None:
                    raise
            await self._clockwork.wait(
                lambda: self._driver is None, timeout=_RETRY, next_event=lambda: math.inf
            )

    async def _load(self, program: Program) -> None:
        data = loadable(program).data
        try:
            await self._opened().load(data, _need(program), bound=self._load_bound)
        except (DspRefusal, ArtifactError) as refusal:
            raise ArtifactError(f"{program.name}: {refusal}") from refusal
        self._engine.rearranged()

    async def _look(self) -> None:
        session = self._opened()
        await session.check(self._world.now(), bound=PROBE_BOUND - PING_BOUND)
        status = await session.client.status(bound=PING_BOUND)
        strays = session.client.strays
        self._health = Health(
            well=True,
            readings={
                "uptime_s": status.uptime_ms / 1000,
                "jobs_completed": float(status.jobs_completed),
                "jobs_failed": float(status.jobs_failed),
                "stray_messages": float(
                    strays.late + strays.duplicate + strays.wrong_type + strays.malformed + strays.unknown
                ),
                "split_buffers": float(session.workspace.split),
            },
        )

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
        if error is None:
            return
        lost = error if isinstance(error, DeviceError) else DeviceLost(f"driver: {error!r}", family="c7x")
        self._engine.ended(lost)
        self._flight.complete(self._engine.fallen)
        self._flight.lose(lost, Fate.UNDONE)


def _need(program: Program) -> Need:
    network = program.networks[0]
    inputs, outputs = ([spec.nbytes for spec in specs] for specs in (network.inputs, network.outputs))
    return Need(
        len(loadable(program).data),
        room_for(inputs) + table_size(len(inputs), INLINE_INPUTS),
        room_for(outputs) + table_size(len(outputs), INLINE_OUTPUTS),
    )
