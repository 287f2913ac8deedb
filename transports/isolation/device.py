"""Any device of an address, unchanged, in a child process: the parent's side of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import TypeAlias, TypeVar, final

import anyio

from repertory.models.errors import ArtifactError, DeviceError, DeviceHung, DeviceLost, RepertoryError
from repertory.models.program import Artifact, Program
from repertory.transports.device import Capabilities, Completed, Completion, Device, Fault, Health, Residency
from repertory.transports.flight import Flight
from repertory.transports.frame import Frame
from repertory.transports.loop import Slot
from repertory.transports.world import Driver, Outbox, World

from .failures import as_device_error, unpack
from .layout import Layout, slot_size
from .lineup import Lineup
from .link import Event, Link, Shipment
from .messages import Answer, Bind, Bound, Close, Closed, Faulted, Open, Opened, Probe, Probed, Refused, Request
from .process import Process

__all__ = ["Bounds", "IsolatedDevice", "Prepare"]

A = TypeVar("A", Opened, Bound, Probed, Closed)

Prepare: TypeAlias = Callable[[Artifact, Mapping[str, float]], Program]
"""Reads a model file on the host, given the readings of the open device (none before it was opened)."""

_log = logging.getLogger("repertory.isolation")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Seconds that the child is given for each request: a little more than its device takes at most.

    Attributes:
        open: with the start of the process and all its imports.
        bind: a swap.
        probe: reading the health.
    """

    open: float = 30.0
    bind: float = 35.0
    probe: float = 5.0


