"""The runtime: what a user opens, loads models into, and looks into."""

from __future__ import annotations

import os
import weakref
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Self, TypeVar, Unpack, final

import anyio
from anyio.abc import TaskGroup

from repertory.actors.actor import ActorDied
from repertory.actors.context import Retune
from repertory.actors.intake import Intake
from repertory.actors.limits import LimitChanges, Limits
from repertory.actors.orders import Probe
from repertory.actors.policy import Policy
from repertory.actors.supervisor import Supervisor
from repertory.actors.vitals import Vitals
from repertory.models.checks import is_a
from repertory.models.errors import ConfigError, DeviceLost, RepertoryError, RuntimeClosed, again
from repertory.transports.device import Health
from repertory.transports.wheel import Wheel
from repertory.transports.world import World

from .arguments import limits_of
from .config import Config
from .fleet import GRACE, DeviceSource, Fleet
from .model import Model
from .repertoire import LoadOptions, Outputs, Repertoire
from .snapshots import group_statistics, model_statistics
from .statistics import Decided, Statistics
from .telemetry import Events, Telemetry
from .timeline import Span

__all__ = ["Runtime"]

T = TypeVar("T")


@final
class Runtime:
    """Device groups and the models in service on them. Made by `open_runtime` and entered once.

    All methods belong to the event loop that entered it. Leaving the block refuses new requests, fails
    what waits with RuntimeClosed, gives groups 5 s to land what is in flight, and gives the devices back,
    whatever they do. Cancelling the code around it does the same, in the same order.
    """

    def __init__(
        self,
        devices: Sequence[DeviceSource],
        *,
        config: Config | None,
        world: World,
        policy: Policy,
        intake: Intake | None,
        spans: int,
    ) -> None:
        self._devices = devices
        self._config = config
        self._world = world
        self._policy = policy
        self._intake = intake
        self._spans = spans
        self._refusal: Callable[[], RepertoryError] | None = _not_open
        self._failure: Exception | None = None
        self._thread = 0
        self._exited = False
        self._tasks: TaskGroup
        self._opened: anyio.Event
        self._leave: anyio.Event
        self._left: anyio.Event
        self._telemetry: Telemetry
        self._vitals: Vitals
        self._fleet: Fleet
        self._repertoire: Repertoire

    async def __aenter__(self) -> Self:
        if self._refusal is not _not_open:
            raise RuntimeClosed("a runtime is entered once; call open_runtime again")
        self._opened, self._leave, self._left = anyio.Event(), anyio.Event(), anyio.Event()
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._run, name="repertory")
        try:
            await self._opened.wait()
            if self._failure is not None:
                raise self._failure  # noqa: TRY301  (closed below, like every other way out)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        self._refusal = None
        self._thread = get_ident()
        _open_runtimes.add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._exited:
            return
        self._exited = True
        self._leave.set()
        interrupted: BaseException | None = None
        with anyio.CancelScope(shield=True):
            while not self._left.is_set():
                try:
                    await self._left.wait()
                except BaseException as cancel:  # noqa: BLE001  (asyncio's own cancel knows no shield)
                    interrupted = cancel
        await self._tasks.__aexit__(None, None, None)
        if interrupted is not None:
            raise interrupted

    async def _run(self) -> None:
        """Hold everything that is open, in a task that outer cancellation does not reach."""
        try:
            with anyio.CancelScope(shield=True):
                async with (
                    self._world,
                    anyio.create_task_group() as tasks,
                    Supervisor(grace=GRACE) as contexts,
                ):
                    await self._serve(tasks, contexts)
                    tasks.cancel_scope.cancel()
        finally:
            self._opened.set()
            self._left.set()

    async def _serve(self, tasks: TaskGroup, contexts: Supervisor) -> None:
        wheel = Wheel(self._world.loop)
        tasks.start_soon(wheel.run)
        self._telemetry = Telemetry(self._world.loop, spans=self._spans)
        self._vitals = Vitals(self._world.loop)
        tasks.start_soon(self._vitals.run)
        async with Fleet(self._world, wheel, self._policy, self._telemetry) as self._fleet:
            self._repertoire = Repertoire(
                self._fleet,
                world=self._world,
                wheel=wheel,
                contexts=contexts,
                telemetry=self._telemetry,
                intake=self._intake,
            )
            try:
                for device in self._devices:
                    tasks.start_soon(self._fleet.bury, await self._fleet.start(device))
                await self._open()
            except Exception as error:  # noqa: BLE001  (raised where the runtime is entered)
                self._failure = error
            self._opened.set()
            await self._leave.wait()
            _open_runtimes.discard(self)
            self.refuse(self._refusal or (lambda: RuntimeClosed("the runtime is closed")))
            await self._repertoire.close(bound=GRACE)
        self._telemetry.close()

    async def _open(self) -> None:
        """Wait for the groups and load the configured models, unless whoever opens gives up."""
        failure: Exception | None = None

        async def give_up() -> None:
            await self._leave.wait()
            opening.cancel_scope.cancel()

        async with anyio.create_task_group() as opening:
            opening.start_soon(give_up)
            try:
                await self._fleet.opened()
                for model in self._config.model if self._config else ():
                    await self._repertoire.load(model.path, model.options)
            except Exception as error:  # noqa: BLE001  (a group would wrap it)
                failure = error
            opening.cancel_scope.cancel()
        if failure is not None:
            raise failure

    def refuse(self, refusal: Callable[[], RepertoryError]) -> None:
        """Admit nothing any more, and fail what waits."""
        self._refusal = refusal
        self._repertoire.refuse(refusal)

    # -- models ------------------------------------------------------------------------------------

    async def load(
        self,
        source: str | Path | bytes,
        *,
        name: str | None = None,
        network: str | None = None,
        twin: str | Path | bytes | None = None,
        sidecar: str | Path | bytes | None = None,
        outputs: Outputs = "float32",
        groups: Sequence[str] | None = None,
        limits: Limits | None = None,
        timeout: float | None = None,
        priority: int | None = None,
        warm: bool = False,
        pin: bool = False,
    ) -> Model:
        """Load a model file and return its handle; it is in service when this returns.

        Args:
            source: a path, or the file's content.
            name: its name in this runtime; the network's own without one.
            network: which network, where the file holds several.
            twin: an ONNX graph for simulated devices, where the file carries no twin of its own.
            sidecar: JSON that tells names, shapes and dtypes of the tensors, for a module that does not (a
                compiled `lib0.out`). Without it the file `SOURCE.json` counts, if there is one.
            outputs: `native` gives outputs that a device quantises as it has them, and not as float32;
                elsewhere it changes nothing.
            groups: addresses of the groups that may serve it; without them every group that takes it.
            limits: what it may take, and what it is due; those of `Limits()` without them.
            timeout: `Limits(timeout=)`, for short.
            priority: `Limits(priority=)`, for short.
            warm: make it resident and run it once on zeros, so that no caller pays for the first time.
            pin: make it resident, and keep it so (see `pin`).

        Raises:
            ArtifactError: the file cannot be read, or no group takes it; the message says why.
            NameTaken: a model of this name is loaded or being loaded.
            UnknownModel: the file does not hold this network, or holds several and none was named.
            ConfigError: there is no such group, an option is wrong, or options contradict each other: a
                timeout or a priority here and another in `limits`, a queue that could not hold one request.
        """
        options = LoadOptions(
            name=name,
            network=network,
            twin=twin,
            sidecar=sidecar,
            outputs=outputs,
            groups=groups,
            limits=limits_of(limits, timeout, priority),
            warm=warm,
            pin=pin,
        )
        return await self._order(self._in_service().load(source, options))

    async def unload(self, name: str) -> None:
        """Take a model out of service: refuse new requests, answer those admitted, free its place.

        Raises:
            UnknownModel: no such model is loaded.
        """
        await self._order(self._in_service().unload(name))

    async def replace(
        self,
        name: str,
        source: str | Path | bytes,
        *,
        network: str | None = None,
        twin: str | Path | bytes | None = None,
        sidecar: str | Path | bytes | None = None,
        outputs: Outputs = "float32",
    ) -> None:
        """Put another file in a model's place, in service: no request is dropped.

        Requests that a device has started finish on the old file; all later ones run on the new. Its
        network must have the same ports, and every group of this model must take it; else nothing changes.

        Raises:
            ArtifactError: the file cannot be read, its ports differ, or a group refuses it.
            UnknownModel: no such model is loaded, or the file holds no such network.
        """
        replacing = self._in_service().replace(
            name, source, network=network, twin=twin, sidecar=sidecar, outputs=outputs
        )
        await self._order(replacing)

    async def pin(self, name: str) -> None:
        """Make a model resident on every group that serves it, and keep it so until it is unloaded.

        Raises:
            UnknownModel: no such model is loaded.
            ConfigError: another model of such a group would never get a place.
        """
        await self._order(self._in_service().pin(name))

    async def retune(self, name: str, limits: Limits | None = None, **changes: Unpack[LimitChanges]) -> None:
        """Change the limits of a model in service: `await rt.retune("camera", weight=2, queue=8)`.

        What waits stays admitted, with the deadline and the priority that it has; what is started goes on.
        Everything later goes by the new limits.

        Args:
            name: the model's.
            limits: all limits anew; without them those stay that are not named.
            changes: some of `Limits`, by name.

        Raises:
            UnknownModel: no such model is loaded.
            ConfigError: there is no such limit, or its value is wrong; nothing has changed.
        """
        found = self._in_service().find(name)
        if limits is not None and not is_a(limits, Limits):
            raise ConfigError(f"limits {limits!r} came, a Limits is wanted")
        await self._order(found.ref.ask(Retune(limits, changes)))

    def model(self, name: str) -> Model:
        """Return the handle of a loaded model.

        Raises:
            UnknownModel: no such model is loaded.
        """
        return self._in_service().find(name).model

    def models(self) -> list[Model]:
        """Return the handles of all loaded models, in the order of loading."""
        return [found.model for found in self._in_service()]

    def _in_service(self) -> Repertoire:
        if self._refusal is not None:
            raise self._refusal()
        if get_ident() != self._thread:
            raise RuntimeClosed("the runtime belongs to the event loop of another thread")
        return self._repertoire

    async def _order(self, work: Awaitable[T]) -> T:
        """Carry out an order; what it meets while the runtime closes is that it closes."""
        try:
            return await work
        except RepertoryError as error:
            if self._refusal is not None:
                raise self._refusal() from error
            raise

    def _looked_into(self) -> Telemetry:
        if self._refusal is _not_open:
            raise _not_open()
        return self._telemetry

    # -- looking in --------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Return a snapshot of every model and every group."""
        telemetry = self._looked_into()
        groups = [station.group for station in self._fleet]
        self._vitals.ask(groups)
        now = self._world.loop.now()
        return Statistics(
            models={
                m.model.name: model_statistics(m.context, groups, telemetry, now) for m in self._repertoire
            },
            groups={group.name: group_statistics(group, telemetry, now) for group in groups},
        )

    def explain(self) -> list[Decided]:
        """Return the last 256 decisions of the policy with their reasons, oldest first."""
        return self._looked_into().explain()

    def events(self) -> Events:
        """Return an async iterator over events from now on; a slow reader loses the oldest ones."""
        return self._looked_into().subscribe()

    def timeline(self) -> dict[str, list[Span]]:
        """Return what each group did with its time, where `open_runtime` was told to keep spans."""
        return {name: list(spans) for name, spans in self._looked_into().spans.items()}

    async def probe(self, group: str) -> Health:
        """Read a group's health.

        Raises:
            ConfigError: there is no such group.
            DeviceError: it is out of service.
        """
        self._in_service()
        (station,) = self._fleet.named([group])
        if station.dead and isinstance(station.ref.error, RepertoryError):
            raise again(station.ref.error)
        try:
            health: Health = await self._order(station.ref.ask(Probe()))
        except ActorDied as error:
            raise DeviceLost(f"{group} went out of service for good", family="group") from error
        return health


def _not_open() -> RuntimeClosed:
    return RuntimeClosed("the runtime is not open: use `async with open_runtime(...) as rt`")


_open_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _forked() -> None:
    """In a child process: its threads are not there, and the devices belong to the parent."""
    text = f"the runtime was opened in process {os.getppid()} and does not survive a fork: open one here"
    for runtime in list(_open_runtimes):
        runtime.refuse(partial(RuntimeClosed, text))


os.register_at_fork(after_in_child=_forked)
