"""What `ClNpu` does when the library fails it: no end is lost, and nothing is freed under a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from repertory.models.errors import DeviceError, DeviceLost
from repertory.transports.frame import Fate
from repertory.transports.virtual import VirtualWorld
from repertory.transports.xm_npu.cl.library import DeviceType, EventStatus
from repertory.transports.xm_npu.cl.npu import LISTENING, POLLING, ClNpu
from repertory.transports.xm_npu.errors import ClStatus, NpuRefusal
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.faults import Fault, Kind, scripted
from repertory.transports.xm_npu.simulator.library import SimulatedXmediaCl

from .nets import answers, image, question
from .test_npu import got, opened, put, runs

pytestmark = pytest.mark.virtual

LOAD = "xmedia_cl_graph_loadmodel_from_buff_withmem"


def refused(result: object) -> Callable[..., Awaitable[Any]]:
    async def refuse(*_: object) -> object:
        return result

    return refuse


def behind(npu: ClNpu) -> SimulatedXmediaCl:
    library = npu._library  # pyright: ignore[reportPrivateUsage]
    assert isinstance(library, SimulatedXmediaCl)
    return library


@pytest.mark.parametrize("culprit", [0, 1, 2])
async def test_no_end_is_lost_when_a_graph_cannot_be_loaded_again(
    culprit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings: list[None] = []
    async with VirtualWorld() as world:
        board = Board(world)
        npu = ClNpu(board.library(), world)
        await npu.open(lambda: rings.append(None))
        graphs = [await npu.load(image()) for _ in range(3)]
        board.switches.on_job = scripted({culprit: Fault(Kind.ABORT)})
        for graph in graphs:
            put(graph.places[0], 1)
            await graph.submit(graph.places[0])
        await anyio.sleep(1)
        monkeypatch.setattr(behind(npu), LOAD, refused((0, ClStatus.OUT_OF_HOST_MEMORY)))
        rings.clear()
        fates = {end.run.graph: end.fate for end in await npu.collect()}
        told = [fates.get(graph) for graph in graphs]
        assert told == [Fate.FAILED if number == culprit else Fate.DONE for number in range(3)]
        assert got(graphs[culprit - 1].places[0]) == answers(*question(1))
        assert rings, "the engine must come again for the error"
        with pytest.raises(DeviceLost, match="could not be loaded again"):
            await graphs[culprit].submit(graphs[culprit].places[1])
        for _ in range(2):
            with pytest.raises(DeviceLost, match="could not be loaded again"):
                await npu.collect()
        await npu.close()
        assert board.leaks() == []


async def test_a_board_without_an_npu_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is there, and has the CPU."""
    async with VirtualWorld() as world:
        board = Board(world)
        library = board.library()
        asked = library.xmedia_cl_get_device_ids

        async def without(kind: int, devices: list[int] | None, number: int) -> tuple[int, int]:
            if kind == DeviceType.NPU:
                return 0, 0
            return await asked(DeviceType.CPU if kind == DeviceType.ALL else kind, devices, number)

        monkeypatch.setattr(library, "xmedia_cl_get_device_ids", without)
        npu = ClNpu(library, world)
        with pytest.raises(DeviceLost, match=r"no NPU at /dev/npu\.0.*\./load xm7206v11a -i"):
            await npu.open(lambda: None)
        assert board.leaks() == []


async def test_one_refusal_keeps_no_other_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (board, npu):
        graph = await npu.load(image())
        count = len(board.mmz.blocks)
        unmap, calls = behind(npu).xmedia_mmz_unmap, list[int]()

        async def once(virt: int) -> int:
            calls.append(virt)
            return -1 if len(calls) == 1 else await unmap(virt)

        with monkeypatch.context() as failing:
            failing.setattr(behind(npu), "xmedia_mmz_unmap", once)
            with pytest.raises(NpuRefusal, match="xmedia_mmz_unmap"):
                await graph.unload()
        assert len(calls) == count - 1, "all but the library's own block, for the code"
        assert (await npu.health())["mmz_held_bytes"] == 0
        await graph.unload()
        await unmap(calls[0])


async def test_a_bell_that_comes_before_the_end_is_looked_after_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    async with VirtualWorld() as world:
        npu = ClNpu(Board(world).library(), world)
        rang = anyio.Event()
        await npu.open(rang.set)
        graph = await npu.load(image())
        await graph.submit(graph.places[0])
        await rang.wait()
        with monkeypatch.context() as early:
            early.setattr(behind(npu), "xmedia_cl_query_event_status", refused((EventStatus.RUNNING, 0)))
            assert await npu.collect() == []
        assert npu.patience == POLLING
        assert len(await npu.collect()) == 1
        for _ in range(9):
            await npu.collect()
        assert npu.patience == LISTENING, "not for ever"
        await npu.close()


async def test_an_inner_failure_of_submit_costs_a_frame_and_twice_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as (_, npu):
        graph = await npu.load(image())
        failing: Callable[..., Awaitable[Any]] = refused((0, ClStatus.CALL_INTERFUNC_ERR))
        for _ in range(3):  # between two of them a run is right
            with monkeypatch.context() as once:
                once.setattr(behind(npu), "xmedia_cl_graph_submit", failing)
                with pytest.raises(NpuRefusal, match="-67"):
                    await graph.submit(graph.places[0])
            await runs(npu, graph)
        monkeypatch.setattr(behind(npu), "xmedia_cl_graph_submit", failing)
        with pytest.raises(NpuRefusal, match="-67"):
            await graph.submit(graph.places[1])
        with pytest.raises(DeviceLost, match="twice"):
            await graph.submit(graph.places[0])


@pytest.mark.parametrize("status", [ClStatus.OUT_OF_HOST_MEMORY, ClStatus.INVALID_MODEL])
async def test_a_graph_that_is_gone_after_a_refused_submit_loses_the_device(
    status: ClStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as (_, npu):
        graph = await npu.load(image())
        monkeypatch.setattr(behind(npu), "xmedia_cl_graph_submit", refused((0, ClStatus.CALL_INTERFUNC_ERR)))
        monkeypatch.setattr(behind(npu), LOAD, refused((0, status)))
        with pytest.raises(DeviceError) as caught:
            await graph.submit(graph.places[0])
        assert isinstance(caught.value, DeviceLost)


async def test_what_a_late_job_uses_is_kept_until_it_has_ended() -> None:
    """Idle graphs go at once; closing and opening again find the rest as soon as the job has ended."""
    async with VirtualWorld() as world:
        board = Board(world)
        library = board.library()
        npu = ClNpu(library, world)
        await npu.open(lambda: None)
        late, idle = await npu.load(image()), await npu.load(image(work=1 << 16))
        whole = set(board.mmz.blocks)
        board.switches.on_job = scripted({0: Fault(Kind.SLOW, factor=5000)})
        await late.submit(late.places[0])
        await npu.close()
        kept = set(board.mmz.blocks)
        assert 0 < len(kept) < len(whole)
        assert idle.places == ()
        await npu.close()
        assert set(board.mmz.blocks) == kept, "nothing is freed under the job"
        again = ClNpu(library, world)
        await again.open(lambda: None)
        assert set(board.mmz.blocks) == kept
        await again.close()
        await anyio.sleep(6)
        third = ClNpu(library, world)
        await third.open(lambda: None)
        assert not board.mmz.blocks
        await runs(third, await third.load(image()))
        await third.close()
        assert board.leaks() == board.faults == []
