"""The device groups of a runtime, each under a supervisor of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self, TypeAlias, final

import anyio

from repertory.actors.actor import ActorRef
from repertory.actors.bounds import close_device
from repertory.actors.group import DeviceGroup
from repertory.actors.orders import Evict, GroupOrder
from repertory.actors.policy import GroupState, Policy
from repertory.actors.supervisor import Restarts, Supervisor
from repertory.models.errors import ConfigError, DeviceError, DeviceLost, RepertoryError, again
from repertory.models.program import Program
from repertory.transports.device import Device
from repertory.transports.families import connect
from repertory.transports.wheel import Wheel
from repertory.transports.world import World

from .telemetry import Telemetry

__all__ = ["GRACE", "DeviceSource", "Fleet", "Station"]

DeviceSource: TypeAlias = str | Callable[[World], Device]
"""An address, or a function that makes a device of one's own for each incarnation."""

GRACE = 5.0
"""Seconds that an orderly stop gives a group to complete what is in flight."""

_MOMENT = 0.5  # seconds for what ends by itself


@final
@dataclass(slots=True, eq=False)
class Station:
    """A device group with its handle and the supervisor that restarts it."""

    group: DeviceGroup
    ref: ActorRef[GroupOrder]
    supervisor: Supervisor

    @property
    def dead(self) -> bool:
        """Whether the group has ended for good."""
        return self.ref.stopped.is_set()

    def has_place_for(self, program: Program) -> bool:
        """Whether a program can ever be resident beside what is pinned."""
        return self.group.state.has_place_for(program)

    async def evict(self, program: Program) -> DeviceError | None:
        """Free what a program holds on the device; one that is out of service holds nothing."""
        if self.group.error is not None or self.dead:
            return None
        try:
            await self.ref.ask(Evict(program))
        except DeviceError as error:
            return error
        return None

    async def cut_short(self) -> None:
        """Close the device of a group that does not stop within its grace.

        It opens or binds: neither is cancelled, and both end where the device is closed meanwhile.
        """
        with anyio.move_on_after(GRACE + _MOMENT if self.group.in_service else _MOMENT):
            await self.ref.stopped.wait()
        if not self.ref.stopped.is_set():
            await close_device(self.group.device, name=self.group.name)


@final
class Fleet:
    """Starts groups and stops them; an async context manager.

    One supervisor a group: a device that fails for good takes no other with it.
    """

    def __init__(self, world: World, wheel: Wheel, policy: Policy, telemetry: Telemetry) -> None:
        self._world = world
        self._wheel = wheel
        self._policy = policy
        self._telemetry = telemetry
        self._stack = AsyncExitStack()
        self._stations: dict[str, Station] = {}
        self._peers: list[GroupState] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all groups at once, so that the slowest one's bound is the fleet's."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as stopping:
                for station in self._stations.values():
                    if not station.group.in_service:
                        station.ref.kill()  # nothing is in flight there, and its device may never open
                    stopping.start_soon(station.supervisor.stop)
                    stopping.start_soon(station.cut_short)
        await self._stack.aclose()

    def __iter__(self) -> Iterator[Station]:
        return iter(self._stations.values())

    @property
    def names(self) -> list[str]:
        """The groups' names, in the order given."""
        return list(self._stations)

    async def start(self, device: DeviceSource) -> Station:
        """Start a group; it opens in its own time.

        Raises:
            ConfigError: the address is wrong, or given before.
        """
        if isinstance(device, str):
            name, make = device, connect(device, self._world)
        else:
            name, make = self._numbered(getattr(device, "__name__", "device")), partial(device, self._world)
        if name in self._stations:
            raise ConfigError(f"{name} is given twice")
        group = self._group(name, make)
        supervisor = await self._stack.enter_async_context(Supervisor(restarts=Restarts(), grace=GRACE))
        ref = supervisor.start(lambda: group, name=name)
        station = self._stations[name] = Station(group, ref, supervisor)
        self._peers.append(group.state)
        group.state.peers = self._peers
        return station

    def _group(self, name: str, make: Callable[[], Device]) -> DeviceGroup:
        try:
            return DeviceGroup(
                name,
                make,
                policy=self._policy,
                world=self._world,
                wheel=self._wheel,
                observer=self._telemetry,
            )
        except RepertoryError:
            raise
        except Exception as error:
            raise DeviceLost(f"{name} could not be made: {error!r}", family="group") from error

    def _numbered(self, name: str) -> str:
        """Tell functions of one name apart: the second `camera_npu` becomes `camera_npu-2`."""
        taken = sum(station == name or station.startswith(f"{name}-") for station in self._stations)
        return f"{name}-{taken + 1}" if taken else name

    async def opened(self) -> None:
        """Wait until every group is in service.

        Raises:
            DeviceError: one of them cannot be opened.
        """
        for station in self:
            await station.group.started.wait()
            if isinstance(station.group.error, RepertoryError):
                raise again(station.group.error)

    async def bury(self, station: Station) -> None:
        """When a group has ended for good, let whatever only it could serve fail."""
        await station.ref.stopped.wait()
        station.group.give_up(station.ref.error)
        if station.ref.error is not None:
            self._telemetry.emit("dead", group=station.group.name, detail=str(station.ref.error))

    def named(self, names: Sequence[str] | None) -> list[Station]:
        """Return the named groups, or all.

        Raises:
            ConfigError: there is no such group.
        """
        if isinstance(names, str):
            raise ConfigError(f"{names!r} is one name, and a list of them is wanted: [{names!r}]")
        unknown = sorted(set(names or ()) - self._stations.keys())
        if unknown:
            raise ConfigError(f"no group {unknown[0]!r}; there are {self.names}")
        return [station for name, station in self._stations.items() if names is None or name in names]
