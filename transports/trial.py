"""A device on trial: driven as its owner would, with every callback noted and judged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, cycle, islice
from typing import Any, Protocol, TypeAlias, final

import anyio
import numpy as np

from repertory.models.errors import ContractError, DeviceError
from repertory.models.onnx_model import UNRANKED
from repertory.models.program import Artifact, Network, Program
from repertory.models.spec import Array, Dim, TensorSpec

from .device import Completion, Device, Residency
from .frame import Fate, Frame
from .world import World

__all__ = ["Answer", "Clause", "Subject", "Trial", "draw", "refused", "require"]

Answer: TypeAlias = tuple[bytes, ...]
"""A frame's outputs, copied."""


@final
@dataclass(frozen=True, kw_only=True)
class Subject:
    """An implementation of the device contract, and what to try it with.

    Attributes:
        make: makes a device that is not open; called once for each check, and again to reopen.
        artifacts: two models that it runs, with different answers.
        foreign: a file that it must refuse.
        answers: whether outputs depend on the inputs; the null device says no.
        extents: for extents that a network leaves open, by name; 1 for those not named.
        patience: seconds after which what must come counts as lost.
        bound: seconds that a close is given.
        quiet: seconds without a callback after a close that count as silence.
    """

    make: Callable[[World], Device]
    artifacts: tuple[Artifact, Artifact]
    foreign: Artifact
    answers: bool = True
    extents: Mapping[str, int] = field(default_factory=dict[str, int])
    patience: float = 30.0
    bound: float = 10.0
    quiet: float = 0.002


def require(fact: object, otherwise: str) -> None:
    """Raise ContractError with that sentence unless `fact` is true."""
    if not fact:
        raise ContractError(otherwise)


@contextmanager
def refused(kind: type[Exception], what: str) -> Generator[None]:
    """Require that the block raises `kind` and nothing else."""
    try:
        yield
    except kind:
        return
    except Exception as error:
        raise ContractError(f"{what} raised {error!r} instead of {kind.__name__}") from error
    raise ContractError(f"{what} did not raise {kind.__name__}")


def draw(spec: TensorSpec, random: np.random.Generator, extents: Mapping[str, int]) -> Array:
    """Make a tensor that the spec admits: floats from 0 to 1, integers from their whole range."""
    shape = [dim if isinstance(dim, int) else extents.get(dim, 1) for dim in spec.shape]
    if spec.dtype.kind in "iu":
        info = np.iinfo(spec.dtype)
        return random.integers(info.min, info.max, size=shape, dtype=spec.dtype.type, endpoint=True)
    if spec.dtype.kind == "b":
        return random.random(shape) < 0.5  # noqa: PLR2004  (an even chance)
    return random.random(shape).astype(spec.dtype)


