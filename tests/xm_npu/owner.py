"""An owner of one NPU that keeps no windows and no deadlines: the test does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, final

import anyio

from repertory.models.errors import DeviceError
from repertory.models.program import Artifact, Program
from repertory.models.spec import Array
from repertory.transports.device import Completion, Device
from repertory.transports.frame import Fate, Frame, Outcome
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World

from .boards import BoardSource, Via, affine, answer, question

__all__ = ["CLOSE", "Owner", "bench"]

CLOSE = 5.0
"""Bound of a close, unless a test has another."""


@final
class Owner:
    """One device, and what it told.

    Attributes:
        source: of the device, with the board behind it.
        landed: completions in the order in which they came.
        faults: what it called itself unusable for.
    """

    def __init__(self, source: BoardSource, world: World) -> None:
        self.source = source
        self.device: Device = source(world)
        self.landed: list[Completion] = []
        self.faults: list[DeviceError] = []
        self._news = anyio.Event()

    def settled(self, frame: Frame, /) -> None:
        pass

    def expire(self, frame: Frame, /) -> None:
        pass

    async def open(self) -> None:
        await self.device.open(self._completed, self.faults.append)

    async def load(self, factor: int, *, evict: Sequence[Program] = ()) -> Program:
        """Bind `affine(factor)`."""
        return await self.load_data(affine(factor), evict=evict)

    async def load_data(self, data: bytes, *, evict: Sequence[Program] = ()) -> Program:
        """Bind a model."""
        program = self.device.prepare(Artifact("a.xmm", data))
        await self.device.bind(program, evict=evict)
        return program

    def start(self, program: Program, number: int) -> Frame:
        return self.start_array(program, question(number))

    def start_array(self, program: Program, array: Array) -> Frame:
        (network,) = program.networks
        frame = Frame(self, network, (array,), program=program)
        self.device.start(frame)
        return frame

    def cancel(self, frame: Frame) -> None:
        frame.settle(Outcome.CANCELLED)
        self.device.abandon(frame)

    async def end(self, frame: Frame, *, patience: float = 60) -> Completion:
        """Wait for a frame's completion; there is one only."""
        with anyio.fail_after(patience):
            while not (ends := [each for each in self.landed if each.frame is frame]):
                await self._news.wait()
        (end,) = ends
        return end

    async def right(self, frame: Frame, factor: int, number: int) -> bool:
        """Whether it ends with the right answer."""
        end = await self.end(frame)
        return end.fate is Fate.DONE and end.outputs[0].tobytes() == answer(factor, number)

    def fates(self, *frames: Frame) -> list[Fate]:
        """Return what became of frames that have ended, each of them once."""
        found = {frame: [end.fate for end in self.landed if end.frame is frame] for frame in frames}
        assert all(len(fates) == 1 for fates in found.values()), found
        return [fates[0] for fates in found.values()]

    def _completed(self, completions: Sequence[Completion]) -> None:
        self.landed += completions
        self._news.set()
        self._news = anyio.Event()


@asynccontextmanager
async def bench(via: Via, **options: Any) -> AsyncGenerator[Owner]:
    """Give an open NPU whose jobs take 50 ms; nothing of it may be left at the end."""
    usual: dict[str, Any] = {"latency_ms": 50.0}
    async with VirtualWorld() as world:
        owner = Owner(BoardSource(via, **{**usual, **options}), world)
        await owner.open()
        yield owner
        await owner.device.close(bound=CLOSE)
        owner.source.check_clean()
