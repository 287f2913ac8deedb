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
    NoRoom,
    RepertoryError,
    again,
)
from repertory.models.program import Network, Program
from repertory.transports.device import Completion, Device, Health, Residency
from repertory.transports.frame import Frame
from repertory.transports.loop import Slot
from repertory.transports.wheel import Alarm, Wheel
from repertory.transports.world import World

from .actor import Actor, Envelope
from .bounds import as_fault, close_device, open_device
from .budget import Budget
from .context import ModelContext
from .flightbook import FlightBook, Tenant, blend
from .grants import Grants
from .mailbox import Mailbox
from .observer import GroupObserver
from .orders import Evict, GroupOrder, MakeResident, Probe
from .policy import Bind, Entry, Grant, GroupState, Policy, Wait
from .room import least_valuable, making_room
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
        evictions: programs that had to make room for another, likewise.
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
        self.evictions = 0
        self.flight = FlightBook(self.state)
        self.chart = Chart()
        self._binds: Counter[str] = Counter()
        self._evicted: Counter[str] = Counter()
        self._connect = connect
        self._policy = policy
        self._loop = world.loop
        self._wheel = wheel
        self._observer = observer
        self._tenants: dict[ModelContext, Tenant] = {}
        self._by_entry: dict[Entry, Tenant] = {}
        self._window = 0
        self._grants = Grants()
        self._due: Bind | None = None  # what the policy said last beside the grants
        self._wait: Wait | None = None
        self._asking = True  # it may have more to say
        self._ask = True  # and may have changed its mind
        self._poked: Slot | None = None
        self._budget = Budget(self.state, wheel, self._loop, self.poke)
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

    def evictions_for(self, context: ModelContext) -> int:
        """How often what serves this context had to make room here."""
        entry = self.entry(context)
        return 0 if entry is None else self._evicted[entry.program.key]

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
        self._grants.forget(tenant.entry)
        context.detach(self, refusal)
        self.poke()
        program = tenant.entry.program
        if self.uses(program):
            return None
        self._binds.pop(program.key, None)
        self._evicted.pop(program.key, None)
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
        capabilities = self.device.capabilities
        self.state.capacity = capabilities.residents
        self._budget.open(capabilities.memory)
        self.state.bind_needs_idle = capabilities.bind_needs_idle
        self._window = capabilities.window
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
                if isinstance(decision, Bind) and not self._touches_flight(decision.evict):
                    await self._bind(decision.entry, decision.evict)
                    continue
                self._parked = True
                try:
                    await self._changed(decision.until if isinstance(decision, Wait) else math.inf)
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
        """Wait until something has landed, or something else changed."""
        self._draining = True
        try:
            await self._changed()
        finally:
            self._draining = False

    def _clear(self) -> None:
        """Forget the device's state."""
        self.flight.clear(DeviceLost(f"{self.name} went out of service", family="group"))
        self._stall.stop()
        self._budget.close()
        self._withdraw()
        self._ask = True

    def _advance(self, now: float) -> Bind | Wait | None:
        """Start what may be started. None: only a completion or a poke changes anything."""
        barren = 0
        if self._due is not None and not self._touches_flight(self._due.evict):
            self._ask = True  # its way is free: what waits may have changed meanwhile
        while True:
            if self._ask:
                self._ask = False
                self._withdraw()
            if self._asking:
                decision = self._consult(now)
                if not self._grants.all:
                    return decision
            before = self.state.in_flight
            if not self._grants.fill(self._goes_on, now):
                self._asking = True
                barren = barren + 1 if self.state.in_flight == before else 0
                if barren > MAX_BARREN:
                    raise RuntimeError(f"{self._policy!r} keeps granting turns in which nothing starts")
            elif not self._asking:
                return self._due or self._wait

    def _withdraw(self) -> None:
        """All grants are in question again."""
        if self._grants.all:
            self._grants.withdraw()
        self._due = self._wait = None
        self._asking = True

    def _consult(self, now: float) -> Bind | Wait | None:
        """Ask the policy for one decision; where one program is resident at most, one grant is all it has.

        Return what it is where it is no grant.
        """
        decision = self._policy.decide(self.state, now)
        self._observer.decided(self, decision, now)
        self._due = self._wait = None
        if isinstance(decision, Grant):
            more = self._grants.open(decision, now)
            self._asking = more and self.state.capacity > 1
            return None
        if isinstance(decision, Wait):
            self._wait = decision
        else:
            if self.state.bind_needs_idle:
                self._grants.withdraw()
            self._due = decision
        self._asking = False
        return decision

    def _goes_on(self, grant: Grant, now: float) -> bool:
        """Start frames of a grant; False when it has ended, True when only the windows are full."""
        if now >= grant.until:
            return False
        state, entry = self.state, grant.entry
        count = min(self.flight.room(entry.program), self._window - state.in_flight, entry.granted)
        if count <= 0:
            return entry.granted > 0
        if not state.in_flight:
            self._stall.begin(now)
        started = self.flight.start(self._by_entry[entry], count, now, self.device.start)
        return started == count and entry.granted > 0

    # -- binding -----------------------------------------------------------------------------------

    async def _bind(self, entry: Entry, evict: Sequence[Program]) -> ArtifactError | None:
        """Swap; return why the device refuses the program, where it does."""
        self._ask = True
        began = self._loop.now()
        program = entry.program
        try:
            residency = await self._residency(program, evict)
        except ArtifactError as error:
            self._refuse(program, error)
            return error
        ended = self._loop.now()
        self.flight.settle_in(residency)
        self.state.swap = blend(self.state.swap, ended - began)
        self.swaps += 1
        self._binds[program.key] += 1
        entry.turn_since, entry.turn_frames = ended, 0
        self._observer.swapped(self, program, began, ended)
        self._ask = True
        return None

    async def _residency(self, program: Program, evict: Sequence[Program]) -> Residency:
        """Bind; while the device finds no room, evict one program more, and try again."""
        why = f"for {program.name}"
        while True:
            self._evict(evict, why)
            try:
                residency = await self.device.bind(program, evict=evict)
            except NoRoom as error:
                self._budget.no_room(program)
                evict = least_valuable(self.state)[:1]
                if not evict:
                    raise ArtifactError(_no_room(self.name, program, error)) from error
                why = f"for {program.name}, which found no room: {error}"
                await self._landed(evict)
            else:
                assert residency is not None, "a bind of a program returns its residency"
                return residency

    def _evict(self, programs: Sequence[Program], why: str) -> None:
        """Programs make room."""
        gone = [program for program in programs if program.key in self.state.residents]
        self.flight.evict(programs)
        for program in gone:
            self.evictions += 1
            self._evicted[program.key] += 1
            self._observer.evicted(self, program, why)

    def _touches_flight(self, evict: Sequence[Program]) -> bool:
        """Whether a bind that evicts these would change what a started frame needs."""
        if self.state.bind_needs_idle:
            return self.state.in_flight > 0
        return self.flight.needs(evict)

    async def _landed(self, evict: Sequence[Program]) -> None:
        """Wait until a bind that evicts these touches nothing in flight."""
        self._raise_fault()
        while self._touches_flight(evict):
            await self._landing()
            self._raise_fault()

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
                await self._landed([program])
                if not self.uses(program):
                    self.flight.evict([program])
                    await self.device.bind(None, evict=[program])
                    self._ask = True
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
            raise ConfigError(f"{entry.context.name} does not fit beside what is pinned")
        await self._landed(evict)
        if error := await self._bind(entry, evict):
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
        if self._grants.all or self._draining or self._due is not None:
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


def _no_room(group: str, program: Program, error: NoRoom) -> str:
    return (
        f"{program.name} ({program.footprint} bytes, {program.scratch} shared) finds no room on {group},"
        f" and nothing is left to evict: {error}"
    )
