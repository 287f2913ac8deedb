"""The runtime: device groups, loaded models, and what keeps them going."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias, TypeVar, final

import anyio
import numpy as np
from anyio.abc import TaskGroup

from repertory.actors.actor import ActorRef
from repertory.actors.context import ContextOrder, Drain, Limits, ModelContext
from repertory.actors.group import DeviceGroup, Evict, GroupOrder, MakeResident, Probe
from repertory.actors.policy import Policy
from repertory.actors.supervisor import Restarts, Supervisor
from repertory.models.errors import (
    ArtifactError,
    ConfigError,
    ModelClosed,
    NameTaken,
    RepertoryError,
    RuntimeClosed,
    UnknownModel,
    again,
)
from repertory.models.program import Artifact, Network, Program
from repertory.transports.device import Device, Health
from repertory.transports.families import connect
from repertory.transports.pump import Worker
from repertory.transports.real import RealWorld
from repertory.transports.wheel import Wheel
from repertory.transports.world import World

from .config import Config, ModelConfig, read_config
from .model import Model
from .rotation import Rotation
from .snapshots import group_statistics, model_statistics
from .statistics import Decided, Statistics
from .telemetry import Events, Telemetry
from .timeline import Span

__all__ = ["DeviceSource", "Runtime", "open_runtime"]

T = TypeVar("T")

DeviceSource: TypeAlias = str | Callable[[World], Device]
"""An address, or a function that makes a device of one's own for each incarnation."""

READ_BOUND = 600.0
"""Seconds that reading and preparing a model file may take."""

GRACE = 5.0
"""Seconds that an orderly stop gives a group to complete what is in flight."""


@final
class _Group:
    """A device group with its handle and the supervisor that restarts it."""

    def __init__(self, group: DeviceGroup, ref: ActorRef[GroupOrder], supervisor: Supervisor) -> None:
        self.group = group
        self.ref = ref
        self.supervisor = supervisor


@final
class _Loaded:
    """A model in service."""

    def __init__(self, model: Model, context: ModelContext, ref: ActorRef[ContextOrder]) -> None:
        self.model = model
        self.context = context
        self.ref = ref


