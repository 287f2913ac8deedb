"""The stages as objects: one script of the page, and every misuse that they prevent or name."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from pickle import PickleBuffer
from typing import Any

import anyio
import numpy as np
import pytest

from repertory.models.errors import ConfigError, DeviceLost, NoRoom, RepertoryError
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.xm_npu.cl.buffer import MmzBuffer
from repertory.transports.xm_npu.cl.context import System
from repertory.transports.xm_npu.cl.graph import LoadedGraph
from repertory.transports.xm_npu.cl.library import InOut
from repertory.transports.xm_npu.cl.stages import ComputeLibrary
from repertory.transports.xm_npu.errors import NpuAborted, NpuRefusal
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.faults import Fault, Kind, scripted
from repertory.transports.xm_npu.simulator.parameters import SimulatedNpu, Zone

from .nets import BOTH, OFFSET, SIZE, answers, library, net, question

PAGE = 4096


@asynccontextmanager
async def opened(**params: Any) -> AsyncGenerator[tuple[Board, System]]:
    """Open a simulated NPU in virtual time; in the end all is given back, and nothing wrong was done."""
    async with VirtualWorld() as world:
        board = Board(world, SimulatedNpu(**params))
        async with System(board.library()) as system:
            yield board, system
        assert board.leaks() == board.faults == []


async def loaded(system: System, **options: Any) -> tuple[LoadedGraph, MmzBuffer, MmzBuffer]:
    """Load the model, and allocate buffers for it: cached inputs, uncached outputs."""
    data = net(**options)
    sizes = await system.sizes(data)
    work = await system.allocate("work", sizes.work, cached=options.get("reuse", 0) < 2)
    weight = await system.allocate("weight", sizes.weight)
    graph = await system.load(data, workspace=work, weight=weight, name="net")
    return graph, await system.allocate("in", PAGE), await system.allocate("out", PAGE, cached=False)


def put(buffer: MmzBuffer, seed: int) -> None:
    for place, array in enumerate(question(seed)):
        buffer.data[OFFSET * place :][:SIZE] = array.tobytes()


def got(buffer: MmzBuffer) -> tuple[bytes, bytes]:
    return bytes(buffer.data[:SIZE]), bytes(buffer.data[OFFSET:][:SIZE])


async def refused(steps: Coroutine[Any, Any, object], stage: int, call: str, why: str) -> None:
    with pytest.raises(NpuRefusal, match=f"stage {stage}, {call}.*{why}") as caught:
        await steps
    assert caught.value.stage == stage
    assert caught.value.call == call


@BOTH
async def test_a_script_of_the_page(behind: str, tmp_path: Path) -> None:
    path = tmp_path / "net.xmm"
    path.write_bytes(net())
    async with RealWorld() as world:
        board = Board(world)
        with ComputeLibrary(library(behind, board)) as cl:
            sizes = cl.sizes(path)
            work, weight = cl.allocate("work", sizes.work), cl.allocate("weight", sizes.weight)
            graph = cl.load(path, workspace=work, weight=weight)
            assert [each.name for each in graph.outputs()] == [b"sum", b"product"]
            source = cl.allocate("npu_input", graph.input_bytes())
            result = cl.allocate("npu_output", graph.output_bytes(), cached=False)
            assert source
            assert result
            for seed in range(3):
                put(source.buffer, seed)
                graph.bind(source, result)
                graph.process()
                assert got(result.buffer) == answers(*question(seed))
        assert board.leaks() == board.faults == []


@BOTH
async def test_memory_is_asked_for_by_a_name_that_fits_and_a_whole_number(behind: str) -> None:
    async with RealWorld() as world:
        board = Board(world)
        with ComputeLibrary(library(behind, board)) as cl:
            wrong: list[tuple[Any, Any, str]] = [
                *((name, PAGE, "a text of 1 to 15 bytes is wanted") for name in ("", "n" * 16, "\u00e4" * 8)),
                *((name, PAGE, "a text of 1 to 15 bytes is wanted") for name in ("a\0b", b"npu_input", None)),
                *(
                    ("in", size, "a whole number of bytes is wanted")
                    for size in (4096.0, 0.0, "4096", None, True)
                ),
                *(("in", size, "bytes; 0 to 4294967295 are possible") for size in (-1, 1 << 32)),
            ]
            for name, size, why in wrong:
                with pytest.raises(NpuRefusal, match=f"^stage 4, xmedia_mmz_alloc: .*{why}") as caught:
                    cl.allocate(name, size)
                assert caught.value.stage == 4
            assert cl.allocate("in", 0) is None
            whole: Any = np.int64(PAGE)
            block = cl.allocate("\u00e4" * 7, whole)
            assert block
            assert len(block.data) == PAGE
        assert board.leaks() == board.faults == []


@pytest.mark.virtual
async def test_runs_flush_what_the_host_wrote_and_forget_what_it_read() -> None:
    """Mistakes 1 and "no flush": both caches are right by themselves, with cached outputs too."""
    async with opened() as (_, system):
        graph, source, _ = await loaded(system)
        results = [await system.allocate("sum", PAGE) for _ in range(2)]
        for seed in range(4):
            put(source, seed)
            await graph.bind(source, results[seed % 2])
            await graph.process()
            assert bytes(results[seed % 2].data[:SIZE]) == answers(*question(seed))[0]
            await refused(results[seed % 2].flush(), 7, "xmedia_mmz_flush_cache", "never flushed after a run")


@pytest.mark.virtual
async def test_graphs_that_are_used_wrongly() -> None:
    async with opened() as (_, system):
        graph, source, result = await loaded(system)
        process, bind = "xmedia_cl_graph_process", "xmedia_cl_graph_set_inout"
        await refused(graph.process(), 7, process, "must be bound first")
        await refused(graph.bind(source.span(0, SIZE), result), 7, bind, "32 bytes are needed")
        await refused(graph.bind(source.span(4), result), 7, bind, "no multiple of 8")
        await refused(graph.bind(None, result), 7, bind, "its inputs need memory")
        await refused(graph.bind(source.span(0, 32), source.span(32)), 7, bind, "share a line of the cache")
        await refused(graph.set_batch(33), 7, "xmedia_cl_graph_set_dynamic_batch_size", "1 to 32")
        await graph.bind(source, result)
        await refused(source.free(), 8, "xmedia_mmz_free", "in use by net")
        job = await graph.submit()
        await refused(graph.submit(), 7, "xmedia_cl_graph_submit", "was not seen yet")
        await refused(graph.unload(), 8, "xmedia_cl_graph_unload", "was not seen yet")
        while not job.final:
            await anyio.sleep(0.001)
            await job.look()
        await refused(graph.process(), 7, process, "both do not mix")
        await graph.unload()
        await graph.unload()
        await refused(graph.process(), 7, process, "after it was unloaded")
        await refused(graph.inputs(), 6, "xmedia_cl_graph_get_input", "after it was unloaded")


@pytest.mark.virtual
async def test_memory_that_is_used_wrongly() -> None:
    async with opened() as (_, system):
        graph, source, result = await loaded(system)
        load = "xmedia_cl_graph_loadmodel_from_buff_withmem"
        await refused(system.load(net()), 5, load, "workspace: 4096 bytes are needed, and no buffer")
        small, weight = await system.allocate("small", 64), await system.allocate("weight", PAGE)
        await refused(system.load(net(), workspace=small, weight=weight), 5, load, "small gives 64")
        await small.free()
        await small.free()
        await refused(system.load(net(), workspace=small, weight=weight), 5, load, "after it was freed")
        with pytest.raises(NpuRefusal, match="after it was freed"):
            _ = small.data
        await refused(system.allocate("none", 0), 4, "xmedia_mmz_alloc", "0 bytes")
        await refused(graph.bind(small, result), 7, "xmedia_cl_graph_set_inout", "freed")
        await graph.bind(source, result)
        await graph.unload()
        view = source.data
        looked = PickleBuffer(view)
        await refused(source.free(), 8, "xmedia_mmz_free", "has an array on it")
        assert len(view) == source.size, "it is there, and can still be read"
        looked.release()
        await source.free()
        with pytest.raises(ValueError, match="released"):
            _ = view[0]
        with pytest.raises(NpuRefusal, match="not within"):
            result.span(PAGE, 1)


@pytest.mark.virtual
async def test_models_that_are_refused(tmp_path: Path) -> None:
    async with opened() as (_, system):
        query = "xmedia_cl_graph_querysize_from_buff"
        await refused(system.sizes(net()[:-1]), 3, query, "the header promises")
        await refused(system.sizes(b"ZZZZ"), 3, query, "no header")
        await refused(system.sizes(bytes(64)), 3, query, r"INVALID_MODEL \(-64\)")
        await refused(
            system.sizes(tmp_path / "none"), 3, "xmedia_cl_graph_querysize_from_file", r"READ_MODEL_FAIL"
        )


@pytest.mark.virtual
async def test_stages_come_in_their_order() -> None:
    async with VirtualWorld() as world:
        board = Board(world)
        system = System(board.library())
        await refused(system.sizes(net()), 3, "xmedia_cl_graph_querysize_from_buff", "stages 1 and 2")
        await refused(system.allocate("x", 1), 4, "xmedia_mmz_alloc", "stages 1 and 2 come first")
        await system.open()
        await refused(system.open(), 1, "xmedia_sys_init", "open already")
        graph, source, result = await loaded(system)
        await graph.bind(source, result)
        assert await system.close() is None  # with a graph, and its memory, still there
        assert board.leaks() == board.faults == []
        await refused(graph.process(), 7, "xmedia_cl_graph_process", "unloaded")


@pytest.mark.virtual
async def test_a_failed_job_is_told_and_nothing_runs_after_it() -> None:
    """A failed event stays attached, and lets `process` return 0 without a run."""
    async with opened() as (board, system):
        graph, source, result = await loaded(system)
        board.switches.on_job = scripted({0: Fault(Kind.ABORT)})
        await graph.bind(source, result)
        with pytest.raises(NpuAborted, match="does not tell the DFX report"):
            await graph.process()
        await refused(graph.process(), 7, "xmedia_cl_graph_process", "failed; load it again")
        await graph.unload()
        again, source, result = await loaded(system)
        put(source, 1)
        await again.bind(source, result)
        await again.process()
        assert got(result) == answers(*question(1))


@pytest.mark.virtual
@pytest.mark.parametrize("reuse", [1, 2, 3])
async def test_tensors_inside_the_workspace(reuse: int) -> None:
    async with opened() as (_, system):
        graph, source, result = await loaded(system, reuse=reuse)
        inside = {1: (True, False), 2: (False, True), 3: (True, True)}[reuse]
        sides = [None if within else each for within, each in zip(inside, (source, result), strict=True)]
        for seed in range(2):
            views = [graph.view(each) for each in await graph.inputs()] if inside[0] else []
            for view, array in zip(views, question(seed), strict=False):
                view[:] = array.tobytes()
            put(source, seed)
            await graph.bind(sides[0], sides[1])
            await graph.process()
            told = [bytes(graph.view(each)) for each in await graph.outputs()] if inside[1] else got(result)
            assert tuple(told) == answers(*question(seed))
            await refused(graph.process(), 7, "xmedia_cl_graph_process", "bound again")
        wrong = [each if within else None for within, each in zip(inside, (source, result), strict=True)]
        await refused(graph.bind(wrong[0], wrong[1]), 7, "xmedia_cl_graph_set_inout", "workspace|need memory")


@pytest.mark.virtual
async def test_no_room() -> None:
    async with opened(zones=(Zone(size=4 * PAGE),)) as (_, system):
        with pytest.raises(NoRoom, match="no 20480 bytes in one piece for big") as caught:
            await system.allocate("big", 5 * PAGE)
        assert caught.value.wanted == 5 * PAGE
        all_of_it = [await system.allocate("page", PAGE) for _ in range(4)]
        with pytest.raises(NoRoom, match="stage 5"):
            await system.load(net(), workspace=all_of_it[0], weight=all_of_it[1])
        with pytest.raises(NoRoom, match="stage 5"):
            await system.load_simply(net())


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("params", "devices", "error", "text"),
    [
        ({"present": False}, "all", DeviceLost, r"/dev/npu\.0.*\./load xm7206v11a -i.*insmod xm_npu\.ko"),
        ({}, "npu", NpuRefusal, r"stage 2.*INVALID_VALUE.*devices=all"),
    ],
)
async def test_opening_fails(params: dict[str, Any], devices: Any, error: type[Exception], text: str) -> None:
    async with VirtualWorld() as world:
        board = Board(world, SimulatedNpu(**params))
        with pytest.raises(error, match=text):
            await System(board.library(), devices=devices).open()
        assert board.leaks() == []


@pytest.mark.virtual
async def test_options_are_checked() -> None:
    async with VirtualWorld() as world:
        behind = Board(world).library()
        for options in ({"devices": "cpu"}, {"zone": "x" * 32}, {"zone": ""}):
            with pytest.raises(ConfigError):
                System(behind, **options)  # type: ignore[arg-type]


@pytest.mark.virtual
async def test_the_end_goes_on_after_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    async with VirtualWorld() as world:
        board = Board(world)
        behind = board.library()

        async def refuse(_context: int) -> int:
            return -34

        monkeypatch.setattr(behind, "xmedia_cl_release_context", refuse)
        system = System(behind)
        await system.open()
        await system.allocate("x", PAGE)
        failure = await system.close()
        assert isinstance(failure, RepertoryError)
        assert "xmedia_cl_release_context: INVALID_CONTEXT (-34)" in str(failure)
        assert not board.mmz.blocks


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"type": 10}, "unknown element type 10.*another revision than C"),
        ({"ndims": 9}, "9 axes and 12 bytes"),
        ({"size": 0}, "2 axes and 0 bytes"),
    ],
)
async def test_what_no_library_of_this_revision_tells(
    changes: dict[str, int], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistake: an unknown type that passes for bytes finds nothing, and says nothing."""
    async with VirtualWorld() as world:
        board = Board(world)
        behind = board.library()
        honest = behind.xmedia_cl_graph_get_input

        async def changed(graph: int, number: int, io: InOut | None) -> int:
            status = await honest(graph, number, io)
            if number and io is not None and io.tensor:
                io.tensor[1] = replace(io.tensor[1], **changes)  # type: ignore[arg-type]
            return status

        monkeypatch.setattr(behind, "xmedia_cl_graph_get_input", changed)
        async with System(behind) as system:
            graph = await system.load_simply(net())
            await refused(graph.inputs(), 6, "xmedia_cl_graph_get_input", why)
        assert board.leaks() == []
