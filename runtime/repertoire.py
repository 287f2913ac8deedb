"""The models in service: how they get there, are exchanged, and leave."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar, final, get_args

import anyio
import numpy as np

from repertory.actors.actor import ActorRef
from repertory.actors.context import ContextOrder, Drain, ModelContext
from repertory.actors.intake import Intake
from repertory.actors.limits import Limits
from repertory.actors.orders import MakeResident
from repertory.actors.supervisor import Supervisor
from repertory.models.checks import is_a
from repertory.models.errors import (
    ArtifactError,
    ConfigError,
    DeviceLost,
    ModelClosed,
    NameTaken,
    RepertoryError,
    UnknownModel,
)
from repertory.models.program import Artifact, Network, Program
from repertory.transports.pump import Worker
from repertory.transports.wheel import Wheel
from repertory.transports.world import World

from .fleet import Fleet, Station
from .model import Model
from .telemetry import Telemetry

__all__ = ["READ_BOUND", "InService", "LoadOptions", "Outputs", "Repertoire"]

T = TypeVar("T")

READ_BOUND = 600.0
"""Seconds that reading and preparing a model file may take."""

Outputs: TypeAlias = Literal["float32", "native"]
"""How quantised outputs come: converted to float32, or in the dtype that the device has them in."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How a model is to be loaded; the arguments of `Runtime.load`."""

    name: str | None = None
    network: str | None = None
    twin: str | Path | bytes | None = None
    sidecar: str | Path | bytes | None = None
    outputs: Outputs = "float32"
    groups: Sequence[str] | None = None
    limits: Limits = field(default_factory=Limits)
    warm: bool = False
    pin: bool = False

    def __post_init__(self) -> None:
        if self.name is not None and (not is_a(self.name, str) or not self.name):
            raise ConfigError(f"name {self.name!r} came, a text that is not empty is wanted")
        _check_outputs(self.outputs)
        if not is_a(self.limits, Limits):
            raise ConfigError(f"limits {self.limits!r} came, a Limits is wanted")


@final
@dataclass(frozen=True, slots=True, eq=False)
class InService:
    """A loaded model."""

    model: Model
    context: ModelContext
    ref: ActorRef[ContextOrder]


