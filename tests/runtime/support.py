"""Runtimes over devices that a test decides about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import anyio
import numpy as np

from repertory.models.errors import DeviceError
from repertory.models.program import Artifact, Program
from repertory.models.sketch import read_sketch, sketch
from repertory.models.spec import Array, TensorSpec
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.runtime.statistics import ModelStatistics
from repertory.transports.answers import hash_answer
from repertory.transports.device import Completed, Device, Fault, Health, Residency
from repertory.transports.frame import Fate, Frame
from repertory.transports.memory import InMemoryDevice
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World

__all__ = [
    "SETTLED",
    "Memory",
    "Pending",
    "Scripted",
    "answer",
    "lost",
    "open_virtual",
    "outstanding",
    "reconciles",
    "sketched",
    "tensor",
]

SETTLED = 0.01
"""Seconds of virtual time after which everything that does not wait for time has happened."""

FLOAT = np.dtype(np.float32)


def sketched(
    name: str,
    *,
    inputs: Sequence[TensorSpec] = (TensorSpec("x", (4,), FLOAT),),
    outputs: Sequence[TensorSpec] = (TensorSpec("y", (16,), FLOAT),),
    service: float | None = None,
    footprint: int | None = None,
) -> bytes:
    """Return a model file for devices that compute nothing."""
    return sketch(name, inputs, outputs, service=service, footprint=footprint)


def tensor(number: float) -> Array:
    """Return an input that no other number has."""
    return np.full(4, number, FLOAT)


def answer(name: str, number: float) -> Array:
    """Return what the network of that name says to `tensor(number)`."""
    network, _ = read_sketch(sketched(name))
    return hash_answer(network, [tensor(number)])[0]


def open_virtual(*devices: str | Callable[[World], Device], **options: Any) -> Runtime:
    """Open a runtime under virtual time."""
    return open_runtime(list(devices), world=VirtualWorld(), **options)


def lost(text: str = "unplugged") -> DeviceError:
    """Return a fault."""
    return DeviceError(text, family="memory")


def outstanding(statistics: ModelStatistics) -> int:
    """Return how many admitted requests have no outcome."""
    return statistics.waiting + statistics.in_flight


def reconciles(statistics: ModelStatistics) -> bool:
    """Whether every admitted request is accounted for once."""
    settled = (
        statistics.answered
        + statistics.failed
        + statistics.expired
        + statistics.cancelled
        + statistics.superseded
        + statistics.withdrawn
    )
    return statistics.admitted == settled + outstanding(statistics)


@final
class Scripted(Device):
    """An in-memory device that fails and dawdles as its source says; counts opens and closes."""

    def __init__(self, world: World, source: Memory, inner: InMemoryDevice) -> None:
        self.inner = inner
        self.capabilities = inner.capabilities
        self.ran: list[Frame] = []
        self.opened = 0
        self.closed = 0
        self._source = source

    async def open(self, completed: Completed, fault: Fault) -> None:
        self.opened += 1
        if self._source.open_errors:
            raise self._source.open_errors.pop(0)
        await self.inner.open(completed, fault)

    def prepare(self, artifact: Artifact) -> Program:
        self._source.files.append(artifact)
        return self.inner.prepare(artifact)

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(self._source.bind_seconds)
        if program is not None and self._source.bind_errors:
            error = self._source.bind_errors.pop(0)
            self.inner.fail(error)
            raise error
        return await self.inner.bind(program, evict=evict)

    def start(self, frame: Frame) -> None:
        if frame.outcome is not None or frame.deadline <= anyio.current_time():
            self._source.wasted.append(frame)
        self.ran.append(frame)
        self.inner.start(frame)

    def abandon(self, frame: Frame) -> None:
        self.inner.abandon(frame)

    async def probe(self) -> Health:
        return await self.inner.probe()

    async def close(self, *, bound: float) -> None:
        self.closed += 1
        if not self._source.forgetful:
            await self.inner.close(bound=bound)


@final
class Memory:
    """A source of in-memory devices, one an incarnation; the newest is `device`.

    Attributes:
        holding: whether devices hold what is started, from their opening on.
        refuse: names of programs that a bind refuses.
        crowded: programs beside which devices find no room for another, from their opening on.
        bind_seconds: how long a bind takes.
        bind_errors: what the next binds fail with; the device breaks down with it.
        open_errors: what the next openings fail with.
        forgetful: whether devices break the contract and complete nothing when they are closed.
        wasted: frames that were started though nobody could wait for them any more.
        files: model files that were read, in order.
    """

    def __init__(
        self,
        name: str = "memory",
        *,
        window: int = 4,
        residents: int = 1,
        bind_needs_idle: bool = True,
        probe_needs_idle: bool = False,
        holding: bool = False,
    ) -> None:
        self.__name__ = name
        self.holding = holding
        self.forgetful = False
        self.refuse: set[str] = set()
        self.crowded: int | None = None
        self.bind_seconds = 0.0
        self.bind_errors: list[DeviceError] = []
        self.open_errors: list[DeviceError] = []
        self.devices: list[Scripted] = []
        self.wasted: list[Frame] = []
        self.files: list[Artifact] = []
        self._window = window
        self._residents = residents
        self._bind_needs_idle = bind_needs_idle
        self._probe_needs_idle = probe_needs_idle

    def __call__(self, world: World) -> Device:
        inner = InMemoryDevice(
            world,
            window=self._window,
            residents=self._residents,
            bind_needs_idle=self._bind_needs_idle,
            probe_needs_idle=self._probe_needs_idle,
        )
        inner.holding = self.holding
        inner.refuse = self.refuse
        inner.crowded = self.crowded
        self.devices.append(Scripted(world, self, inner))
        return self.devices[-1]

    @property
    def device(self) -> InMemoryDevice:
        """The device in service."""
        return self.devices[-1].inner

    @property
    def ran(self) -> list[Frame]:
        """Every frame that any incarnation was given, in order."""
        return [frame for device in self.devices for frame in device.ran]

    @property
    def balanced(self) -> bool:
        """Whether each device that was opened was closed."""
        return all(device.closed >= device.opened for device in self.devices)

    def let_go(self) -> None:
        """Complete what is held, and hold nothing more."""
        self.holding = self.device.holding = False
        self.device.release(len(self.device.held))

    def undo(self) -> None:
        """Give back what is held, as if it had not begun."""
        self.device.release(len(self.device.held), Fate.UNDONE, lost("not run"))


@final
class Pending:
    """A request in a task of its own: its outcome, whatever it is, and when it came.

    Attributes:
        model: who is asked.
        value: the answer.
        error: what was raised instead; the backend's cancellation too.
        ended: when, on the loop's clock; None while it is pending.
    """

    def __init__(self, model: Model, number: float, **options: Any) -> None:
        self.number = number
        self.value: Any = None
        self.error: BaseException | None = None
        self.ended: float | None = None
        self.scope = anyio.CancelScope()
        self._name = model.name
        self.model = model
        self._options = options

    async def __call__(self) -> None:
        with self.scope:
            try:
                self.value = await self.model.infer(tensor(self.number), **self._options)
            except Exception as error:  # noqa: BLE001  (the test looks at it)
                self.error = error
            except BaseException as error:
                self.error = error
                raise
            finally:
                self.ended = anyio.current_time()

    def answered_by(self, network: str) -> bool:
        """Whether the answer is that network's to this very input."""
        return self.value is not None and np.array_equal(self.value, answer(network, self.number))
