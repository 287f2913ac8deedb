"""Any device of an address, unchanged, in a child process: the parent's side of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import TypeAlias, final

from repertory.models.errors import ArtifactError, DeviceError, DeviceHung, DeviceLost, RepertoryError
from repertory.models.program import Artifact, Program
from repertory.transports.device import Capabilities, Completed, Completion, Device, Fault, Health, Residency
from repertory.transports.flight import Flight
from repertory.transports.frame import Frame
from repertory.transports.world import Driver, Outbox, World

from .failures import as_device_error
from .layout import Layout, slot_size
from .lineup import Lineup
from .link import Event, Link, Shipment
from .messages import (
    Answer,
    Bind,
    Bound,
    Close,
    Closed,
    Faulted,
    Open,
    Opened,
    Probe,
    Probed,
)
from .process import Process
from .requests import Requests

__all__ = ["Bounds", "IsolatedDevice", "Prepare"]

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
        self._well = False  # the device is open, and the child answers
        self._process: Process | None = None
        self._link: Link
        self._requests: Requests
        self._outbox: Outbox[Event]
        self._drivers: list[Driver] = []
        self.capabilities = Capabilities(
            family, simulated=address.startswith("sim+"), window=1, residents=1, probe_needs_idle=False
        )

    async def open(self, completed: Completed, fault: Fault) -> None:
        self._connect()
        level = logging.getLogger("repertory").getEffectiveLevel()
        request = Open(self._requests.number(), level)
        opened = await self._requests.ask(request, Opened, bound=self._bounds.open, shield=False)
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
            self._forget(evict)
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
        request = Probe(self._requests.number())
        probed = await self._requests.ask(request, Probed, bound=self._bounds.probe)
        return probed.health

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
        self._requests = Requests(
            self._world.loop, self._link.request, name=process.name, family=self._family, silent=self._hung
        )
        name = f"repertory: isolated {self._name}"
        self._drivers = [
            self._world.spawn(self._link.write, name=f"{name} writer", on_exit=self._ended),
            self._world.spawn(self._link.read, name=f"{name} reader", on_exit=self._ended),
        ]

    async def _bind(self, program: str | None, evict: list[str]) -> Bound:
        request = Bind(self._requests.number(), program, evict)
        bound = await self._requests.ask(request, Bound, bound=self._bounds.bind)
        self._flight.check()  # it may have been closed or lost meanwhile
        return bound

    def _make_room(self, program: Program) -> None:
        """Give the frames of a program that is resident now their places in shared memory."""
        layouts = [Layout(network) for network in program.networks]
        for index, network in enumerate(program.networks):
            self._layouts[program.key, network.name] = index, layouts[index]
        self._link.reserve(self.capabilities.window, slot_size(layouts))

    def _forget(self, programs: Sequence[Program]) -> None:
        """The child has dropped programs, and must get their files again."""
        for program in programs:
            self._shipped.discard(program.key)
            for network in program.networks:
                self._layouts.pop((program.key, network.name), None)

    async def _closed_in_order(self, bound: float) -> bool:
        """Let the child close its device; at once False where it hangs, is gone, or is not open yet."""
        if not self._well:
            return False
        request = Close(self._requests.number(), bound * 3 / 4)
        try:
            await self._requests.ask(request, Closed, bound=bound)
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
        self._well = self._well or isinstance(answer, Opened)
        if isinstance(answer, Closed):
            self._flight.close()  # all was told before, and the child's end is no fault
        self._requests.settle(answer)

    def _ended(self, error: BaseException | None) -> None:
        """A driver loop has ended: the child is gone."""
        self._outbox.flush()
        self._well = False
        if error is not None:
            lost = error if isinstance(error, DeviceError) else _broken(error, self._family)
            self._lose(lost)

    def _lose(self, error: DeviceError) -> None:
        """The child is unusable: everybody who waits for it is told, and the owner once."""
        self._requests.fail(error)
        self._flight.lose(error)

    def _hung(self, error: DeviceHung) -> None:
        """The child does not answer."""
        self._well = False
        self._lose(error)


def _broken(error: BaseException, family: str) -> DeviceError:
    return DeviceLost(f"the connection to the device's process failed: {error!r}", family=family)
