"""Devices that break one clause of the contract each, on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from repertory.models.program import Artifact, Program
from repertory.models.spec import Array
from repertory.transports.answers import hash_answer
from repertory.transports.device import Completed, Completion, Device, Fault, Health, Residency
from repertory.transports.frame import Fate, Frame
from repertory.transports.simulated import SimulatedDevice, SimulatedOptions
from repertory.transports.world import World

__all__ = ["Altered", "Case", "Gathering", "Sound", "breaks", "done"]


class Sound(Device):
    """Hands everything on to a sound device; each subclass bends one thing."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.inner = SimulatedDevice(world, SimulatedOptions(residents=2, window=5))
        self.capabilities = self.inner.capabilities
        self.completed: Completed

    async def open(self, completed: Completed, fault: Fault) -> None:
        self.completed = completed
        await self.inner.open(self.report, fault)

    def report(self, completions: Sequence[Completion]) -> None:
        self.completed(completions)

    def prepare(self, artifact: Artifact) -> Program:
        return self.inner.prepare(artifact)

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        return await self.inner.bind(program, evict=evict)

    def start(self, frame: Frame) -> None:
        self.inner.start(frame)

    def abandon(self, frame: Frame) -> None:
        self.inner.abandon(frame)

    async def probe(self) -> Health:
        return await self.inner.probe()

    async def close(self, *, bound: float) -> None:
        await self.inner.close(bound=bound)

    def answer_later(self, *completions: Completion) -> None:
        self.world.loop.call_soon(lambda: self.completed(completions))


Case: TypeAlias = tuple[str, str, type[Sound]]
"""The check that must fail, what it must say, and on which device."""

B = TypeVar("B", bound=type[Sound])


def breaks(cases: list[Case], check: str, complaint: str) -> Callable[[B], B]:
    """Add a device to a list of cases."""

    def note(kind: B) -> B:
        cases.append((check, complaint, kind))
        return kind

    return note


def done(frame: Frame, *outputs: Array) -> Completion:
    return Completion(frame, Fate.DONE, outputs or hash_answer(frame.network, frame.inputs))


class Altered(Sound):
    """Reports other completions than it should; each frame's is altered by itself."""

    def report(self, completions: Sequence[Completion]) -> None:
        self.completed([self.alter(completion) for completion in completions])

    def alter(self, completion: Completion) -> Completion:
        outputs = self.outputs(completion.frame, *completion.outputs)
        return Completion(completion.frame, completion.fate, outputs, error=completion.error)

    def outputs(self, frame: Frame, *outputs: Array) -> tuple[Array, ...]:
        return outputs


class Gathering(Sound):
    """Reports only when all that was started has ended, and can then alter the whole."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.out = 0
        self.ended: list[Completion] = []

    def start(self, frame: Frame) -> None:
        super().start(frame)
        self.out += 1

    def report(self, completions: Sequence[Completion]) -> None:
        self.ended += completions
        if len(self.ended) == self.out:
            ended, self.ended, self.out = self.ended, [], 0
            self.completed(self.all_of(ended))

    def all_of(self, completions: list[Completion]) -> list[Completion]:
        return completions