@final
class Trial:
    """One device from open to close, and what it did. Its frames belong to nobody else.

    Attributes:
        subject: what it is, and with what to try it.
        world: where it runs.
        device: the device.
        landed: completions by frame, in the order in which they came.
    """

    def __init__(self, subject: Subject, world: World) -> None:
        self.subject = subject
        self.world = world
        self.device = subject.make(world)
        self.landed: dict[Frame, Completion] = {}
        self._random = np.random.default_rng(20)
        self._breaches: list[str] = []
        self._started: set[Frame] = set()
        self._successors: list[Trial] = []
        self._unreleased: list[Callable[[], None]] = []
        self._inside_start = False
        self._closed = False
        self._thread = threading.get_ident()
        self._news = anyio.Event()

    @property
    def started(self) -> int:
        """How many frames were started."""
        return len(self._started)

    def successor(self) -> Trial:
        """Try another device of the same subject; closed and judged with this one."""
        self._successors.append(Trial(self.subject, self.world))
        return self._successors[-1]

    async def open(self) -> tuple[Program, Program]:
        """Open the device and prepare both models."""
        with anyio.fail_after(self.subject.patience):
            await self.device.open(self._completed, self._fault)
        one, two = (self.device.prepare(artifact) for artifact in self.subject.artifacts)
        return one, two

    async def open_bound(self) -> tuple[Program, Residency]:
        """Open the device and bind the first model."""
        program, _ = await self.open()
        return program, await self.bind(program)

    async def bind(self, program: Program, *evict: Program) -> Residency:
        """Bind a program that fits."""
        with anyio.fail_after(self.subject.patience):
            residency = await self.device.bind(program, evict=evict)
        return self.checked(residency, program)

    def checked(self, residency: Residency | None, program: Program) -> Residency:
        """Return what a bind gave, if it is what it must be."""
        if residency is None or residency.program.key != program.key:
            raise ContractError(f"bind of {program.name} returned {residency}")
        window = self.device.capabilities.window
        require(1 <= residency.window <= window, f"its window is {residency.window}, the device's {window}")
        return residency

    async def free(self, *programs: Program) -> None:
        """Evict, and bind nothing."""
        with anyio.fail_after(self.subject.patience):
            require(await self.device.bind(None, evict=programs) is None, "bind(None) returned something")

    def frames(self, program: Program, count: int) -> list[Frame]:
        """Make frames with random inputs, for the program's networks in turn."""
        return [self._frame(program, network) for network in islice(cycle(program.networks), count)]

    def again(self, frame: Frame, inputs: Sequence[Array] | None = None) -> Frame:
        """Make a new frame like this one, with the same inputs or with others."""
        given = frame.inputs if inputs is None else tuple(inputs)
        return Frame(self, frame.network, given, program=frame.program)

    def start(self, *frames: Frame) -> None:
        """Start frames, with no step of the event loop between them."""
        for frame in frames:
            self._inside_start = True
            try:
                self.device.start(frame)
            finally:
                self._inside_start = False
            self._started.add(frame)

    async def land(self, *frames: Frame) -> list[Completion]:
        """Wait for completions."""
        with anyio.move_on_after(self.subject.patience):
            while not all(frame in self.landed for frame in frames):
                await self._news.wait()
        require(not self._breaches, "; ".join(self._breaches))  # it says more than what it led to
        missing = sum(frame not in self.landed for frame in frames)
        require(not missing, f"{missing} of {len(frames)} started frames got no completion")
        return [self.landed[frame] for frame in frames]

    async def answer(self, frame: Frame) -> Answer:
        """Wait for a frame's answer, and copy it as it is now."""
        (completion,) = await self.land(frame)
        if completion.fate is not Fate.DONE:
            raise ContractError(f"{frame} ended {completion.fate.name}: {completion.error}")
        return tuple(array.tobytes() for array in completion.outputs)

    async def infer(self, *frames: Frame) -> list[Answer]:
        """Start frames at once, and return their answers."""
        self.start(*frames)
        return [await self.answer(frame) for frame in frames]

    async def infer_singly(self, frames: Sequence[Frame]) -> list[Answer]:
        """Run frames like these, one after the other; return their answers."""
        return [(await self.infer(self.again(frame)))[0] for frame in frames]

    async def close(self) -> None:
        """Close the device, and watch it for a while; whatever it did before."""
        for successor in self._successors:
            await successor.close()
        for release in self._unreleased:
            release()
        self._unreleased.clear()
        with anyio.fail_after(self.subject.patience):
            await self.device.close(bound=self.subject.bound)
        self._closed = True
        await anyio.sleep(self.subject.quiet)

    def judge(self) -> None:
        """Raise the first breach that a callback showed.

        Raises:
            ContractError: says what happened.
        """
        for breach in chain(self._breaches, *(successor._breaches for successor in self._successors)):
            raise ContractError(breach)

    def settled(self, frame: Frame, /) -> None:
        """Nobody waits for its frames."""

    def expire(self, frame: Frame, /) -> None:
        """Its frames have no deadlines."""

    def _frame(self, program: Program, network: Network) -> Frame:
        inputs = tuple(draw(spec, self._random, self.subject.extents) for spec in network.inputs)
        return Frame(self, network, inputs, program=program)

    def _completed(self, completions: Sequence[Completion]) -> None:
        if threading.get_ident() != self._thread:
            self._breaches.append("completed was called from another thread than the event loop's")
            self.world.loop.call_from_thread(partial(self._note, completions))
            return
        if self._inside_start:
            self._breaches.append("completed was called from inside start")
        self._note(completions)

    def _note(self, completions: Sequence[Completion]) -> None:
        if self._closed:
            self._breaches.append("completed was called after the close")
        for completion in completions:
            if completion.frame in self.landed:
                self._breaches.append(f"{completion.frame} was completed twice")
            self.landed.setdefault(completion.frame, completion)
            self._breaches += _wrongs(completion)
            if completion.release is not None:
                self._unreleased.append(completion.release)
        news, self._news = self._news, anyio.Event()
        news.set()

    def _fault(self, error: DeviceError) -> None:
        self._breaches.append(f"a fault was reported: {error!r}")


def _wrongs(completion: Completion) -> list[str]:
    """Say what is wrong with a completion by itself."""
    if completion.fate is not Fate.DONE:
        return [] if completion.error else [f"{completion.frame} is {completion.fate.name} without an error"]
    specs, outputs = completion.frame.network.outputs, completion.outputs
    if len(outputs) != len(specs):
        return [f"{len(outputs)} outputs came, {len(specs)} are specified"]
    return [
        f"output {spec.name} came as {array.dtype}{list(array.shape)}, it is specified as {spec}"
        for spec, array in zip(specs, outputs, strict=True)
        if array.dtype != spec.dtype or not _admits(spec.shape, array.shape)
    ]


def _admits(wanted: tuple[Dim, ...], shape: tuple[int, ...]) -> bool:
    if wanted == UNRANKED:
        return True
    return len(shape) == len(wanted) and all(
        isinstance(want, str) or want == have for want, have in zip(wanted, shape, strict=True)
    )


class Clause(Protocol):
    """Tries one clause of the contract, which its docstring says, on a device that is not open."""

    __name__: str

    def __call__(self, trial: Trial, /) -> Coroutine[Any, Any, None]: ...
