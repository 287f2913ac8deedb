"""`ClNpu`: graphs, jobs, failures and the end, over the simulated library and over C."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from repertory.models.errors import ConfigError, DeviceBusy, DeviceHung, DeviceLost, NoRoom
from repertory.transports.frame import Fate
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import drive
from repertory.transports.xm_npu.cl.library import OPTIONAL
from repertory.transports.xm_npu.cl.npu import LISTENING, POLLING, ClNpu
from repertory.transports.xm_npu.errors import NpuAborted, NpuRefusal
from repertory.transports.xm_npu.npu import Ended, Graph, Place
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.faults import Fault, Kind, scripted
from repertory.transports.xm_npu.simulator.parameters import SimulatedNpu, Zone

from .nets import BOTH, OFFSET, SIZE, answers, image, library, question

PAGE = 4096
NO_EVENTS = OPTIONAL - {"xmedia_cl_graph_submit"}
NO_CALLBACKS = OPTIONAL - {"xmedia_cl_set_event_callback"}


@asynccontextmanager
async def opened(params: SimulatedNpu | None = None, **options: Any) -> AsyncGenerator[tuple[Board, ClNpu]]:
    """Open an NPU in virtual time; in the end all is given back, and nothing wrong was done."""
    async with VirtualWorld() as world:
        board = Board(world, params)
        npu = ClNpu(board.library(), world, **options)
        await npu.open(lambda: None)
        yield board, npu
        await npu.close()
        await npu.close()
        assert board.leaks() == board.faults == []


def put(place: Place, seed: int, batch: int = 1) -> None:
    for view, array in zip(place.inputs, question(seed, batch), strict=True):
        for item, row in enumerate(array):
            view[OFFSET * item :][:SIZE] = row.tobytes()


def got(place: Place) -> tuple[bytes, ...]:
    """Return the outputs without what lies between the items of a batch."""
    starts = (range(0, len(view), OFFSET) for view in place.outputs)
    return tuple(
        b"".join(bytes(view[at:][:SIZE]) for at in each)
        for view, each in zip(place.outputs, starts, strict=True)
    )


async def ends(npu: ClNpu, count: int) -> list[Ended]:
    found: list[Ended] = []
    while len(found) < count:
        await anyio.sleep(0.0001)
        found += await npu.collect()
    return found


async def runs(npu: ClNpu, graph: Graph, batch: int = 1) -> None:
    for seed in range(4):
        place = graph.places[seed % len(graph.places)]
        put(place, seed, batch)
        run = await graph.submit(place)
        (end,) = await ends(npu, 1)
        assert (end.run, end.fate) == (run, Fate.DONE)
        assert got(place) == answers(*question(seed, batch))


@pytest.mark.virtual
@pytest.mark.parametrize("reuse", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"memory": "library", "outputs": "cached"},
        {"outputs": "cached", "prio": 3},
    ],
)
async def test_frames_are_answered(reuse: int, options: dict[str, Any]) -> None:
    async with opened(**options) as (board, npu):
        graph = await npu.load(image(reuse=reuse))
        assert len(graph.places) == (1 if reuse else 2)
        mapped = {each.cached for each in board.mmz.blocks.values() if each.name == b"npu_output"}
        assert mapped <= {options.get("outputs") == "cached"}
        await runs(npu, graph)
        assert (await npu.health())["graphs_count"] == 1
        await graph.unload()
        await graph.unload()
        assert await npu.health() == {"graphs_count": 0, "jobs_count": 0, "mmz_held_bytes": 0}


@pytest.mark.virtual
@pytest.mark.parametrize("exports", [NO_EVENTS, NO_CALLBACKS, frozenset[str]()])
async def test_older_libraries_do_with_less(exports: frozenset[str]) -> None:
    async with opened(SimulatedNpu(exports=exports)) as (_, npu):
        assert npu.patience == POLLING
        graph = await npu.load(image())
        assert len(graph.places) == (2 if exports is NO_CALLBACKS else 1)
        await runs(npu, graph)
        for reuse in (1, 2, 3):  # known from the file, where the library does not tell
            await runs(npu, await npu.load(image(reuse=reuse)))


@pytest.mark.virtual
@pytest.mark.parametrize("memory", ["own", "library"])
async def test_a_dynamic_batch(memory: str) -> None:
    async with opened(memory=memory) as (_, npu):
        graph = await npu.load(image(batch=3))
        await runs(npu, graph, batch=3)


@BOTH
async def test_real_time(behind: str) -> None:
    """The bell is rung by a thread of the library, or at once."""
    async with RealWorld() as world:
        board = Board(world)
        npu = ClNpu(library(behind, board), world)
        condition = world.condition()
        rung: list[float] = []

        def bell() -> None:
            with condition:
                rung.append(world.now())
                condition.notify()

        async def serve() -> None:
            await npu.open(bell)
            assert npu.patience == LISTENING
            graph = await npu.load(image())
            for seed in range(6):
                place = graph.places[seed % 2]
                put(place, seed)
                rung.clear()
                await graph.submit(place)
                assert await condition.wait(lambda: bool(rung), timeout=20, next_event=lambda: float("inf"))
                (end,) = await npu.collect()
                assert (end.fate, got(place)) == (Fate.DONE, answers(*question(seed)))
            await npu.close()

        drive(serve())
        assert board.leaks() == board.faults == []


@pytest.mark.virtual
async def test_workspaces_are_shared_by_those_that_may() -> None:
    async with opened() as (board, npu):

        def workspaces() -> list[int]:
            return sorted(each.size for each in board.mmz.blocks.values() if each.name == b"npu_workspace")

        small = await npu.load(image(work=PAGE))
        same = await npu.load(image(work=PAGE - 100))
        assert workspaces() == [PAGE]
        large = await npu.load(image(work=3 * PAGE))
        assert workspaces() == [PAGE, 3 * PAGE]
        alone = await npu.load(image(work=PAGE, reuse=1))
        assert workspaces() == [PAGE, PAGE, 3 * PAGE]
        for graph in (small, same, large, alone):
            put(graph.places[0], 1)
            await graph.submit(graph.places[0])
        assert [end.fate for end in await ends(npu, 4)] == [Fate.DONE] * 4
        assert {got(graph.places[0]) for graph in (small, same, large, alone)} == {answers(*question(1))}
        await small.unload()
        assert workspaces() == [PAGE, PAGE, 3 * PAGE]
        await same.unload()
        await alone.unload()
        assert workspaces() == [3 * PAGE]


@pytest.mark.virtual
@pytest.mark.parametrize("exports", [OPTIONAL, NO_EVENTS])
async def test_an_aborted_job_fails_alone_and_its_graph_is_loaded_again(exports: frozenset[str]) -> None:
    async with opened(SimulatedNpu(exports=exports)) as (board, npu):
        graphs = [await npu.load(image(work=size)) for size in (PAGE, 2 * PAGE, 3 * PAGE)]
        board.switches.on_job = scripted({0: Fault(Kind.ABORT)})
        for graph in graphs:
            put(graph.places[0], 7)
            await graph.submit(graph.places[0])
        found = {end.run.graph: end for end in await ends(npu, 3)}
        assert [found[graph].fate for graph in graphs] == [Fate.FAILED, Fate.DONE, Fate.DONE]
        assert isinstance(found[graphs[0]].error, NpuAborted)
        assert got(graphs[1].places[0]) == answers(*question(7))
        for graph in graphs:
            await runs(npu, graph)


@pytest.mark.virtual
async def test_a_graph_that_cannot_be_loaded_again_loses_the_device() -> None:
    async with VirtualWorld() as world:
        board = Board(world)
        npu = ClNpu(board.library(), world)
        await npu.open(lambda: None)
        graph = await npu.load(image())
        board.switches.on_job = scripted({0: Fault(Kind.ABORT)})
        await graph.submit(graph.places[0])
        board.switches.full = True
        (end,) = await ends(npu, 1)
        assert (end.fate, isinstance(end.error, NpuAborted)) == (Fate.FAILED, True), "the blame is told first"
        with pytest.raises(DeviceLost, match="could not be loaded again"):
            await npu.collect()
        await npu.close()
        assert board.leaks() == []


@pytest.mark.virtual
async def test_loads_that_find_no_room_leave_nothing() -> None:
    pages = 8
    async with opened(SimulatedNpu(zones=(Zone(size=pages * PAGE),))) as (board, npu):
        graph = await npu.load(image())
        before = set(board.mmz.blocks)
        with pytest.raises(NoRoom) as caught:
            await npu.load(image(work=2 * PAGE))
        assert caught.value.wanted
        assert set(board.mmz.blocks) == before
        await runs(npu, graph)
        await graph.unload()
        await runs(npu, await npu.load(image(work=2 * PAGE)))


@pytest.mark.virtual
async def test_models_are_held_against_what_the_library_tells() -> None:
    async with opened() as (board, npu):
        model = image()
        first, second = model.inputs
        for wrong, text in (
            (replace(second, dims=(3, 1)), r"input 'b': the library tells shape \(1, 3\), the file \(3, 1\)"),
            (replace(second, size=16), "input 'b': the library tells bytes 12"),
            (replace(second, pitches=(16, 4)), "pitches"),
        ):
            with pytest.raises(NpuRefusal, match=text):
                await npu.load(replace(model, inputs=(first, wrong)))
        with pytest.raises(NpuRefusal, match="tells 2 outputs, the file 1"):
            await npu.load(replace(model, outputs=model.outputs[:1]))
        assert not board.mmz.blocks


@pytest.mark.virtual
async def test_real_hardware_gets_no_model_for_simulated_npus(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (_, npu):
        monkeypatch.setattr(npu, "simulated", False)
        with pytest.raises(NpuRefusal, match=r"stage 5.*packed for simulated NPUs"):
            await npu.load(image())


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"present": False}, r"/dev/npu\.9.*\./load xm7206v11a -i.*insmod xm_npu\.ko"),
        ({"privileged": False}, r"/dev/mmz_userdev.*CAP_SYS_RAWIO"),
    ],
)
async def test_an_npu_that_cannot_be_opened(params: dict[str, bool], text: str) -> None:
    async with VirtualWorld() as world:
        board = Board(world, SimulatedNpu(**params))  # type: ignore[arg-type]
        npu = ClNpu(board.library(), world, node=Path("/dev/npu.9"))
        with pytest.raises(DeviceLost, match=text):
            await npu.open(lambda: None)
        assert board.leaks() == []


@pytest.mark.virtual
async def test_a_job_that_never_ends_is_left_alone() -> None:
    """The library cannot stop it; what it uses is not freed under it, and closing has a bound."""
    async with VirtualWorld() as world:
        board = Board(world)
        behind = board.library()
        npu = ClNpu(behind, world)
        await npu.open(lambda: None)
        graph = await npu.load(image())
        board.switches.on_job = scripted({0: Fault(Kind.HANG)})
        await graph.submit(graph.places[0])
        assert await npu.collect() == []
        why = DeviceHung("too long", family="xm-npu")
        with pytest.raises(DeviceHung) as caught:
            await npu.break_off(why)
        assert caught.value is why
        began, blocks = world.now(), set(board.mmz.blocks)
        await npu.close()
        assert world.now() - began < 2
        assert set(board.mmz.blocks) == blocks
        behind.die()


@pytest.mark.virtual
async def test_a_forked_child_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (board, npu):
        await npu.load(image())
        blocks = set(board.mmz.blocks)
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: 1)
            with pytest.raises(DeviceLost, match=r"opened by process \d+, this is 1"):
                await npu.load(image())
            await npu.close()
            assert set(board.mmz.blocks) == blocks


@pytest.mark.virtual
async def test_two_do_not_own_one_npu(tmp_path: Path) -> None:
    async with VirtualWorld() as world:
        board = Board(world)
        one, two = (ClNpu(board.library(), world, lock_dir=tmp_path) for _ in "12")
        await one.open(lambda: None)
        with pytest.raises(DeviceBusy, match=r"repertory-npu\.0\.lock"):
            await two.open(lambda: None)
        await two.close()
        await one.close()
        await two.open(lambda: None)
        await two.close()


@pytest.mark.virtual
async def test_arguments_are_checked() -> None:
    async with VirtualWorld() as world:
        behind = Board(world, SimulatedNpu(exports=frozenset())).library()
        wrong: tuple[dict[str, Any], ...] = ({"memory": "x"}, {"outputs": "x"}, {"prio": 4}, {"prio": 1})
        for options in wrong:
            with pytest.raises(ConfigError):
                ClNpu(behind, world, **options)


@pytest.mark.virtual
@pytest.mark.parametrize("devices", ["all", "npu"])
async def test_a_board_without_an_npu_is_not_opened(devices: Any) -> None:
    """A list of all devices has the processor in any case."""
    async with VirtualWorld() as world:
        board = Board(world, SimulatedNpu(devices=0))
        npu = ClNpu(board.library(), world, devices=devices)
        with pytest.raises(DeviceLost, match=r"insmod xm_npu\.ko"):
            await npu.open(lambda: None)
        assert board.leaks() == []