@final
class _Asked:
    """A request on its way; `slot` is filled with the answer, or with what went wrong."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.answer: Answer | None = None
        self.error: RepertoryError | None = None


@final
class IsolatedDevice(Device):
    """Forwards the device contract to a child process, and answers for it when it hangs or dies.

    Args:
        world: real time.
        address: what the child opens.
        family: what the device calls itself; until it is open, for errors.
        prepare: reads a model file here, in this process; the child reads it again.
        bounds: for the child's answers.
        environment: variables that the child finds beside those of this process.
    """

    def __init__(
        self,
        world: World,
        address: str,
        *,
        family: str,
        prepare: Prepare,
        bounds: Bounds,
        environment: Mapping[str, str],
    ) -> None:
        self._world = world
        self._address = address
        self._name = address.partition("?")[0]
        self._family = family
        self._prepare = prepare
        self._bounds = bounds
        self._environment = environment
        self._flight = Flight(family, world.working)
        self._lineup = Lineup()
        self._layouts: dict[tuple[str, str], tuple[int, Layout]] = {}
        self._readings: Mapping[str, float] = {}
        self._shipped: set[str] = set()
        self._asked: dict[int, _Asked] = {}
        self._serial = 0
        self._well = False  # the child answers
        self._process: Process | None = None
        self._link: Link
        self._outbox: Outbox[Event]
        self._drivers: list[Driver] = []
        self.capabilities = Capabilities(family, simulated=False, window=1, residents=1)

    async def open(self, completed: Completed, fault: Fault) -> None:
        self._connect()
        level = logging.getLogger("repertory").getEffectiveLevel()
        opened = await self._ask(
            Open(self._next(), level), Opened, bound=self._bounds.open, what="open", shield=False
        )
        self._flight.open(completed, fault)
        self.capabilities = opened.capabilities
        self._readings = opened.readings

    def prepare(self, artifact: Artifact) -> Program:
        return replaced(self._prepare(artifact, self._readings), image=Shipment(artifact))

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        self._flight.check()
        self._flight.evict(evict)
        gone = [each.key for each in evict]
        if program is None or not isinstance(program.image, Shipment):
            await self._bind(None, gone)
            self._shipped -= set(gone)
            if program is not None:
                raise ArtifactError(f"{program.name} was prepared for another device than {self._name}")
            return None
        if program.key not in self._shipped:
            self._link.ship(program, program.image.artifact)
            self._shipped.add(program.key)
        bound = await self._bind(program.key, gone)
        self._make_room(program)
        return self._flight.settle_in(Residency(program, bound.window or 1))

    def start(self, frame: Frame) -> None:
        self._flight.start(frame)
        self._lineup.add(frame)
        self._link.run(frame)

    def abandon(self, frame: Frame) -> None:
        if self._process is not None:
            self._link.abandon(frame)

    async def probe(self) -> Health:
        self._flight.check()
        return (await self._ask(Probe(self._next()), Probed, bound=self._bounds.probe, what="probe")).health

    async def close(self, *, bound: float) -> None:
        process, self._process = self._process, None
        if process is not None:
            if not await self._closed_in_order(bound / 2):
                process.kill()
            if not await process.join(bound / 4):
                process.kill()
                await self._give_up(process, bound / 8)
            self._link.shutdown()
            for driver in self._drivers:
                await driver.join(bound / 16)
            self._outbox.flush()
            self._link.close()
        self._flight.close()

    # -- the child

    def _connect(self) -> None:
        """Start the process and both loops."""
        self._process = process = Process(self._world, self._address, self._environment)
        self._outbox = self._world.outbox(self._deliver)
        self._link = Link(self._world, process, self._outbox, self._layouts, family=self._family)
        name = f"repertory: isolated {self._name}"
        self._drivers = [
            self._world.spawn(self._link.write, name=f"{name} writer", on_exit=self._ended),
            self._world.spawn(self._link.read, name=f"{name} reader", on_exit=self._ended),
        ]

    async def _bind(self, program: str | None, evict: list[str]) -> Bound:
        request = Bind(self._next(), program, evict)
        bound = await self._ask(request, Bound, bound=self._bounds.bind, what="bind")
        self._flight.check()  # it may have been closed or lost meanwhile
        return bound

    def _make_room(self, program: Program) -> None:
        """Give the frames of a program that is resident now their places in shared memory."""
        layouts = [Layout(network) for network in program.networks]
        for index, network in enumerate(program.networks):
            self._layouts[program.key, network.name] = index, layouts[index]
        self._link.reserve(self.capabilities.window, slot_size(layouts))

    async def _closed_in_order(self, bound: float) -> bool:
        """Let the child close its device; at once False where it hangs, is gone, or is not open yet."""
        if not self._well:
            return False
        try:
            await self._ask(Close(self._next(), bound * 3 / 4), Closed, bound=bound, what="close")
        except RepertoryError as error:
            _log.warning("%s was not closed in order: %s", self._name, error)
            return False
        return True

    async def _give_up(self, process: Process, bound: float) -> None:
        """Wait a last time for a killed process."""
        if not await process.join(bound):
            _log.error(
                "%s (%s) was killed and does not end: the kernel holds it in a driver call",
                process.name,
                process.pid,
            )

    # -- requests

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    async def _ask(
        self, request: Request, kind: type[A], *, bound: float, what: str, shield: bool = True
    ) -> A:
        """Send a request and return its answer, within `bound` seconds.

        Raises:
            DeviceHung: there was none; the device is lost.
            RepertoryError: what the request raised in the child, or what ended the child.
        """
        asked = self._asked[request.serial] = _Asked(self._world.loop.slot())
        self._link.request(request)
        try:
            with anyio.move_on_after(bound, shield=shield):
                await asked.slot
        finally:
            self._asked.pop(request.serial, None)
        if asked.error is not None:
            raise asked.error
        if not isinstance(asked.answer, kind):
            text = f"{what}: the process of {self._name} has not answered within {bound:g} s"
            hung = DeviceHung(text, family=self._family, call=what)
            self._well = False
            self._lose(hung)
            raise hung
        return asked.answer

    # -- what comes back, on the event loop

    def _deliver(self, events: list[Event]) -> None:
        completions: list[Completion] = []
        for event in events:
            match event:
                case Completion():
                    completions.append(event)
                case Faulted(failure):
                    self._complete(completions)
                    self._fault(as_device_error(failure))
                case _:
                    self._answer(event)
        self._complete(completions)

    def _complete(self, completions: list[Completion]) -> None:
        self._flight.complete(self._lineup.ready(completions))
        completions.clear()

    def _fault(self, error: DeviceError) -> None:
        """The device has failed; the child is well, unless it waits for the device."""
        self._well = self._well and not isinstance(error, DeviceHung)
        self._flight.lose(error)

    def _answer(self, answer: Answer) -> None:
        self._well = True
        if isinstance(answer, Closed):
            self._flight.close()  # all was told before, and the child's end is no fault
        if isinstance(answer, Refused):
            self._settle(answer.serial, error=unpack(answer.failure))
        else:
            self._settle(answer.serial, answer)

    def _settle(self, serial: int, answer: Answer | None = None, error: RepertoryError | None = None) -> None:
        """Wake whoever asked; the first call wins, and nobody may wait any more."""
        asked = self._asked.pop(serial, None)
        if asked is not None:
            asked.answer, asked.error = answer, error
            self._world.loop.fill(asked.slot)

    def _ended(self, error: BaseException | None) -> None:
        """A driver loop has ended: the child is gone."""
        self._well = False
        self._outbox.flush()
        if error is not None:
            lost = error if isinstance(error, DeviceError) else _broken(error, self._family)
            self._lose(lost)

    def _lose(self, error: DeviceError) -> None:
        """The child is unusable: everybody who waits for it is told, and the owner once."""
        for serial in list(self._asked):
            self._settle(serial, error=error)
        self._flight.lose(error)


def _broken(error: BaseException, family: str) -> DeviceError:
    return DeviceLost(f"the connection to the device's process failed: {error!r}", family=family)