@final
class Runtime:
    """Made by `open_runtime`; an async context manager, used on the event loop that entered it."""

    def __init__(
        self,
        devices: Sequence[DeviceSource],
        *,
        config: Config | None,
        world: World,
        policy: Policy,
        spans: int,
    ) -> None:
        self._devices = devices
        self._config = config
        self._world = world
        self._policy = policy
        self._spans = spans
        self._stack = AsyncExitStack()
        self._groups: dict[str, _Group] = {}
        self._models: dict[str, _Loaded | None] = {}
        self._closed: Callable[[], RepertoryError] | None = _not_open
        self._tasks: TaskGroup
        self._scopes: list[anyio.CancelScope] = []
        self._wheel: Wheel
        self._telemetry: Telemetry
        self._worker: Worker
        self._contexts: Supervisor

    # -- opening and closing -----------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._closed is not _not_open:
            raise RuntimeClosed("a runtime is opened once; call open_runtime again")
        self._closed = None
        try:
            await self._open()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _open(self) -> None:
        await self._stack.enter_async_context(self._world)
        loop = self._world.loop
        self._wheel = Wheel(loop)
        self._telemetry = Telemetry(loop, spans=self._spans)
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._background(self._wheel.run)
        self._worker = Worker(self._world, family="host", name="repertory: files")
        self._contexts = await self._stack.enter_async_context(Supervisor(grace=GRACE))
        for device in self._devices:
            await self._start_group(device)
        for group in self._groups.values():
            await group.group.started.wait()
            if isinstance(group.group.error, RepertoryError):
                raise again(group.group.error)
        _open_runtimes.add(self)
        for model in self._config.model if self._config else ():
            await self._load_configured(model)

    async def _start_group(self, device: DeviceSource) -> None:
        if isinstance(device, str):
            name, make = device, connect(device, self._world)
        else:
            name, make = getattr(device, "__name__", repr(device)), partial(device, self._world)
        if name in self._groups:
            raise ConfigError(f"{name} is given twice")
        group = DeviceGroup(
            name,
            make,
            policy=self._policy,
            world=self._world,
            wheel=self._wheel,
            observer=self._telemetry,
        )
        supervisor = await self._stack.enter_async_context(Supervisor(restarts=Restarts(), grace=GRACE))
        ref = supervisor.start(lambda: group, name=name)
        self._groups[name] = _Group(group, ref, supervisor)
        self._background(partial(self._bury, self._groups[name]))

    async def _bury(self, group: _Group) -> None:
        """When a group has ended for good, whatever only it could serve fails."""
        await group.ref.stopped.wait()
        group.group.give_up(group.ref.error)
        if group.ref.error is not None:
            self._telemetry.emit("dead", group=group.group.name, detail=str(group.ref.error))

    def _background(self, serve: Callable[[], object]) -> None:
        """Run a task that outer cancellation does not reach: `_close` ends it."""
        scope = anyio.CancelScope(shield=True)
        self._scopes.append(scope)

        async def run() -> None:
            with scope:
                await serve()  # type: ignore[misc]

        self._tasks.start_soon(run)

    async def _close(self) -> None:
        """Refuse, fail what waits, let groups land what is in flight, give the devices back."""
        if self._closed is None:
            self.refuse_all(lambda: RuntimeClosed("the runtime is closed"))
        _open_runtimes.discard(self)
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as stopping:
                for group in self._groups.values():
                    stopping.start_soon(group.supervisor.stop)
            if hasattr(self, "_worker"):
                await self._worker.close(bound=GRACE)
            if hasattr(self, "_telemetry"):
                self._telemetry.close()
            for scope in self._scopes:
                scope.cancel()
        await self._stack.aclose()

    def refuse_all(self, refusal: Callable[[], RepertoryError]) -> None:
        """Admit nothing any more, and fail what waits."""
        self._closed = refusal
        for loaded in self._models.values():
            if loaded is not None:
                loaded.context.close(refusal)
                loaded.ref.drain()

    # -- models ------------------------------------------------------------------------------------

    async def load(
        self,
        source: str | Path | bytes,
        *,
        name: str | None = None,
        network: str | None = None,
        twin: str | Path | bytes | None = None,
        groups: Sequence[str] | None = None,
        limits: Limits | None = None,
        timeout: float | None = None,
        priority: int = 0,
        warm: bool = False,
        pin: bool = False,
    ) -> Model:
        """Load a model file and return its handle; it is in service when this returns.

        Args:
            source: a path, or the file's content.
            name: its name in this runtime; the network's own without one.
            network: which network, where the file holds several.
            twin: an ONNX graph for simulated devices, where the file carries no twin of its own.
            groups: addresses of the groups that may serve it; without them every group that takes it.
            limits: bounds of its queue.
            timeout: default of `infer`, seconds.
            priority: default of `infer`.
            warm: make it resident and run it once on zeros, so that no caller pays for the first time.
            pin: make it resident, and keep it so (see `pin`).

        Raises:
            ArtifactError: the file cannot be read, or no group takes it; the message says why, by group.
            NameTaken: a model of this name is loaded or being loaded.
            UnknownModel: the file does not hold this network, or holds several and none was named.
            ConfigError: there is no such group.
        """
        self._check_open()
        if name is not None:
            self._reserve(name)
        reserved = name
        try:
            read = partial(Artifact.read, source, network=network, twin=twin)
            artifact = await self._off_loop(read)
            programs = await self._prepare(artifact, self._named(groups))
            chosen = _choose(artifact, next(iter(programs.values())))
            if reserved is None:
                self._reserve(chosen.name)
                reserved = chosen.name
            loaded = self._put_in_service(
                reserved, chosen, programs, limits or Limits(), timeout=timeout, priority=priority
            )
        except BaseException:
            if reserved is not None and self._models.get(reserved) is None:
                self._models.pop(reserved, None)
            raise
        try:
            if pin:
                await self.pin(reserved)
            if warm:
                await self._warm_up(loaded)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.unload(reserved)
            raise
        self._telemetry.emit("loaded", model=reserved)
        return loaded.model

    async def unload(self, name: str) -> None:
        """Take a model out of service: refuse new requests, answer those that were admitted, free its place.

        Raises:
            UnknownModel: no such model is loaded.
        """
        loaded = self._loaded(name)
        refusal = partial(ModelClosed, f"{name} is unloaded")
        loaded.context.close(refusal, drain=True)
        await loaded.ref.ask(Drain(refusal))
        del self._models[name]
        with anyio.CancelScope(shield=True):
            for group in list(self._groups.values()):
                program = group.group.detach(loaded.context, refusal)
                if program is not None:
                    group.group.state.pinned.discard(program.key)
                    await self._evict(group, program)
        loaded.ref.drain()
        self._telemetry.emit("unloaded", model=name)

    async def replace(
        self, name: str, source: str | Path | bytes, *, twin: str | Path | bytes | None = None
    ) -> None:
        """Put another file in a model's place, in service: no request is dropped, none waits for it.

        Requests that were started finish on the old file; all later ones run on the new. The new network
        must have the same ports.

        Raises:
            ArtifactError: the file cannot be read, its ports differ, or a group of this model refuses it.
            UnknownModel: no such model is loaded.
        """
        loaded = self._loaded(name)
        serving = [g for g in self._groups.values() if loaded.context in g.group.contexts]
        network = loaded.context.network
        artifact = await self._off_loop(partial(Artifact.read, source, twin=twin))
        programs = await self._prepare(artifact, serving, all_of_them=True)
        for program in programs.values():
            _check_same_ports(network, _choose(artifact, program))
        for group, program in programs.items():
            before = group.group.replace(loaded.context, program, _choose(artifact, program))
            if before.key in group.group.state.pinned:
                group.group.state.pinned.discard(before.key)
                group.group.state.pinned.add(program.key)
            if not group.group.uses(before):
                await self._evict(group, before)
        self._telemetry.emit("replaced", model=name)

    async def pin(self, name: str) -> None:
        """Make a model resident on every group that serves it, and never evict it until it is unloaded.

        Raises:
            UnknownModel: no such model is loaded.
            ConfigError: another model of such a group would never get a place.
        """
        loaded = self._loaded(name)
        for group in self._groups.values():
            entry = group.group.entry(loaded.context)
            if entry is None:
                continue
            state = group.group.state
            pinned = state.pinned | {entry.program.key}
            others = {e.program.key for e in state.entries} - pinned
            if len(pinned) + bool(others) > state.capacity:
                raise ConfigError(
                    f"{name} cannot be pinned on {group.group.name}: it keeps {state.capacity} programs"
                    " resident, and another model there would never get a place"
                )
            await group.ref.ask(MakeResident(entry))
            state.pinned.add(entry.program.key)

    def model(self, name: str) -> Model:
        """Return the handle of a loaded model.

        Raises:
            UnknownModel: no such model is loaded.
        """
        return self._loaded(name).model

    # -- looking in --------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Return a snapshot of every model and every group."""
        groups = {name: group.group for name, group in self._groups.items()}
        loaded = {name: item.context for name, item in self._models.items() if item is not None}
        return Statistics(
            models={name: model_statistics(context, groups) for name, context in loaded.items()},
            groups={name: group_statistics(group, self._telemetry) for name, group in groups.items()},
        )

    def explain(self) -> list[Decided]:
        """Return the last 256 decisions of the policy with their reasons, oldest first."""
        return self._telemetry.explain()

    def events(self) -> Events:
        """Return an async iterator over events from now on; a slow reader loses the oldest ones."""
        return self._telemetry.subscribe()

    def timeline(self) -> dict[str, list[Span]]:
        """Return what each group did with its time, where `open_runtime` was told to keep spans."""
        return {name: list(spans) for name, spans in self._telemetry.spans.items()}

    async def probe(self, group: str) -> Health:
        """Read a group's health.

        Raises:
            ConfigError: there is no such group.
            DeviceError: it is out of service.
        """
        (found,) = self._named([group])
        health: Health = await found.ref.ask(Probe())
        return health

    # -- inside ------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed()

    def _loaded(self, name: str) -> _Loaded:
        self._check_open()
        loaded = self._models.get(name)
        if loaded is None:
            there = sorted(name for name, item in self._models.items() if item is not None)
            raise UnknownModel(f"no model {name!r} is loaded; there are {there}")
        return loaded

    def _named(self, names: Sequence[str] | None) -> list[_Group]:
        unknown = sorted(set(names or ()) - self._groups.keys())
        if unknown:
            raise ConfigError(f"no group {unknown[0]!r}; there are {sorted(self._groups)}")
        return [group for name, group in self._groups.items() if names is None or name in names]

    def _reserve(self, name: str) -> None:
        if name in self._models:
            raise NameTaken(f"a model {name!r} is loaded; give this one another name=")
        self._models[name] = None

    async def _off_loop(self, job: Callable[[], T]) -> T:
        async def run() -> T:
            return job()

        return await self._worker.call(run, bound=READ_BOUND, what="reading a model file")

    async def _prepare(
        self, artifact: Artifact, groups: Sequence[_Group], *, all_of_them: bool = False
    ) -> dict[_Group, Program]:
        """Let each group read the file; raise where none takes it."""
        programs: dict[_Group, Program] = {}
        refusals: list[RepertoryError] = []
        for group in groups:
            try:
                programs[group] = await self._off_loop(partial(group.group.device.prepare, artifact))
            except (ArtifactError, UnknownModel) as error:
                refusals.append(error)
        if len(refusals) == 1 and (all_of_them or not programs):
            raise refusals[0]
        if refusals and (all_of_them or not programs):
            raise ArtifactError(f"{artifact.name}: " + "; ".join(dict.fromkeys(map(str, refusals))))
        if not programs:
            raise ConfigError(f"{artifact.name}: there is no group to load it on")
        return programs

    def _put_in_service(
        self,
        name: str,
        network: Network,
        programs: dict[_Group, Program],
        limits: Limits,
        *,
        timeout: float | None,
        priority: int,
    ) -> _Loaded:
        self._check_open()
        loop = self._world.loop
        context = ModelContext(name, network, limits, loop=loop, wheel=self._wheel)
        ref = self._contexts.start(lambda: context, name=f"model {name}")
        model = Model(context, loop, timeout=timeout, priority=priority)
        loaded = self._models[name] = _Loaded(model, context, ref)
        for group, program in programs.items():
            if group.ref.error is None:
                group.group.attach(context, program)
        return loaded

    async def _warm_up(self, loaded: _Loaded) -> None:
        zeros = {
            spec.name: np.zeros([dim if isinstance(dim, int) else 1 for dim in spec.shape], spec.dtype)
            for spec in loaded.model.inputs
        }
        await loaded.model.infer(zeros)

    async def _evict(self, group: _Group, program: Program) -> None:
        """Free what a program holds on a device that is in service; one that is not holds nothing."""
        if group.group.error is None and not group.ref.stopped.is_set():
            try:
                await group.ref.ask(Evict(program))
            except RepertoryError as error:
                self._telemetry.emit("failed", group=group.group.name, detail=f"evicting: {error}")

    async def _load_configured(self, model: ModelConfig) -> None:
        await self.load(
            model.path,
            name=model.name,
            network=model.network,
            twin=model.twin,
            groups=model.groups,
            limits=model.limits,
            timeout=model.timeout,
            priority=model.priority,
            warm=model.warm,
            pin=model.pin,
        )