@final
class Repertoire:
    """Loads models onto a fleet. Names are taken from the start of a load to the end of an unload.

    Args:
        fleet: the groups.
        world: for the clock, and for threads that read files.
        wheel: for deadlines.
        contexts: supervises the models' actors.
        telemetry: is told.
        intake: what waits in all models together; None where nothing bounds that.
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        world: World,
        wheel: Wheel,
        contexts: Supervisor,
        telemetry: Telemetry,
        intake: Intake | None = None,
    ) -> None:
        self._fleet = fleet
        self._world = world
        self._wheel = wheel
        self._contexts = contexts
        self._telemetry = telemetry
        self._intake = intake
        self._worker = Worker(world, family="host", name="repertory: files")
        self._models: dict[str, InService | None] = {}

    def __iter__(self) -> Iterator[InService]:
        return iter([model for model in self._models.values() if model is not None])

    def find(self, name: str) -> InService:
        """Return a model in service.

        Raises:
            UnknownModel: there is none of this name.
        """
        found = self._models.get(name)
        if found is None:
            raise UnknownModel(f"no model {name!r} is loaded; there are {[m.model.name for m in self]}")
        return found

    def refuse(self, refusal: Callable[[], RepertoryError]) -> None:
        """Admit nothing any more on any model, and fail what waits."""
        for item in self:
            item.context.close(refusal)
            item.ref.drain()

    async def close(self, *, bound: float) -> None:
        """End the thread that reads files."""
        await self._worker.close(bound=bound)

    # -- loading -----------------------------------------------------------------------------------

    async def load(self, source: str | Path | bytes, options: LoadOptions) -> Model:
        """Load a model file; see `Runtime.load`."""
        name = options.name
        if name is not None:
            self._reserve(name)
        try:
            artifact = await self._read(
                source,
                name,
                network=options.network,
                twin=options.twin,
                sidecar=options.sidecar,
                outputs=options.outputs,
            )
            programs = await self._prepare(artifact, self._fleet.named(options.groups))
            network = _chosen(artifact, next(iter(programs.values())))
            if name is None:
                self._reserve(network.name)
                name = network.name
            found = self._put_in_service(name, network, programs, options)
        except BaseException:
            if name is not None:
                del self._models[name]
            raise
        await self._first_turn(found, options)
        self._telemetry.emit("loaded", model=name)
        return found.model

    def _reserve(self, name: str) -> None:
        if name in self._models:
            raise NameTaken(f"a model {name!r} is loaded; give this one another name=")
        self._models[name] = None

    def _put_in_service(
        self, name: str, network: Network, programs: Mapping[Station, Program], options: LoadOptions
    ) -> InService:
        places = self._places(name, programs)
        loop = self._world.loop
        context = ModelContext(
            name, network, options.limits, loop=loop, wheel=self._wheel, intake=self._intake
        )
        ref = self._contexts.start(lambda: context, name=f"model {name}")
        model = Model(context, loop)
        for station, program in places.items():
            station.group.attach(context, program)
        found = self._models[name] = InService(model, context, ref)
        return found

    def _places(self, name: str, programs: Mapping[Station, Program]) -> dict[Station, Program]:
        """Return the groups that can serve the model: not dead, and not full of what is pinned."""
        alive = {station: program for station, program in programs.items() if not station.dead}
        if not alive:
            reasons = "; ".join(f"{s.group.name}: {s.ref.error or 'stopped'}" for s in programs)
            raise DeviceLost(
                f"{name}: whoever takes it is out of service for good: {reasons}", family="group"
            )
        places = {s: program for s, program in alive.items() if s.has_place_for(program)}
        if not places:
            raise ConfigError(f"{name} would never get a place beside what is pinned")
        return places

    async def _first_turn(self, found: InService, options: LoadOptions) -> None:
        """Pin and warm up before the first traffic; a model that cannot is not left in service."""
        try:
            if options.pin:
                await self.pin(found.model.name)
            if options.warm:
                await found.model.infer(_zeros(found.context.network), deadline=math.inf)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.unload(found.model.name)
            raise

    # -- changes in service ------------------------------------------------------------------------

    async def unload(self, name: str) -> None:
        """Take a model out of service; see `Runtime.unload`."""
        found = self.find(name)
        refusal = partial(ModelClosed, f"{name} is unloaded")
        await found.ref.ask(Drain(refusal))
        found.ref.drain()
        self._models[name] = None  # the name stays taken until the device is free of the program
        with anyio.CancelScope(shield=True):
            for station in self._fleet:
                program = station.group.detach(found.context, refusal)
                if program is not None:
                    station.group.state.pinned.discard(program.key)
                    await self._evict(station, program)
        self._models.pop(name, None)
        self._telemetry.emit("unloaded", model=name)

    async def replace(
        self,
        name: str,
        source: str | Path | bytes,
        *,
        network: str | None,
        twin: str | Path | bytes | None,
        sidecar: str | Path | bytes | None,
        outputs: Outputs,
    ) -> None:
        """Exchange a model's file in service; see `Runtime.replace`."""
        _check_outputs(outputs)
        found = self.find(name)
        stations = [station for station in self._fleet if found.context in station.group.contexts]
        artifact = await self._read(
            source, name, network=network, twin=twin, sidecar=sidecar, outputs=outputs
        )
        programs = await self._prepare(artifact, stations, every=True)
        networks = {station: _chosen(artifact, program) for station, program in programs.items()}
        for network_ in networks.values():
            _check_same_ports(found.context.network, network_)
        if self.find(name) is not found:
            raise UnknownModel(f"{name} was unloaded and loaded again meanwhile")
        gone = [
            (station, _exchange(station, found.context, program, networks[station]))
            for station, program in programs.items()
            if found.context in station.group.contexts
        ]
        for station, before in gone:
            if not station.group.uses(before):
                await self._evict(station, before)
        self._telemetry.emit("replaced", model=name)

    async def pin(self, name: str) -> None:
        """Keep a model resident; see `Runtime.pin`."""
        found = self.find(name)
        for station in self._fleet:
            entry = station.group.entry(found.context)
            if entry is None:
                continue
            state = station.group.state
            pinned = state.pinned | {entry.program.key}
            needy = [entry, *(e for e in state.entries if e.program.key not in pinned)]
            if not all(state.has_place_for(each.program, pinned) for each in needy):
                most = f"{state.capacity} programs" + _bytes(state.memory)
                raise ConfigError(
                    f"{name} cannot be pinned on {state.name}: it keeps {most} resident,"
                    " and another model there would never get a place"
                )
            await station.ref.ask(MakeResident(entry))
            state.pinned.add(entry.program.key)

    # -- inside ------------------------------------------------------------------------------------

    async def _read(
        self,
        source: str | Path | bytes,
        name: str | None,
        *,
        network: str | None,
        twin: str | Path | bytes | None,
        sidecar: str | Path | bytes | None,
        outputs: Outputs,
    ) -> Artifact:
        native = outputs == "native"
        read = partial(Artifact.read, source, name=name, network=network, twin=twin, sidecar=sidecar)
        return await self._off_loop(partial(read, native_outputs=native))

    async def _prepare(
        self, artifact: Artifact, stations: Sequence[Station], *, every: bool = False
    ) -> dict[Station, Program]:
        """Let each group read the file; raise where none takes it, or, with `every`, where one does not."""
        programs: dict[Station, Program] = {}
        refusals: list[RepertoryError] = []
        for station in stations:
            try:
                prepare = partial(station.group.device.prepare, artifact)
                programs[station] = await self._off_loop(prepare)
            except (ArtifactError, UnknownModel) as error:
                refusals.append(error)
            except RepertoryError:
                raise
            except Exception as error:  # noqa: BLE001  (a device of the user's own)
                refusals.append(ArtifactError(f"{station.group.name} failed to read the file: {error!r}"))
        if programs and not (every and refusals):
            return programs
        if not refusals:
            raise ConfigError(f"{artifact.name}: there is no group to load it on")
        if len(refusals) == 1:
            raise refusals[0]
        raise ArtifactError(f"{artifact.name}: " + "; ".join(dict.fromkeys(map(str, refusals))))

    async def _off_loop(self, job: Callable[[], T]) -> T:
        async def run() -> T:
            return job()

        return await self._worker.call(run, bound=READ_BOUND, what="reading a model file")

    async def _evict(self, station: Station, program: Program) -> None:
        error = await station.evict(program)
        if error is not None:
            self._telemetry.emit("failed", group=station.group.name, detail=f"evicting: {error}")


