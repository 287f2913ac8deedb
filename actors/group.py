"""A device group: the one owner of a device, and the loop that serves it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import final

import anyio

from repertory.models.errors import (
    ArtifactError,
    ConfigError,
    DeviceError,
    DeviceHung,
    DeviceLost,
    NoRoom,
    RepertoryError,
    again,
)
from repertory.models.program import Network, Program
from repertory.transports.device import Completion, Device, Health
from repertory.transports.frame import Frame
from repertory.transports.wheel import Wheel
from repertory.transports.world import World

from .actor import Actor, Envelope
from .binding import Binding
from .bounds import as_fault, close_device, open_device
from .budget import Budget
from .context import ModelContext
from .flightbook import FlightBook
from .mailbox import Mailbox
from .observer import GroupObserver
from .orders import Evict, GroupOrder, MakeResident, Probe
from .policy import Bind, Entry, GroupState, Policy, Wait
from .room import making_room
from .stall import StallWatch
from .tenants import Tenants
from .turns import MAX_BARREN, Turns
from .vitals import Chart
from .wake import Wake

__all__ = ["MAX_BARREN", "STALL_FACTOR", "DeviceGroup"]

STALL_FACTOR = 20.0
"""A group is hung when no completion came for this many learned service times (at least the floor)."""


@final
class DeviceGroup(Actor[GroupOrder]):
    """Opens the device, serves frames by the policy's decisions, and leaves nothing behind.

    One object over all incarnations: a device that failed is closed, and the next incarnation opens a new
    one. What waits in the contexts is not touched by that.

    Attributes:
        state: what the policy sees.
        device: the current incarnation's.
        started: set once the first incarnation is open or has failed.
        error: why the device is out of service; None while it is in service.
        flight: what is started and not completed, and the sums of what was.
        chart: what the device last told of its health.

    Args:
        name: its address, for people.
        connect: makes the device of one incarnation.
        policy: decides.
        world: real or virtual.
        wheel: for the stall alarm.
        observer: is told what happens.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Device],
        *,
        policy: Policy,
        world: World,
        wheel: Wheel,
        observer: GroupObserver,
    ) -> None:
        self.name = name
        self.state = state = GroupState(name)
        self.device: Device = connect()
        self.started = anyio.Event()
        self.error: BaseException | None = None
        self._loop = loop = world.loop
        self.flight = flight = FlightBook(state, loop.now())
        self.chart = Chart()
        self._connect = connect
        self._observer = observer
        self._tenants = tenants = Tenants(state)
        self._wake = Wake(loop, self.poke)
        self._stall = stall = StallWatch(wheel, loop, patience=self._patience, stalled=self._stalled)
        decided = partial(observer.decided, self)
        self._turns = Turns(state, policy, flight=flight, tenants=tenants, stall=stall, decided=decided)
        self._budget = Budget(state, wheel, loop, self.poke)
        self._binding = Binding(
            state,
            flight,
            self._budget,
            loop,
            landing=self._landing,
            tell_swap=partial(observer.swapped, self),
            tell_eviction=partial(observer.evicted, self),
        )
        self._open = False
        self._used = False
        self._draining = False
        self._parked = False

    @property
    def in_service(self) -> bool:
        """Whether the device is open."""
        return self._open

    @property
    def swaps(self) -> int:
        """Binds that succeeded, over all incarnations."""
        return self._binding.swaps

    @property
    def evictions(self) -> int:
        """Programs that had to make room for another, over all incarnations."""
        return self._binding.evictions

    # -- tenants -----------------------------------------------------------------------------------

    @property
    def contexts(self) -> Collection[ModelContext]:
        """The contexts that this group serves."""
        return self._tenants.by_context.keys()

    def attach(self, context: ModelContext, program: Program) -> Entry:
        """Serve a context by this program from now on."""
        entry = self._tenants.add(context, program)
        context.attach(self)
        return entry

    def entry(self, context: ModelContext) -> Entry | None:
        """What the policy sees of a context here, or None where this group does not serve it."""
        return self._tenants.entry(context)

    def binds_for(self, context: ModelContext) -> int:
        """How often what serves this context was made resident here."""
        entry = self.entry(context)
        return 0 if entry is None else self._binding.swapped[entry.program.key]

    def evictions_for(self, context: ModelContext) -> int:
        """How often what serves this context had to make room here."""
        entry = self.entry(context)
        return 0 if entry is None else self._binding.evicted[entry.program.key]

    def replace(self, context: ModelContext, program: Program, network: Network) -> Program:
        """Serve later frames of a context by this network of another program; return the one it had."""
        before = self._tenants.replace(context, program, network)
        self.poke()
        return before

    def detach(self, context: ModelContext, refusal: Callable[[], RepertoryError]) -> Program | None:
        """Serve a context no more; return its program where no other context uses it."""
        entry = self._tenants.pop(context)
        if entry is None:
            return None
        self._turns.grants.forget(entry)
        context.detach(self, refusal)
        self.poke()
        if self.uses(entry.program):
            return None
        self._binding.forget(entry.program)
        return entry.program

    def uses(self, program: Program) -> bool:
        """Whether any context here is served by this program."""
        return next(self._tenants.of(program), None) is not None

    def give_up(self, error: BaseException | None) -> None:
        """The device will not come back: its contexts are served elsewhere, or fail."""
        reason = f"{self.name} is out of service for good: {error or 'it was stopped'}"
        for context in list(self.contexts):
            self.detach(context, lambda: DeviceLost(reason, family="group"))

    def _refuse(self, program: Program, error: ArtifactError) -> None:
        """The device refuses a program: its contexts are served elsewhere or not at all."""
        for context in list(self._tenants.of(program)):
            self.detach(context, lambda: again(error))

    # -- what contexts tell ------------------------------------------------------------------------

    def abandon(self, frame: Frame) -> None:
        """Nobody waits for this frame any more."""
        if self._open and frame in self.flight:
            try:
                self.device.abandon(frame)
            except Exception as error:  # noqa: BLE001  (the device's failure, not that of whoever gave up)
                self._on_fault(as_fault(error))

    def ready(self, now: float) -> None:
        """A context's backlog has ceased to be empty.

        Where nothing is in flight and the group's task only waits, the frame is started in the caller's own
        step: a lone caller then pays for no switch of tasks. Callers that come meanwhile make a batch.
        """
        state = self.state
        if not self._parked or self._wake.slot is None or state.in_flight or self.flight.fault:
            self._turns.ask = True
            if state.in_flight < state.window:  # else there is nothing to decide before a completion
                self._wake.up()
            return
        self._turns.ask = True
        try:
            decision = self._turns.advance(now)
        except Exception as error:  # noqa: BLE001  (the group's failure, not that of whoever offered)
            self._on_fault(as_fault(error))
            return
        if isinstance(decision, Bind) or (decision is not None and decision.until < math.inf):
            self._wake.up()  # the task binds, or waits until another time
        if not state.in_flight:
            self.flight.hours.look(now)

    def defer(self, until: float, now: float) -> None:
        """A context's backlog has ceased to be empty; what goes on ends by then, and it is decided anew."""
        self._turns.end_by(until)
        if not self.state.in_flight:
            self.flight.hours.look(now)  # it is idle beside work

    def poke(self) -> None:
        """Something changed: look again."""
        self._turns.ask = True
        self._wake.up()

    # -- one incarnation ---------------------------------------------------------------------------

    async def serve(self, inbox: Mailbox[Envelope[GroupOrder]]) -> None:
        self.flight.fault = None
        inbox.on_arrival = self._wake.up
        try:
            if self._used:
                self.device = self._connect()
            self._used = True
            await open_device(self.device, self._on_completed, self._on_fault, name=self.name)
            self._in_service()
            await self._serve(inbox)
        except Exception as error:
            self.flight.fault = as_fault(error)
            self.error = error if isinstance(error, RepertoryError) else self.flight.fault
            self._observer.failed(self, error)
            raise
        finally:
            self._open = self.state.in_service = False
            self.flight.hours.closed(self._loop.now())
            self.started.set()
            try:
                hung = await close_device(self.device, name=self.name)
                if hung is not None:
                    self._observer.failed(self, hung)
            finally:
                self._clear()

    def _in_service(self) -> None:
        self._open = True
        self.flight.hours.opened(self._loop.now())
        self.error = None
        capabilities = self.device.capabilities
        self.state.capacity = capabilities.residents
        self.state.window = capabilities.window
        self.state.on_host = capabilities.family == "cpu"
        self.state.in_service = True
        self._budget.open(capabilities.memory)
        self.state.bind_needs_idle = capabilities.bind_needs_idle
        self._turns.open(self.device)
        self._binding.open()
        self._observer.opened(self)
        self.started.set()

    async def _serve(self, inbox: Mailbox[Envelope[GroupOrder]]) -> None:
        while not (inbox.closed and not inbox and not self.state.in_flight):
            self.flight.check()
            if envelope := inbox.receive_nowait() if inbox else None:
                await self._obey(envelope)
            elif inbox.closed:
                await self._landing()
            else:
                decision = self._turns.advance(self._loop.now())
                if isinstance(decision, Bind) and not self.flight.blocks(decision.evict):
                    await self._bind(decision)
                    continue
                if not self.state.in_flight:
                    self.flight.hours.look(self._loop.now())
                self._parked = True
                try:
                    await self._wake.wait(decision.until if isinstance(decision, Wait) else math.inf)
                finally:
                    self._parked = False

    async def _bind(self, bind: Bind) -> None:
        self._turns.ask = True
        for program in bind.evict:
            for context in self._tenants.of(program):
                if context.state.waiting:
                    context.look_again()  # others may have relied on this group
        self._turns.commit(bind, self._loop.now())
        refusal = await self._binding.for_turn(self.device, bind)
        if refusal is not None:
            self._refuse(bind.entry.program, refusal)
        self._turns.ask = True

    async def _landing(self) -> None:
        """Wait until something has landed, or something else changed."""
        self._draining = True
        try:
            await self._wake.wait()
        finally:
            self._draining = False

    def _clear(self) -> None:
        """Forget the device's state."""
        self.flight.clear(DeviceLost(f"{self.name} went out of service", family="group"), self._loop.now())
        self._stall.stop()
        self._budget.close()
        self._turns.withdraw()
        self._turns.ask = True
        self.state.plan = ()
        for context in self.contexts:
            if context.state.waiting:
                context.look_again()  # others may have relied on this group

    # -- orders ------------------------------------------------------------------------------------

    async def _obey(self, envelope: Envelope[GroupOrder]) -> None:
        try:
            envelope.answer(await self._carry_out(envelope.message))
        except DeviceError as error:
            envelope.answer(error=again(error))
            raise
        except RepertoryError as error:
            envelope.answer(error=error)
        finally:
            envelope.answer(error=DeviceLost(f"{self.name} went out of service", family="group"))

    async def _carry_out(self, order: GroupOrder) -> Health | None:
        match order:
            case MakeResident(entry):
                await self._make_resident(entry)
            case Evict(program):
                await self._binding.landed([program])
                if not self.uses(program):
                    self.flight.evict([program])
                    await self.device.bind(None, evict=[program])
                    self._turns.ask = True
            case Probe():
                if self.device.capabilities.probe_needs_idle:
                    await self._drain()
                health = await self.device.probe()
                self.chart.note(health, self._loop.now())
                return health
        return None

    async def _make_resident(self, entry: Entry) -> None:
        if entry.program.key in self.state.residents:
            return
        evict = making_room(self.state, entry.program)
        if evict is None:
            raise self._no_place(entry)
        await self._binding.landed(evict)
        self._turns.ask = True
        try:
            await self._binding.bind(self.device, entry, evict)
        except ArtifactError as error:
            self._refuse(entry.program, error)
            raise
        except NoRoom as error:  # who gave the order may give it again
            raise self._binding.no_room(entry.program, error) from error
        finally:
            self._turns.ask = True

    def _no_place(self, entry: Entry) -> RepertoryError:
        if self.state.has_place_for(entry.program):
            return ArtifactError(f"{entry.program.name} finds no room on {self.name} at the moment")
        return ConfigError(f"{entry.context.name} does not fit beside what is pinned")

    async def _drain(self) -> None:
        self.flight.check()
        while self.state.in_flight:
            await self._landing()
            self.flight.check()

    # -- completions -------------------------------------------------------------------------------

    def _on_completed(self, completions: Sequence[Completion]) -> None:
        """Settle a batch; called by the device on the event loop."""
        now, turns = self._loop.now(), self._turns
        breach = self.flight.land(completions, now)
        if breach is not None:
            self._on_fault(as_fault(breach))
        elif self.flight.fault is not None:
            self.poke()
        idle = not self.state.in_flight
        self._stall.progress(now, more=not idle)
        if self._observer.wants_frames:
            for completion in completions:
                self._observer.finished(self, completion, now)
        if turns.ask or turns.grants.all or turns.due is not None or self._draining:
            self._wake.up()

    # -- faults ------------------------------------------------------------------------------------

    def _patience(self) -> float:
        """Seconds without a completion after which the device counts as hung."""
        slowest = max([entry.service.value for entry in self.state.entries], default=0.0)
        return max(self.device.capabilities.stall, STALL_FACTOR * slowest)

    def _stalled(self, silent: float) -> None:
        family = self.device.capabilities.family
        self._on_fault(DeviceHung(f"{self.name}: no completion for {silent:.1f} s", family=family))

    def _on_fault(self, error: DeviceError) -> None:
        self.flight.fault = self.flight.fault or error
        self.poke()
