"""The library's state table, row by row, and its traps."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from repertory.models.errors import ConfigError
from repertory.transports.virtual import VirtualWorld
from repertory.transports.xm_npu.cl.library import OPTIONAL, InOut
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.faults import Fault, Kind, scripted
from repertory.transports.xm_npu.simulator.parameters import SimulatedNpu, Zone

from .host import Page
from .models import thrice, twice

pytestmark = pytest.mark.virtual

COMPLETED, FAILED = 3, 4
OPEN_FAILED = -0x7FFF0000 + 8


def nobody(_event: int, _status: int) -> None:
    """Take a callback, and do nothing."""


@asynccontextmanager
async def opened(*, clean: bool = True, **params: Any) -> AsyncGenerator[tuple[Board, Page]]:
    """Open a library; with `clean`, close it and see that nothing is left."""
    async with VirtualWorld() as world:
        board = Board(world, SimulatedNpu(**params))
        page = Page(board)
        await page.open()
        yield board, page
        if clean:
            await page.close()
            assert (board.leaks(), board.faults) == ([], [])


async def test_runs_one_by_one_and_queued(anyio_backend: object) -> None:
    async with opened() as (board, page):
        graphs = [await page.load() for _ in range(3)]
        for number, graph in enumerate(graphs):
            page.ask(graph, number)
        assert await page.cl.xmedia_cl_graph_process(graphs[0]) == 0
        assert page.answer(graphs[0]) == 0
        calls = list[tuple[int, int]]()

        def told(event: int, status: int) -> None:
            calls.append((event, status))

        events = [(await page.cl.xmedia_cl_graph_submit(graph))[0] for graph in graphs]
        for event in events:
            assert await page.cl.xmedia_cl_set_event_callback(event, FAILED, nobody) == 0
            assert await page.cl.xmedia_cl_set_event_callback(event, COMPLETED, told) == 0
        assert [(await page.cl.xmedia_cl_query_event_status(event))[0] for event in events] == [2, 1, 1]
        await anyio.sleep(0.01)
        assert calls == [(event, COMPLETED) for event in events]
        assert [page.answer(graph) for graph in graphs] == [0, 1, 2]
        assert board.deepest == 3
        for event in events:
            assert await page.cl.xmedia_cl_release_event(event) == 0


async def test_a_graph_has_one_run_at_a_time(anyio_backend: object) -> None:
    async with opened() as (_, page):
        graph = await page.load()
        start = anyio.current_time()
        first, _ = await page.cl.xmedia_cl_graph_submit(graph)
        assert anyio.current_time() == start
        second, _ = await page.cl.xmedia_cl_graph_submit(graph)
        assert anyio.current_time() - start == pytest.approx(0.001)
        assert await page.cl.xmedia_cl_wait_for_events([first, second]) == 0
        assert anyio.current_time() - start == pytest.approx(0.002)
        for event in (first, second):
            await page.cl.xmedia_cl_release_event(event)


async def test_devices_and_contexts(anyio_backend: object) -> None:
    async with opened() as (_, page):
        cl = page.cl
        assert [(await cl.xmedia_cl_get_device_ids(kind, None, 0)) for kind in (0, 1, 2)] == [
            (1, 0),
            (1, 0),
            (2, 0),
        ]
        assert await cl.xmedia_cl_get_device_ids(3, None, 0) == (0, -31)
        assert await cl.xmedia_cl_get_device_ids(2, None, 7) == (7, 0)
        assert (await cl.xmedia_cl_get_device_ids(2, None, None))[1] == -30
        npu = [0]
        await cl.xmedia_cl_get_device_ids(1, npu, 1)
        assert npu == page.devices[1:]
        assert await cl.xmedia_cl_create_context(1, npu) == (0, -30)
        assert await cl.xmedia_cl_create_context(0, npu) == (0, -30)
        assert await cl.xmedia_cl_create_context(2, None) == (0, -30)
        assert await cl.xmedia_cl_create_context(2, [1, 0]) == (0, -33)
        assert await cl.xmedia_cl_create_context(2, page.devices) == (page.context, 0)
        assert await cl.xmedia_cl_release_context(page.context) == 0
        assert await cl.xmedia_cl_release_context(0) == -34
        assert await cl.xmedia_cl_release_device_ids(None, 1) == -33
        assert await cl.xmedia_cl_uninit() == -59
        assert await cl.xmedia_cl_get_workspace_addr(page.context) == (0, 0, -76)
        assert await cl.xmedia_cl_set_workspace_addr(page.context, 0, 8) == -30
        assert await cl.xmedia_cl_set_workspace_addr(page.context, 64, 8) == 0
        assert await cl.xmedia_cl_set_workspace_addr(page.context, 64, 8) == -76
        assert await cl.xmedia_cl_get_workspace_addr(page.context) == (64, 8, 0)


async def test_models_are_read_and_refused(anyio_backend: object, tmp_path: Path) -> None:
    async with opened(load_ms=700.0) as (_, page):
        cl, model = page.cl, twice(work=100, private=b"abc")
        assert (await cl.xmedia_cl_graph_querysize_from_buff(model))[::2] == (100, 0)
        file = tmp_path / "model.xmm"
        file.write_bytes(model)
        told = await cl.xmedia_cl_graph_querysize_from_file(bytes(file))
        assert told == await cl.xmedia_cl_graph_querysize_from_buff(model)
        info, status = await cl.xmedia_cl_graph_query_model_info_from_buff(model, 0)
        assert (status, info.worksize, info.weightsize, info.private_data_size) == (0, *told[:2], 3)
        assert (info.inputsize, info.outputsize, info.memory_reuse_type) == (64, 64, 0)
        assert (await cl.xmedia_cl_graph_query_model_info_from_buff(model, 1))[1] == -79
        assert (await cl.xmedia_cl_graph_querysize_from_buff(None))[2] == -30
        assert (await cl.xmedia_cl_graph_querysize_from_file(bytes(tmp_path / "gone")))[2] == -65
        assert (await cl.xmedia_cl_graph_querysize_from_buff(b"?" + model[1:]))[2] == -64
        assert await cl.xmedia_cl_graph_get_private_data_from_buff(model, 3) == (b"abc", 0)
        assert await cl.xmedia_cl_graph_get_private_data_from_buff(model, 4) == (b"", -78)
        assert await cl.xmedia_cl_graph_get_private_data_from_buff(twice(), 4) == (b"", -77)
        assert await cl.xmedia_cl_graph_loadmodel_from_buff(0, model) == (0, -30)
        start = anyio.current_time()
        graph = await page.load(model)
        assert anyio.current_time() - start == pytest.approx(0.7)
        assert await cl.xmedia_cl_graph_get_private_data(graph) == (b"abc", 0)


async def test_memory_of_ours(anyio_backend: object) -> None:
    async with opened(clean=False) as (board, page):
        cl, model, context = page.cl, twice(work=100), page.context
        load = cl.xmedia_cl_graph_loadmodel_from_buff_withmem
        work, weight = await page.buffer(4096), await page.buffer(4096, cached=True)
        size = (await cl.xmedia_cl_graph_querysize_from_buff(model))[1]
        assert await load(context, model, 0, 100, weight.virt, size) == (0, -30)
        assert await load(context, model, work.virt, 100, 0, size) == (0, -30)
        assert await load(context, model, work.virt, 100, weight.virt, size - 1) == (0, -67)
        assert await load(context, model, work.virt, 100, weight.virt + 4, size) == (0, -69)
        assert await load(context, model, 64, 100, weight.virt, size) == (0, -69)
        assert board.used() == 8192
        assert board.faults == []
        graph, status = await load(context, model, work.virt, 99, weight.virt, size)
        assert status == 0
        assert "99 bytes" in board.faults.pop()
        page.graphs[graph] = (await page.buffer(64), await page.buffer(64))
        await page.bind(graph)
        assert await cl.xmedia_cl_graph_process(graph) == -67, "the parameters lie in the host's cache"
        assert "graph" in str(board.core.stopped)
        await page.flush(weight)
        page.ask(graph, 6)
        assert await cl.xmedia_cl_graph_process(graph) == 0
        assert page.answer(graph) == 6


async def test_tensors_and_buffers(anyio_backend: object) -> None:
    async with opened(clean=False) as (board, page):
        cl = page.cl
        graph = await page.load(thrice())
        _, io = await page.sides(graph)
        assert io.tensor is not None
        assert [(t.ndims, t.dims[:2], t.pch[:2], t.type, t.scale, t.zp, t.size) for t in io.tensor] == [
            (2, (1, 3), (3, 1), 1, 0.5, 4, 3)
        ] * 2
        assert io.tensor[0].dims[2] > 3, "garbage lies behind the axes"
        assert await cl.xmedia_cl_graph_get_output(graph, 1, io) == -66
        assert await cl.xmedia_cl_graph_get_output(graph, 2, InOut(2)) == -30
        assert await cl.xmedia_cl_graph_get_output(graph, 0, None) == -30
        page.graphs[graph][0].view[:3] = bytes([4, 5, 14])
        assert await cl.xmedia_cl_graph_process(graph) == 0
        assert page.graphs[graph][1].view[:3].tobytes() == bytes([4, 7, 34])
        assert page.graphs[graph][1].view[8:11].tobytes() == bytes([4, 5, 14])
        inputs, outputs = await page.sides(graph)
        assert await cl.xmedia_cl_graph_set_inout(graph, None, outputs) == -30
        assert await cl.xmedia_cl_graph_set_inout(graph, inputs, outputs) == -30, "no addresses"
        for each, buffer in zip((inputs, outputs), page.graphs[graph], strict=True):
            assert each.tensor is not None
            for tensor in each.tensor:
                tensor.addr = buffer.virt + 4
        assert await cl.xmedia_cl_graph_set_inout(graph, inputs, outputs) == -69
        assert board.faults == []
        assert outputs.tensor is not None
        for tensor in (*(inputs.tensor or ()), *outputs.tensor):
            tensor.addr += 4
        outputs.current_batch = [0, 77]
        assert await cl.xmedia_cl_graph_set_inout(graph, inputs, outputs) == 0
        assert [fault.partition(":")[0] for fault in board.faults] == [
            "the arrays of batches were not zeroed",
            f"tensor 3 was set at {outputs.tensor[1].addr:#x}, the NPU uses another place",
        ]


async def test_a_batch_runs_item_by_item(anyio_backend: object) -> None:
    async with opened() as (_, page):
        graph = await page.load(thrice())
        io = (await page.sides(graph))[0]
        batch = page.cl.xmedia_cl_graph_set_dynamic_batch_size
        assert [
            await batch(graph, io, index, items) for index, items in ((0, 0), (0, 33), (1, 2), (0, 3))
        ] == [
            -30,
            -74,
            -30,
            0,
        ]
        sides = await page.sides(graph)
        for side, buffer in zip(sides, page.graphs[graph], strict=True):
            for index, tensor in enumerate(side.tensor or ()):
                tensor.addr = buffer.virt + 24 * index
        assert await page.cl.xmedia_cl_graph_set_inout(graph, *sides) == 0
        items = [slice(8 * item, 8 * item + 3) for item in range(3)]  # each begins at a multiple of 8
        for item, at in enumerate(items):
            page.graphs[graph][0].view[at] = bytes(range(4 + 3 * item, 7 + 3 * item))
        start = anyio.current_time()
        assert await page.cl.xmedia_cl_graph_process(graph) == 0
        assert anyio.current_time() - start == pytest.approx(0.003)
        found = page.graphs[graph][1].view
        first, second = (b"".join(found[base:][at].tobytes() for at in items) for base in (0, 24))
        assert first == bytes(4 + 3 * n for n in range(9))
        assert second == bytes(range(4, 13))


@pytest.mark.parametrize("reuse", [1, 2, 3])
async def test_buffers_inside_the_workspace(anyio_backend: object, reuse: int) -> None:
    async with opened(clean=False) as (board, page):
        cl = page.cl
        graph = await page.load(twice(reuse=reuse, work=16))
        assert await cl.xmedia_cl_graph_get_memory_reuse_type(graph) == (reuse, 0)
        sides = await page.sides(graph)
        views, given = list[memoryview](), list[InOut | None]()
        for side, inside, buffer in zip(
            sides, (reuse in {1, 3}, reuse in {2, 3}), page.graphs[graph], strict=True
        ):
            assert side.tensor is not None
            assert bool(side.tensor[0].addr) is inside
            side.tensor[0].addr = side.tensor[0].addr or buffer.virt
            views.append(cl.memory(side.tensor[0].addr, 64))
            given.append(None if inside else side)
        for number in (1.0, 2.0):
            ins, outs = (dataclasses.replace(page.buffers[0], view=view) for view in views)
            page.graphs[graph] = (ins, outs)
            page.ask(graph, number)
            assert await cl.xmedia_cl_graph_set_inout(graph, *given) == 0
            assert await cl.xmedia_cl_graph_process(graph) == 0
            assert page.answer(graph) == number
        assert board.faults == []
        await cl.xmedia_cl_graph_process(graph)
        assert "without new addresses" in board.faults[0]


async def test_an_abort_costs_one_event(anyio_backend: object) -> None:
    async with opened(clean=False) as (board, page):
        cl = page.cl
        board.switches.on_job = scripted({1: Fault(Kind.ABORT)})
        graphs = [await page.load() for _ in range(4)]
        for number, graph in enumerate(graphs):
            page.ask(graph, number)
        events = [(await cl.xmedia_cl_graph_submit(graph))[0] for graph in graphs]
        assert await cl.xmedia_cl_wait_for_events(events) == -56
        assert [(await cl.xmedia_cl_query_event_status(event))[0] for event in events] == [3, 4, 3, 3]
        assert [page.answer(graph) for graph in (graphs[0], *graphs[2:])] == [0, 2, 3]
        assert board.core.resets == 1
        failed = graphs[1]
        assert (await cl.xmedia_cl_graph_submit(failed))[1] == -67
        assert board.faults == []
        assert await cl.xmedia_cl_graph_process(failed) == 0
        assert "ran nothing" in board.faults[0]
        assert bytes(page.graphs[failed][1].view[:4]) == b"\xee" * 4, "an abort leaves half a result"


async def test_an_abort_of_process_does_no_harm_to_the_next(anyio_backend: object) -> None:
    async with opened() as (board, page):
        board.switches.on_job = scripted({0: Fault(Kind.ABORT)})
        graph = await page.load()
        page.ask(graph, 3)
        assert await page.cl.xmedia_cl_graph_process(graph) == -67
        assert await page.cl.xmedia_cl_graph_process(graph) == 0
        assert page.answer(graph) == 3


async def test_the_watchdog_bites_after_a_hundred_seconds(anyio_backend: object) -> None:
    async with opened() as (board, page):
        board.switches.on_job = scripted({0: Fault(Kind.HANG)})
        graph, start = await page.load(), anyio.current_time()
        assert await page.cl.xmedia_cl_graph_process(graph) == -67
        assert anyio.current_time() - start == pytest.approx(100)
        assert await page.cl.xmedia_cl_graph_process(graph) == 0


async def test_a_reset_that_fails_ends_the_process(anyio_backend: object) -> None:
    async with opened(clean=False) as (board, page):
        board.switches.on_job = scripted({0: Fault(Kind.HANG)})
        board.switches.stuck = True
        graph = await page.load()
        assert await page.cl.xmedia_cl_graph_process(graph) == -67
        assert "abort()" in board.faults.pop()
        assert (await page.cl.xmedia_cl_graph_submit(graph))[1] == -67
        page.cl.die()
        other = Page(board)
        await other.open()
        graph = await other.load()
        board.switches.stuck = False
        assert await other.cl.xmedia_cl_graph_process(graph) == 0
        await other.close()


async def test_events(anyio_backend: object) -> None:
    async with opened(clean=False) as (board, page):
        cl = page.cl
        graph = await page.load()
        event, _ = await cl.xmedia_cl_graph_submit(graph)
        assert await cl.xmedia_cl_set_event_callback(event, 2, nobody) == -30
        assert await cl.xmedia_cl_set_event_callback(event, COMPLETED, None) == -30
        assert await cl.xmedia_cl_set_event_callback(0, COMPLETED, nobody) == -58
        assert await cl.xmedia_cl_wait_for_events([]) == -30
        assert await cl.xmedia_cl_wait_for_events([event, 0]) == -57
        assert await cl.xmedia_cl_wait_for_events([event]) == 0
        statuses = list[Any]()

        def reenter(event: int, status: int) -> None:
            call = cl.xmedia_cl_query_event_status(event)
            with pytest.raises(StopIteration) as stop:
                call.send(None)
            statuses.extend((status, stop.value.value))

        assert await cl.xmedia_cl_set_event_callback(event, COMPLETED, reenter) == 0
        assert statuses == [COMPLETED, (0, -58)]
        assert "locked" in board.faults.pop()
        assert board.faults == []
        assert await cl.xmedia_cl_release_event(event) == 0
        assert await cl.xmedia_cl_release_event(event) == -58
        assert "after its release" in board.faults.pop()
        assert await cl.xmedia_cl_query_event_status(0) == (0, -58)
        assert board.faults == []


async def test_small_rows(anyio_backend: object) -> None:
    async with opened() as (_, page):
        cl = page.cl
        graph = await page.load()
        assert await cl.xmedia_cl_graph_set_compress_config(graph, 0, 0, 0) == -59
        assert [await cl.xmedia_cl_graph_set_schedule_prio(graph, prio) for prio in (0, 3, 4)] == [0, 0, -30]
        assert await cl.xmedia_cl_graph_get_private_data(graph) == (b"", -77)
        number, status = await cl.xmedia_cl_graph_communicate(graph)
        assert status == 0
        assert await cl.xmedia_cl_graph_decommunicate(graph, number) == 0
        assert await cl.xmedia_cl_graph_decommunicate(graph, number) == -30
        assert await cl.xmedia_cl_set_profiling(graph, 0, 1) == 0
        assert await cl.xmedia_cl_graph_unload(0) == -30
        assert await cl.xmedia_cl_graph_process(0) == -30
        assert await cl.xmedia_cl_graph_submit(0) == (0, -30)
        unbound, _ = await cl.xmedia_cl_graph_loadmodel_from_buff(page.context, twice())
        assert await cl.xmedia_cl_graph_process(unbound) == -67
        assert await cl.xmedia_cl_graph_unload(unbound) == 0
        assert await cl.xmedia_sys_init() == 0
        assert await cl.xmedia_sys_exit() == 0


async def test_a_higher_priority_goes_first_among_those_that_wait(anyio_backend: object) -> None:
    async with opened() as (board, page):
        cl = page.cl
        board.switches.on_job = scripted({0: Fault(Kind.ABORT)})
        graphs = [await page.load() for _ in range(3)]
        await cl.xmedia_cl_graph_set_schedule_prio(graphs[2], 3)
        events = [(await cl.xmedia_cl_graph_submit(graph))[0] for graph in graphs]
        assert await cl.xmedia_cl_wait_for_events(events[2:]) == 0
        assert (await cl.xmedia_cl_query_event_status(events[1]))[0] < COMPLETED
        assert await cl.xmedia_cl_wait_for_events(events[1:]) == 0
        for event in events:
            await cl.xmedia_cl_release_event(event)


@pytest.mark.parametrize("without", ["npu", "rights", "memory"])
async def test_what_may_be_missing(anyio_backend: object, without: str) -> None:
    params: dict[str, Any] = {"npu": {"present": False}, "rights": {"privileged": False}}.get(without, {})
    async with VirtualWorld() as world:
        board = Board(world, SimulatedNpu(**params, any_device_list=True))
        page = Page(board)
        await page.open()
        board.switches.full = without == "memory"
        assert await page.cl.xmedia_mmz_alloc(None, None, 1) == 0
        loaded = (await page.cl.xmedia_cl_graph_loadmodel_from_buff(page.context, twice()))[1]
        expected = {"npu": (OPEN_FAILED, -33, -33), "rights": (0, 0, 0), "memory": (0, 0, -6)}[without]
        assert (
            await page.cl.xmedia_sys_init(),
            (await page.cl.xmedia_cl_graph_querysize_from_buff(twice()))[2],
            loaded,
        ) == expected
        if without == "memory":
            assert board.used() == 0


async def test_a_load_that_runs_out_of_memory_half_way_leaves_nothing(anyio_backend: object) -> None:
    async with opened(zones=(Zone(size=4096),)) as (board, page):
        found = await page.cl.xmedia_cl_graph_loadmodel_from_buff(page.context, twice())
        assert found == (0, -6)
        assert board.used() == 0


async def test_functions_that_are_not_exported_cannot_be_called(anyio_backend: object) -> None:
    async with opened(exports=OPTIONAL - {"xmedia_cl_graph_submit"}) as (_, page):
        graph = await page.load()
        with pytest.raises(ConfigError, match="submit"):
            await page.cl.xmedia_cl_graph_submit(graph)
        page.ask(graph, 2)
        assert await page.cl.xmedia_cl_graph_process(graph) == 0
        assert page.answer(graph) == 2


@pytest.mark.parametrize("flushes", [False, True])
async def test_the_library_may_flush_by_itself(anyio_backend: object, flushes: bool) -> None:
    async with opened(clean=False, flushes=flushes) as (board, page):
        graph = await page.load(cached=True)
        page.ask(graph, 9)
        assert await page.cl.xmedia_cl_graph_process(graph) == 0
        seen = page.graphs[graph][1].view[:64].tobytes()
        assert (seen == bytes(64 * [0]) or seen[:4] == b"\x00\x00\x90A") is flushes
        assert board.faults == []


async def test_what_is_left_is_told(anyio_backend: object) -> None:
    async with opened(clean=False) as (board, page):
        graph = await page.load()
        event, _ = await page.cl.xmedia_cl_graph_submit(graph)
        left = "\n".join(board.leaks())
        for what in ("1 graphs", "1 events", "Npu_Module", "buffer", "1 uses of the library", "1 queues"):
            assert what in left
        assert await page.cl.xmedia_cl_release_event(event) == 0
        assert "before it is final" in board.faults[0]
        page.cl.die()
        assert all("MMB LEAK" in leak for leak in board.leaks())
        assert board.used() == 0