def _check_outputs(outputs: object) -> None:
    if not is_a(outputs, str) or outputs not in get_args(Outputs):
        raise ConfigError(f"outputs {outputs!r} came, one of {', '.join(get_args(Outputs))} is wanted")


def _chosen(artifact: Artifact, program: Program) -> Network:
    """Return the network that the artifact names, or the only one there is."""
    networks = {network.name: network for network in program.networks}
    if artifact.network is None and len(networks) > 1:
        raise UnknownModel(f"{artifact.name} holds {sorted(networks)}: say which with network=")
    wanted = artifact.network or program.networks[0].name
    if wanted not in networks:
        raise UnknownModel(f"{artifact.name} holds {sorted(networks)}, not {wanted!r}")
    return networks[wanted]


def _exchange(station: Station, context: ModelContext, program: Program, network: Network) -> Program:
    """Let a group serve a context by another program; return the one before. A pin goes over."""
    before = station.group.replace(context, program, network)
    pinned = station.group.state.pinned
    if before.key in pinned:
        pinned.add(program.key)
    if not station.group.uses(before):
        pinned.discard(before.key)
    return before


def _check_same_ports(old: Network, new: Network) -> None:
    if (old.inputs, old.outputs) != (new.inputs, new.outputs):
        raise ArtifactError(f"{new.name} cannot replace {old.name}: its ports differ")


def _bytes(memory: int | None) -> str:
    return "" if memory is None else f" of {memory} bytes"


def _zeros(network: Network) -> dict[str, object]:
    return {
        spec.name: np.zeros([dim if isinstance(dim, int) else 1 for dim in spec.shape], spec.dtype)
        for spec in network.inputs
    }
