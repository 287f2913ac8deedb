"""The eight stages of the vendor's page, call for call, on both libraries; and every function on it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from repertory.transports.real import RealWorld
from repertory.transports.world import drive
from repertory.transports.xm_npu.cl.library import DeviceType, InOut, XmediaCl
from repertory.transports.xm_npu.errors import ClStatus
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.parameters import SimulatedNpu

from .nets import BOTH, OFFSET, SIZE, WORK, answers, library, net, question

SPAN = OFFSET + SIZE + 4


async def mmz_alloc_cached(cl: XmediaCl, name: bytes, size: int) -> tuple[int, int]:
    """Stand for XMEDIA_API_SYS_MmzAlloc_Cached, which every sample defines for itself."""
    phy = await cl.xmedia_mmz_alloc(None, name, size)
    return phy, await cl.xmedia_mmz_map(phy, size, True)


async def mmz_free(cl: XmediaCl, phy: int, virt: int) -> None:
    """Stand for XMEDIA_API_SYS_MmzFree, likewise."""
    assert await cl.xmedia_mmz_unmap(virt) == await cl.xmedia_mmz_free(phy) == 0


async def all_about(cl: XmediaCl, graph: int, side: str) -> InOut:
    """Stage 6: ask twice, as the page does it."""
    get = cl.xmedia_cl_graph_get_input if side == "input" else cl.xmedia_cl_graph_get_output
    io = InOut()
    assert await get(graph, 0, io) == 0
    assert await get(graph, io.num, io.allocate()) == 0
    return io


async def page(cl: XmediaCl, path: bytes, kind: DeviceType, *, simply: bool) -> tuple[bytes, bytes]:
    # Stage 1
    assert await cl.xmedia_sys_init() == 0
    assert await cl.xmedia_cl_init() == 0
    # Stage 2
    num_devices, status = await cl.xmedia_cl_get_device_ids(kind, None, 0)
    assert (num_devices, status) == (2 if kind is DeviceType.ALL else 1, 0)
    devices = [0] * num_devices
    assert await cl.xmedia_cl_get_device_ids(kind, devices, num_devices) == (num_devices, 0)
    context, err_code = await cl.xmedia_cl_create_context(num_devices, devices)
    assert context
    assert err_code == 0
    # Stage 3
    worksize, weightsize, status = await cl.xmedia_cl_graph_querysize_from_file(path)
    assert (worksize, status) == (WORK, 0)
    # Stage 4
    memory = [
        await mmz_alloc_cached(cl, b"npu_workspace", worksize),
        await mmz_alloc_cached(cl, b"npu_weight", weightsize),
    ]
    # Stage 5
    if simply:
        graph, status = await cl.xmedia_cl_graph_loadmodel_from_file(context, path)
    else:
        graph, status = await cl.xmedia_cl_graph_loadmodel_from_file_withmem(
            context, path, memory[0][1], worksize, memory[1][1], weightsize
        )
    assert status == await cl.xmedia_mmz_flush_cache(*memory[1], weightsize) == 0
    # Stage 6
    inputs, outputs = await all_about(cl, graph, "input"), await all_about(cl, graph, "output")
    assert inputs.tensor
    assert outputs.tensor
    told = [(each.name, each.dims[: each.ndims], each.size, each.type) for each in inputs.tensor]
    assert told == [(b"a", (1, 3), SIZE, 6), (b"b", (1, 3), SIZE, 6)]
    # Stage 7
    memory += [await mmz_alloc_cached(cl, name, SPAN) for name in (b"npu_input", b"npu_output")]
    (source_phy, source), (result_phy, result) = memory[2:]
    a, b = question(1)
    cl.memory(source, SIZE)[:] = a.tobytes()
    cl.memory(source + OFFSET, SIZE)[:] = b.tobytes()
    for io, base in ((inputs, source), (outputs, result)):
        for place, tensor in enumerate(io.tensor or ()):
            tensor.addr = base + OFFSET * place
    assert await cl.xmedia_mmz_flush_cache(source_phy, source, SPAN) == 0
    assert await cl.xmedia_mmz_flush_cache(result_phy, result, SPAN) == 0  # before the run: invalidates
    assert await cl.xmedia_cl_graph_set_inout(graph, inputs, outputs) == 0
    assert await cl.xmedia_cl_graph_process(graph) == 0
    found = bytes(cl.memory(result, SIZE)), bytes(cl.memory(result + OFFSET, SIZE))
    # Stage 8
    assert await cl.xmedia_cl_graph_unload(graph) == 0
    assert await cl.xmedia_cl_release_context(context) == 0
    assert await cl.xmedia_cl_release_device_ids(devices, num_devices) == 0
    assert await cl.xmedia_cl_uninit() == await cl.xmedia_sys_exit() == 0
    for phy, virt in memory:
        await mmz_free(cl, phy, virt)
    return found


@BOTH
@pytest.mark.parametrize("simply", [False, True])
async def test_the_eight_stages(behind: str, simply: bool, tmp_path: Path) -> None:
    path = tmp_path / "neuron_network.xmm"
    path.write_bytes(net())
    async with RealWorld() as world:
        board = Board(world)
        cl = library(behind, board)
        found = drive(page(cl, bytes(path), DeviceType.ALL, simply=simply))
        assert found == answers(*question(1))
        assert board.leaks() == board.faults == []


async def test_the_pages_list_of_devices_is_a_switch(tmp_path: Path) -> None:
    path = tmp_path / "neuron_network.xmm"
    path.write_bytes(net())
    async with RealWorld() as world:
        board = Board(world, SimulatedNpu(any_device_list=True))
        drive(page(board.library(), bytes(path), DeviceType.NPU, simply=False))
        assert board.leaks() == []


async def beyond(cl: XmediaCl, data: bytes) -> None:
    """Functions that the page does not need."""
    await cl.xmedia_mmz_init()
    await cl.xmedia_cl_init()
    devices = [0, 0]
    await cl.xmedia_cl_get_device_ids(DeviceType.ALL, devices, 2)
    context, _ = await cl.xmedia_cl_create_context(2, devices)
    info, status = await cl.xmedia_cl_graph_query_model_info_from_buff(data, 0)
    assert (info.worksize, info.memory_reuse_type, info.private_data_size, status) == (WORK, 0, 5, 0)
    assert await cl.xmedia_cl_graph_query_model_info_from_buff(data, 1) == (type(info)(), -79)
    assert await cl.xmedia_cl_graph_get_private_data_from_buff(data, 5) == (b"p\0q\xffr", 0)
    assert await cl.xmedia_cl_graph_get_private_data_from_buff(data, 4) == (b"", -78)
    assert (await cl.xmedia_cl_graph_querysize_from_buff(data))[::2] == (WORK, 0)
    assert (await cl.xmedia_cl_graph_querysize_from_buff(bytes(16)))[2] == ClStatus.INVALID_MODEL
    assert (await cl.xmedia_cl_graph_querysize_from_buff(None))[2] != 0
    phy, virt = await mmz_alloc_cached(cl, b"work", WORK)
    assert await cl.xmedia_mmz_virt_to_phy(virt + 8) == (phy + 8, 0)
    assert await cl.xmedia_mmz_is_cached(virt) == (True, 0)
    assert (await cl.xmedia_cl_get_workspace_addr(context))[2] == ClStatus.CONTEXT_WORKSPACE_FAIL
    assert await cl.xmedia_cl_set_workspace_addr(context, virt, WORK) == 0
    assert await cl.xmedia_cl_get_workspace_addr(context) == (virt, WORK, 0)
    graph, _ = await cl.xmedia_cl_graph_loadmodel_from_buff(context, data)
    assert await cl.xmedia_cl_graph_get_private_data(graph) == (b"p\0q\xffr", 0)
    assert await cl.xmedia_cl_graph_get_memory_reuse_type(graph) == (0, 0)
    assert [await cl.xmedia_cl_graph_set_schedule_prio(graph, prio) for prio in (3, 4)] == [0, -30]
    assert await cl.xmedia_cl_graph_set_compress_config(graph, 0, 0, 0) == ClStatus.INVALID_OPERATION
    assert await cl.xmedia_cl_set_profiling(graph, 1, 1) == 0
    model_id, status = await cl.xmedia_cl_graph_communicate(graph)
    assert status == await cl.xmedia_cl_graph_decommunicate(graph, model_id) == 0
    inputs = await all_about(cl, graph, "input")
    assert await cl.xmedia_cl_graph_set_dynamic_batch_size(graph, inputs, 0, 33) == -74
    assert await cl.xmedia_cl_graph_set_dynamic_batch_size(graph, inputs, 0, 1) == 0
    assert await cl.xmedia_cl_graph_get_input(graph, 1, inputs) == ClStatus.INSUFFICIENT_SIZE
    await run_by_events(cl, graph, inputs)
    assert await cl.xmedia_cl_graph_unload(graph) == 0
    await mmz_free(cl, phy, virt)
    assert await cl.xmedia_cl_release_context(context) == 0
    assert await cl.xmedia_cl_uninit() == 0
    await cl.xmedia_mmz_exit()


async def run_by_events(cl: XmediaCl, graph: int, inputs: InOut) -> None:
    outputs = await all_about(cl, graph, "output")
    phy, virt = await mmz_alloc_cached(cl, b"both", 8192)
    for io, base in ((inputs, virt), (outputs, virt + 4096)):
        for place, tensor in enumerate(io.tensor or ()):
            tensor.addr = base + OFFSET * place
    a, b = question(2)
    cl.memory(virt, SIZE)[:], cl.memory(virt + OFFSET, SIZE)[:] = a.tobytes(), b.tobytes()
    assert await cl.xmedia_mmz_flush_cache(phy, virt, 8192) == 0
    assert await cl.xmedia_cl_graph_set_inout(graph, inputs, outputs) == 0
    event, status = await cl.xmedia_cl_graph_submit(graph)
    assert status == await cl.xmedia_cl_wait_for_events([event]) == 0
    assert await cl.xmedia_cl_query_event_status(event) == (3, 0)
    rung: list[tuple[int, int]] = []

    def notify(event: int, status: int) -> None:
        rung.append((event, status))

    for state in (3, 4):
        assert await cl.xmedia_cl_set_event_callback(event, state, notify) == 0
    assert rung == [(event, 3)]
    assert await cl.xmedia_cl_set_event_callback(event, 3, None) == -30
    assert await cl.xmedia_cl_set_event_callback(event, 2, notify) == -30
    assert await cl.xmedia_cl_release_event(event) == 0
    assert await cl.xmedia_cl_wait_for_events(None) == await cl.xmedia_cl_wait_for_events([]) == -30
    assert struct.unpack("3f", cl.memory(virt + 4096, SIZE)) == pytest.approx(tuple((a + b)[0]))
    await mmz_free(cl, phy, virt)


async def files(cl: XmediaCl, path: bytes, data: bytes) -> None:
    info = await cl.xmedia_cl_graph_query_model_info_from_file(path, 0)
    assert info == await cl.xmedia_cl_graph_query_model_info_from_buff(data, 0)
    assert info[0].codesize
    assert await cl.xmedia_cl_graph_get_private_data_from_file(path, 5) == (b"p\0q\xffr", 0)
    assert (await cl.xmedia_cl_graph_get_private_data_from_file(path + b"x", 5))[1] == -65


@BOTH
async def test_files_and_buffers_are_told_alike(behind: str, tmp_path: Path) -> None:
    path, data = tmp_path / "net.xmm", net(private=b"p\0q\xffr")
    path.write_bytes(data)
    async with RealWorld() as world:
        drive(files(library(behind, Board(world)), bytes(path), data))


@BOTH
async def test_what_the_page_does_not_need(behind: str) -> None:
    async with RealWorld() as world:
        board = Board(world)
        cl = library(behind, board)
        drive(beyond(cl, net(private=b"p\0q\xffr")))
        assert board.leaks() == board.faults == []
