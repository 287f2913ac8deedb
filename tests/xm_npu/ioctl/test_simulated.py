"""The same code over the simulated driver, which runs what it finds in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, final

import numpy as np
import pytest

from repertory.models.errors import DeviceHung, DeviceLost
from repertory.models.pack_xm_npu import pack_xm_npu
from repertory.models.program import Artifact
from repertory.transports.frame import Fate
from repertory.transports.virtual import VirtualWorld
from repertory.transports.xm_npu.errors import NpuAborted
from repertory.transports.xm_npu.ioctl.generation import MMZ_GK7206, V500
from repertory.transports.xm_npu.ioctl.node import NpuNode
from repertory.transports.xm_npu.ioctl.npu import NPU_NODE, NodeGraph, NodeNpu
from repertory.transports.xm_npu.npu import Ended, Graph, Run
from repertory.transports.xm_npu.program import Loadable, loadable, prepare_xmm
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.faults import Fault, Kind, scripted
from repertory.transports.xm_npu.simulator.kernel import SimulatedKernel
from tests.models.graphs import model, node, tensor

from .rig import Bell

pytestmark = pytest.mark.virtual


@cache
def _times(factor: int) -> Loadable:
    """y = factor * x, of 5 floats."""
    onnx = model(
        [node("Constant", [], ["k"], value_float=float(factor)), node("Mul", ["x", "k"], ["y"])],
        [tensor("x", [1, 5])],
        [tensor("y", [1, 5])],
    )
    data = pack_xm_npu(f"times{factor}", onnx, work=100)
    return loadable(prepare_xmm(Artifact("file", data), simulated=True, via="ioctl", budget=1 << 24))


@final
@dataclass
class _Bench:
    world: VirtualWorld
    board: Board
    kernel: SimulatedKernel
    npu: NodeNpu
    bell: Bell
    graphs: list[Graph]

    async def ask(self, number: int) -> list[Run]:
        """Submit a job to each graph."""
        runs: list[Run] = []
        for graph in self.graphs:
            graph.places[0].inputs[0][:] = np.full(5, number, "<f4").tobytes()
            runs.append(await graph.submit(graph.places[0]))
        return runs

    async def ends(self, runs: Sequence[Run]) -> list[Ended]:
        """Return how they end, in their order."""
        found: list[Ended] = []
        while len(found) < len(runs):
            assert await self.bell.heard(5.0), "nobody rang"
            found += await self.npu.collect()
        return [next(end for end in found if end.run is run) for run in runs]

    async def fates(self, runs: Sequence[Run]) -> list[Fate]:
        """Return what becomes of them."""
        return [end.fate for end in await self.ends(runs)]

    async def check(self, number: int) -> None:
        """Every graph answers rightly."""
        runs = await self.ask(number)
        assert await self.fates(runs) == [Fate.DONE] * len(runs)
        for factor, graph in enumerate(self.graphs, 2):
            answer = np.frombuffer(bytes(graph.places[0].outputs[0]), "<f4")
            assert (answer == factor * number).all()


@asynccontextmanager
async def _bench(*faults: Fault | None, **options: Any) -> AsyncGenerator[_Bench]:
    """Three graphs, and what befalls their first jobs; at the end nothing is left, and nothing was wrong."""
    async with VirtualWorld() as world:
        board, bell = Board(world), Bell(world)
        board.switches.on_job = scripted({number: each for number, each in enumerate(faults) if each})
        kernel = board.kernel()
        npu = NodeNpu(world, kernel, **options)
        await npu.open(bell.ring)
        bench = _Bench(
            world, board, kernel, npu, bell, [await npu.load(_times(factor)) for factor in (2, 3, 4)]
        )
        yield bench
        await npu.close()
        assert board.leaks() == []
        assert board.faults == []


async def test_answers() -> None:
    async with _bench(layout=MMZ_GK7206) as bench:
        for number in (1, 2):
            await bench.check(number)
        await bench.graphs[0].unload()
        bench.graphs[0] = await bench.npu.load(_times(2))
        await bench.check(3)


async def test_after_an_abort_the_others_run_again() -> None:
    async with _bench(None, Fault(Kind.ABORT, 0x1000)) as bench:
        assert await bench.fates(await bench.ask(1)) == [Fate.DONE, Fate.FAILED, Fate.UNDONE]
        await bench.check(2)
        assert bench.kernel.calls.count("RESET") == 1


async def test_code_that_is_no_code_is_to_blame() -> None:
    async with _bench() as bench:
        odd = _times(2)
        broken = replace(odd, data=bytes(len(odd.data)))
        bench.graphs.insert(1, await bench.npu.load(broken))
        ends = await bench.ends(await bench.ask(1))
        assert [end.fate for end in ends] == [Fate.DONE, Fate.FAILED, Fate.UNDONE, Fate.UNDONE]
        assert isinstance(ends[1].error, NpuAborted)
        assert ends[1].error.report == 0x50000
        await bench.graphs.pop(1).unload()
        await bench.check(2)


async def test_several_programs_are_one_run() -> None:
    async with _bench() as bench:
        (code,) = _times(2).codes
        graph = await bench.npu.load(replace(_times(2), codes=(code, code, code)))
        bench.graphs = [graph]
        await bench.check(7)
        assert bench.kernel.calls.count("SUBMIT_JOB") == 3


@pytest.mark.parametrize("kind", [Kind.HANG, Kind.LOST_INTERRUPT])
async def test_a_job_that_does_not_end(kind: Kind) -> None:
    async with _bench(None, Fault(kind)) as bench:
        runs = await bench.ask(1)
        why = DeviceHung("too long", family="xm-npu")
        assert await bench.fates(runs[:1]) == [Fate.DONE]
        assert not await bench.bell.heard(3.0)
        ends = await bench.npu.break_off(why)
        assert [(end.run, end.fate) for end in ends] == [(runs[1], Fate.FAILED), (runs[2], Fate.UNDONE)]
        assert ends[0].error is why
        await bench.check(2)


async def test_another_program_before_us() -> None:
    """Its job hangs: ours is spared, then it runs again, and is never blamed."""
    async with _bench(Fault(Kind.HANG)) as bench:
        other = NpuNode(bench.board.kernel(), NPU_NODE, V500, bench.world.now)
        await other.start()
        await other.create_queue()
        graph = bench.graphs[0]
        assert isinstance(graph, NodeGraph)
        await other.submit(graph.window.steps[0])
        runs = await bench.ask(1)
        why = DeviceHung("too long", family="xm-npu")
        assert await bench.npu.break_off(why) == []
        ends = await bench.npu.break_off(why)
        assert [(end.run, end.fate) for end in ends] == [(run, Fate.UNDONE) for run in runs]
        await bench.check(2)
        await other.stop()
        other.close()


async def test_another_process_resets_the_npu() -> None:
    async with _bench(Fault(Kind.FOREIGN_RESET)) as bench:
        runs = await bench.ask(1)
        bench.kernel.interrupt()
        assert await bench.fates(runs) == [Fate.UNDONE] * 3
        await bench.check(2)


async def test_an_npu_that_vanishes() -> None:
    async with _bench(Fault(Kind.GONE)) as bench:
        await bench.ask(1)
        assert await bench.bell.heard(5.0)
        with pytest.raises(DeviceLost, match="ENODEV"):
            await bench.npu.collect()
        await bench.npu.close()
        bench.board.recover()
