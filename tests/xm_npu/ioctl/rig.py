"""An opened NPU over scripted nodes, on virtual time."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, final

from repertory.models.errors import DeviceError
from repertory.transports.frame import Fate
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World
from repertory.transports.xm_npu.ioctl.npu import NodeNpu
from repertory.transports.xm_npu.npu import Ended, Graph, Run

from .scripted import ScriptedKernel, made

__all__ = ["Bell", "Rig", "opened"]


@final
class Bell:
    """Rung when there is something to collect."""

    def __init__(self, world: World) -> None:
        self._condition = world.condition()
        self._rung = False

    def ring(self) -> None:
        with self._condition:
            self._rung = True
            self._condition.notify()

    async def heard(self, timeout: float = 10.0) -> bool:
        """Wait for it."""
        return await self._condition.wait(self._answer, timeout=timeout, next_event=lambda: math.inf)

    def _answer(self) -> bool:
        rung, self._rung = self._rung, False
        return rung


@final
@dataclass
class Rig:
    """What a test needs at hand."""

    world: World
    kernel: ScriptedKernel
    bell: Bell
    npu: NodeNpu

    async def load(self, name: str = "net", **options: Any) -> Graph:
        """Load a model."""
        return await self.npu.load(made(name, **options))

    async def submit(self, graph: Graph) -> Run:
        """Submit what lies at its place."""
        return await graph.submit(graph.places[0])

    async def ends(self, count: int) -> dict[Run, Ended]:
        """Return so many ends, as they are told."""
        found: list[Ended] = []
        while len(found) < count:
            assert await self.bell.heard(), "nobody rang"
            found += await self.npu.collect()
        assert len(found) == count
        return {end.run: end for end in found}

    async def fates(self, *runs: Run) -> list[Fate]:
        """Return the fates of these runs, which are all that end."""
        ends = await self.ends(len(runs))
        return [ends[run].fate for run in runs]

    def why(self, end: Ended) -> DeviceError:
        """Return why a job is not done."""
        assert end.error is not None
        return end.error

    def check_clean(self) -> None:
        """Nothing was left behind."""
        assert self.kernel.wrong == []
        assert (self.kernel.fds, self.kernel.blocks, self.kernel.mapped) == ({}, {}, {})


@asynccontextmanager
async def opened(**options: Any) -> AsyncGenerator[Rig]:
    """Open an NPU; at the end close it, and see that nothing is left."""
    async with VirtualWorld() as world:
        kernel, bell = ScriptedKernel(world), Bell(world)
        rig = Rig(world, kernel, bell, NodeNpu(world, kernel, **options))
        await rig.npu.open(bell.ring)
        yield rig
        await rig.npu.close()
        rig.check_clean()