def open_runtime(
    source: str | Path | Sequence[DeviceSource],
    *,
    world: World | None = None,
    policy: Policy | None = None,
    spans: int = 0,
) -> Runtime:
    """Open device groups and serve models on them; the result is entered with `async with`.

    Args:
        source: a TOML file's path, or addresses of device groups (`["sim+memx://0", "cpu://"]`).
        world: real time without one; a `VirtualWorld` under an event loop on virtual time.
        policy: who gets a group next; a fair rotation without one.
        spans: how many spans a group keeps for `timeline`; 0 keeps none.

    Raises:
        ConfigError: the file or an address is wrong.
        DeviceError: (on entering) a device is not there or belongs to somebody else.
    """
    config = read_config(Path(source)) if isinstance(source, str | Path) else None
    devices = [group.address for group in config.group] if config else source
    if not devices or isinstance(devices, str | Path):
        raise ConfigError("a runtime needs at least one device address")
    return Runtime(
        devices, config=config, world=world or RealWorld(), policy=policy or Rotation(), spans=spans
    )


def _choose(artifact: Artifact, program: Program) -> Network:
    networks = {network.name: network for network in program.networks}
    if artifact.network is not None:
        if artifact.network not in networks:
            raise UnknownModel(f"{artifact.name} holds {sorted(networks)}, not {artifact.network!r}")
        return networks[artifact.network]
    if len(networks) > 1:
        raise UnknownModel(f"{artifact.name} holds {sorted(networks)}: say which with network=")
    return program.networks[0]


def _check_same_ports(old: Network, new: Network) -> None:
    if (old.inputs, old.outputs) != (new.inputs, new.outputs):
        raise ArtifactError(f"{new.name} cannot replace {old.name}: its ports differ")


def _not_open() -> RuntimeClosed:
    return RuntimeClosed("the runtime is not open: use `async with open_runtime(...) as rt`")


_open_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _forked() -> None:
    """In a child process: its threads are not there, and the devices belong to the parent."""
    text = f"the runtime was opened in process {os.getppid()} and does not survive a fork: open one here"
    for runtime in list(_open_runtimes):
        runtime.refuse_all(partial(RuntimeClosed, text))


os.register_at_fork(after_in_child=_forked)
