"""A device group: the one owner of a device, and the loop that serves it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import final

import anyio

from repertory.models.errors import (
    ArtifactError,
    ConfigError,
    DeviceError,
    DeviceHung,
    DeviceLost,
    RepertoryError,
    again,
)
from repertory.models.program import Network, Program
from repertory.transports.device import Completion, Device, Health
from repertory.transports.frame import Frame
from repertory.transports.loop import Slot
from repertory.transports.wheel import Alarm, Wheel
from repertory.transports.world import World

from .actor import Actor, Envelope
from .bounds import as_fault, close_device, open_device
from .context import ModelContext
from .flightbook import FlightBook, Tenant, blend
from .mailbox import Mailbox
from .observer import GroupObserver
from .orders import Evict, GroupOrder, MakeResident, Probe
from .policy import Bind, Entry, Grant, GroupState, Policy, Wait
from .stall import StallWatch
from .vitals import Chart

__all__ = ["MAX_BARREN", "STALL_FACTOR", "DeviceGroup"]

STALL_FACTOR = 20.0
"""A group is hung when no completion came for this many learned service times (at least the floor)."""


MAX_BARREN = 64
"""Grants in a row that may start nothing: a policy that goes on so is a bug, not a load."""


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
        swaps: binds that succeeded, over all incarnations.
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
        self.state = GroupState(name)
        self.device: Device = connect()
        self.started = anyio.Event()
        self.error: BaseException | None = None
        self.swaps = 0
        self.flight = FlightBook(self.state)
        self.chart = Chart()
        self._binds: Counter[str] = Counter()
        self._connect = connect
        self._policy = policy
        self._loop = world.loop
        self._wheel = wheel
        self._observer = observer
        self._tenants: dict[ModelContext, Tenant] = {}
        self._by_entry: dict[Entry, Tenant] = {}
        self._window = 0
        self._grant: Grant | None = None
        self._left = 0
        self._ask = True
        self._poked: Slot | None = None
        self._stall = StallWatch(wheel, self._loop, patience=self._patience, stalled=self._stalled)
        self._open = False
        self._used = False
        self._draining = False
        self._parked = False

    @property
    def in_service(self) -> bool:
        """Whether the device is open."""
        return self._open

    # -- tenants -----------------------------------------------------------------------------------

    def attach(self, context: ModelContext, program: Program) -> Entry:
        """Serve a context by this program from now on."""
        entry = Entry(context.state, program)
        tenant = Tenant(context, entry)
        self._tenants[context] = tenant
        self._by_entry[entry] = tenant
        self.state.entries.append(entry)
        context.attach(self)
        return entry

    @property
    def contexts(self) -> Collection[ModelContext]:
        """The contexts that this group serves."""
        return self._tenants.keys()

    def entry(self, context: ModelContext) -> Entry | None:
        """What the policy sees of a context here, or None where this group does not serve it."""
        tenant = self._tenants.get(context)
        return None if tenant is None else tenant.entry

    def binds_for(self, context: ModelContext) -> int:
        """How often what serves this context was made resident here."""
        entry = self.entry(context)
        return 0 if entry is None else self._binds[entry.program.key]

    def replace(self, context: ModelContext, program: Program, network: Network) -> Program:
        """Serve later frames of a context by this network of another program; return the one it had."""
        tenant = self._tenants[context]
        tenant.network = network
        before, tenant.entry.program = tenant.entry.program, program
        self.poke()
        return before

    def detach(self, context: ModelContext, refusal: Callable[[], RepertoryError]) -> Program | None:
        """Serve a context no more; return its program where no other context uses it."""
        tenant = self._tenants.pop(context, None)
        if tenant is None:
            return None
        del self._by_entry[tenant.entry]
        self.state.entries.remove(tenant.entry)
        if self._grant is not None and self._grant.entry is tenant.entry:
            self._grant = None
        if self.state.turn is tenant.entry:
            self.state.turn = None
        context.detach(self, refusal)
        self.poke()
        program = tenant.entry.program
        if self.uses(program):
            return None
        self._binds.pop(program.key, None)
        return program

    def uses(self, program: Program) -> bool:
        """Whether any context here is served by this program."""
        return any(entry.program.key == program.key for entry in self.state.entries)

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
        if self._parked and self._poked is not None and not self.state.in_flight and not self.flight.fault:
            self._start_now(now)
        else:
            self.poke()

    def _start_now(self, now: float) -> None:
        self._ask = True
        try:
            decision = self._advance(now)
        except Exception as error:  # noqa: BLE001  (the group's failure, not that of whoever offered)
            self._on_fault(as_fault(error))
            return
        if isinstance(decision, Bind) or (decision is not None and decision.until < math.inf):
            self.poke()  # the task binds, or waits until another time

    def poke(self) -> None:
        """Something changed: look again."""
        self._ask = True
        self._wake()

    def _wake(self) -> None:
        if self._poked is not None:
            poked, self._poked = self._poked, None
            self._loop.fill(poked)

    def give_up(self, error: BaseException | None) -> None:
        """The device will not come back: its contexts are served elsewhere, or fail."""
        reason = f"{self.name} is out of service for good: {error or 'it was stopped'}"
        for context in list(self._tenants):
            self.detach(context, lambda: DeviceLost(reason, family="group"))

    # -- one incarnation ---------------------------------------------------------------------------

    async def serve(self, inbox: Mailbox[Envelope[GroupOrder]]) -> None:
        self.flight.fault = None
        inbox.on_arrival = self._wake
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
            self._open = False
            self.started.set()
            try:
                hung = await close_device(self.device, name=self.name)
                if hung is not None:
                    self._observer.failed(self, hung)
            finally:
                self._clear()

    def _in_service(self) -> None:
        self._open = True
        self.error = None
        self.state.capacity = self.device.capabilities.residents
        self._window = self.device.capabilities.window
        self._observer.opened(self)
        self.started.set()

    async def _serve(self, inbox: Mailbox[Envelope[GroupOrder]]) -> None:
        while not (inbox.closed and not inbox and not self.state.in_flight):
            self._raise_fault()
            if envelope := inbox.receive_nowait() if inbox else None:
                await self._obey(envelope)
            elif inbox.closed:
                await self._landing()
            else:
                decision = self._advance(self._loop.now())
                if isinstance(decision, Bind):
                    await self._bind(decision.entry, decision.evict)
                else:
                    self._parked = True
                    try:
                        await self._changed(decision.until if decision else math.inf)
                    finally:
                        self._parked = False

    async def _changed(self, until: float = math.inf) -> None:
        """Wait until poked, at the latest until `until`."""
        slot = self._poked = self._loop.slot()
        alarm = None
        if until < math.inf:
            alarm = Alarm(self.poke)
            self._wheel.add(alarm, until)
        try:
            await slot
        finally:
            self._poked = None
            if alarm is not None:
                self._wheel.discard(alarm)

    async def _landing(self) -> None:
        """Wait until nothing is in flight, or something else changed."""
        self._draining = True
        try:
            await self._changed()
        finally:
            self._draining = False

    def _clear(self) -> None:
        """Forget the device's state."""
        self.flight.clear(DeviceLost(f"{self.name} went out of service", family="group"))
        self._stall.stop()
        self._grant = None
        self.state.turn = None

    def _advance(self, now: float) -> Bind | Wait | None:
        """Start what may be started. None: only a completion or a poke changes anything."""
        barren = 0
        while True:
            if self._grant is not None and not self._ask:
                before = self.state.in_flight
                if self._fill_window(now):
                    return None
                self._grant = None
                barren = barren + 1 if self.state.in_flight == before else 0
                if barren > MAX_BARREN:
                    raise RuntimeError(f"{self._policy!r} keeps granting turns in which nothing starts")
            self._ask = False
            decision = self._policy.decide(self.state, now)
            self._observer.decided(self, decision, now)
            if not isinstance(decision, Grant):
                self._grant = None
                return decision
            self._begin(decision, now)

    def _begin(self, grant: Grant, now: float) -> None:
        self._grant = grant
        self._left = grant.frames
        self._pass_turn(grant.entry, now)

    def _pass_turn(self, entry: Entry, now: float) -> None:
        """The turn is this entry's, if it is not already; the one before has been served."""
        state = self.state
        if state.turn is not entry:
            if state.turn is not None:
                state.turn.served = now
            state.turn, state.turn_frames, state.turn_since = entry, 0, now

    def _fill_window(self, now: float) -> bool:
        """Start frames of the grant; False when it has ended, True when only the windows are full."""
        grant = self._grant
        assert grant is not None, "called with a grant"
        if now >= grant.until:
            return False
        state, program = self.state, grant.entry.program
        count = min(self.flight.room(program), self._window - state.in_flight, self._left)
        if count <= 0:
            return self._left > 0
        if not state.in_flight:
            self._stall.begin(now)
        started = self.flight.start(self._by_entry[grant.entry], count, now, self.device.start)
        self._left -= started
        return started == count and self._left > 0

    # -- binding -----------------------------------------------------------------------------------

    async def _bind(self, entry: Entry, evict: Sequence[Program]) -> ArtifactError | None:
        """Swap; return why the device refuses the program, where it does."""
        if self._touches_flight(evict):
            await self._landing()
            return None  # decide again: what waits may have changed during the drain
        began = self._loop.now()
        program = entry.program
        self.flight.evict(evict)
        try:
            residency = await self.device.bind(program, evict=evict)
        except ArtifactError as error:
            self._refuse(program, error)
            return error
        assert residency is not None, "a bind of a program returns its residency"
        ended = self._loop.now()
        self.flight.settle_in(residency)
        self.state.swap = blend(self.state.swap, ended - began)
        self.swaps += 1
        self._binds[program.key] += 1
        self._pass_turn(entry, ended)
        self._observer.swapped(self, program, began, ended)
        self._ask = True
        return None

    def _touches_flight(self, evict: Sequence[Program]) -> bool:
        """Whether a bind that evicts these would change what a started frame needs."""
        if self.device.capabilities.bind_needs_idle:
            return self.state.in_flight > 0
        return self.flight.needs(evict)

    def _refuse(self, program: Program, error: ArtifactError) -> None:
        """The device refuses a program: its contexts are served elsewhere or not at all."""
        for context, tenant in list(self._tenants.items()):
            if tenant.entry.program.key == program.key:
                self.detach(context, lambda: again(error))

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
                await self._drain()
                if not self.uses(program):
                    self.flight.evict([program])
                    await self.device.bind(None, evict=[program])
            case Probe():
                if self.device.capabilities.probe_needs_idle:
                    await self._drain()
                health = await self.device.probe()
                self.chart.note(health, self._loop.now())
                return health
        return None

    async def _make_resident(self, entry: Entry) -> None:
        state = self.state
        if entry.program.key in state.residents:
            return
        await self._drain()
        free = [p for key, p in state.residents.items() if key not in state.pinned]
        surplus = max(len(state.residents) + 1 - state.capacity, 0)
        if surplus > len(free):
            raise ConfigError(f"{entry.context.name} does not fit beside what is pinned")
        if error := await self._bind(entry, free[:surplus]):
            raise error

    async def _drain(self) -> None:
        self._raise_fault()
        while self.state.in_flight:
            await self._landing()
            self._raise_fault()

    # -- completions -------------------------------------------------------------------------------

    def _on_completed(self, completions: Sequence[Completion]) -> None:
        """Settle a batch; called by the device on the event loop."""
        now = self._loop.now()
        breach = self.flight.land(completions)
        if breach is not None:
            self._on_fault(as_fault(breach))
        elif self.flight.fault is not None:
            self.poke()
        idle = not self.state.in_flight
        self._stall.progress(now, more=not idle)
        if self._observer.wants_frames:
            for completion in completions:
                self._observer.finished(self, completion, now)
        if self._grant is not None or (self._draining and idle):
            self._wake()

    # -- faults ------------------------------------------------------------------------------------

    def _patience(self) -> float:
        """Seconds without a completion after which the device counts as hung."""
        slowest = max([entry.service or 0.0 for entry in self.state.entries], default=0.0)
        return max(self.device.capabilities.stall, STALL_FACTOR * slowest)

    def _stalled(self, silent: float) -> None:
        family = self.device.capabilities.family
        self._on_fault(DeviceHung(f"{self.name}: no completion for {silent:.1f} s", family=family))

    def _on_fault(self, error: DeviceError) -> None:
        self.flight.fault = self.flight.fault or error
        self.poke()

    def _raise_fault(self) -> None:
        if self.flight.fault is not None:
            raise self.flight.fault
