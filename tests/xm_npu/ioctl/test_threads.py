"""On real time: one thread that drives, one that waits; what is driven never suspends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import pytest

from repertory.models.errors import DeviceHung
from repertory.transports.frame import Fate
from repertory.transports.real import RealWorld
from repertory.transports.world import World
from repertory.transports.xm_npu.ioctl.npu import NodeNpu
from repertory.transports.xm_npu.npu import Ended

from .rig import Bell
from .scripted import ScriptedKernel, made

pytestmark = pytest.mark.realtime


@final
class _Life:
    """A driver loop that lives through a good job, an abort and a hang."""

    def __init__(self, world: World) -> None:
        self.kernel = ScriptedKernel(world)
        self.bell = Bell(world)
        self.npu = NodeNpu(world, self.kernel)
        self.fates: list[Fate] = []

    async def run(self) -> None:
        await self.npu.open(self.bell.ring)
        first, second = [await self.npu.load(made(name)) for name in "ab"]
        for ends in ([(1, 2, 0), (2, 2, 0)], [(2, 5, 0), (1, 5, 0x80)]):
            for graph in (first, second):
                await graph.submit(graph.places[0])
            number = self.kernel.last - 2
            for job, state, report in ends:
                self.kernel.end(job + number, state, report)
            await self._collect(2)
        await first.submit(first.places[0])
        self._note(await self.npu.break_off(DeviceHung("too long", family="xm-npu")))
        await self.npu.close()

    async def _collect(self, count: int) -> None:
        wanted = len(self.fates) + count
        while len(self.fates) < wanted:
            assert await self.bell.heard()
            self._note(await self.npu.collect())

    def _note(self, ends: Sequence[Ended]) -> None:
        self.fates += [end.fate for end in ends]


async def test_a_life_in_threads() -> None:
    async with RealWorld() as world:
        life = _Life(world)
        driver = world.spawn(life.run, name="test: driver")
        assert await driver.join(20)
        if driver.error is not None:
            raise driver.error
        assert life.fates == [Fate.DONE, Fate.DONE, Fate.FAILED, Fate.UNDONE, Fate.FAILED]
        assert (life.kernel.fds, life.kernel.blocks, life.kernel.wrong) == ({}, {}, [])
