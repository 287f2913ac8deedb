"""How long things live: views, models, what C was given; and who may give them back: no child, no Ctrl-C."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from repertory.models.errors import DeviceLost
from repertory.models.spec import Array
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import drive
from repertory.transports.xm_npu.cl.context import System
from repertory.transports.xm_npu.cl.library import XmediaCl
from repertory.transports.xm_npu.cl.marshal import CInOut
from repertory.transports.xm_npu.cl.npu import ClNpu
from repertory.transports.xm_npu.cl.stages import ComputeLibrary
from repertory.transports.xm_npu.errors import NpuRefusal
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.views import Views

from .nets import OFFSET, SIZE, answers, image, net, question
from .stub import StubLibrary
from .test_npu import runs
from .test_stages import PAGE, loaded, opened

CALLS = [name for name in dir(XmediaCl) if name.startswith("xmedia_")]


# -- views -----------------------------------------------------------------------------------------


def part(view: memoryview) -> memoryview:
    return view[4:8]


def array(view: memoryview) -> Array:
    return np.frombuffer(view, np.uint8)


def array_of_a_part(view: memoryview) -> Array:
    return np.frombuffer(view[8:], "<f4")[1:]


def another_view(view: memoryview) -> memoryview:
    return memoryview(view).cast("B")


@pytest.mark.parametrize("looking", [part, array, array_of_a_part, another_view])
def test_memory_is_not_unmapped_under_what_was_made_of_a_view(looking: Callable[[memoryview], Any]) -> None:
    memory = bytearray(64)
    views = Views(lambda: memoryview(memory))
    view = views.take(16, 32)
    made = looking(view)
    with pytest.raises(BufferError):
        views.revoke()
    made[0] = 1
    assert any(memory[16:48])
    del made
    other = views.take(0, 4)
    views.revoke()
    for each in (view, other):
        with pytest.raises(ValueError, match="released"):
            _ = each[0]
    memory.append(0)  # nobody looks any more, or it could not grow


@pytest.mark.virtual
async def test_views_end_with_their_memory(caplog: pytest.LogCaptureFixture) -> None:
    async with VirtualWorld() as world:
        board = Board(world)
        system = System(board.library())
        await system.open()
        free, kept, plain = [await system.allocate(name, PAGE) for name in ("free", "kept", "plain")]
        part = free.data[8:16]
        with pytest.raises(NpuRefusal, match=r"stage 8, xmedia_mmz_free.*free.*has an array on it"):
            await free.free()
        part[0] = 7
        assert free.data[8] == 7, "it is still there"
        del part
        await free.free()
        array, view = np.frombuffer(kept.data, np.uint8), plain.data
        with caplog.at_level(logging.WARNING):
            assert await system.close() is None
        assert "kept" in caplog.text
        assert "stays mapped" in caplog.text
        assert [block.name for block in board.mmz.blocks.values()] == [b"kept"]
        array[:] = 5
        with pytest.raises(ValueError, match="released"):
            _ = view[0]
        del array
        assert await system.close() is None
        assert board.leaks() == board.faults == []


@pytest.mark.virtual
async def test_a_view_of_the_librarys_own_workspace_ends_with_the_graph() -> None:
    async with VirtualWorld() as world:
        board = Board(world)
        system = System(board.library())
        await system.open()
        graph = await system.load_simply(net(reuse=3), name="net")
        view = graph.view((await graph.inputs())[0])
        part = view[:4]
        failure = await system.close()
        assert isinstance(failure, NpuRefusal)
        assert failure.call == "xmedia_cl_graph_unload"
        assert system.opened, "a graph needs it"
        part[0] = 1
        del part
        assert await system.close() is None
        with pytest.raises(ValueError, match="released"):
            _ = view[0]
        assert board.leaks() == board.faults == []


@pytest.mark.virtual
async def test_the_places_of_a_graph_end_with_it() -> None:
    async with VirtualWorld() as world:
        board = Board(world)
        npu = ClNpu(board.library(), world)
        await npu.open(lambda: None)
        graph = await npu.load(image())
        await runs(npu, graph)
        views = [view for place in graph.places for view in (*place.inputs, *place.outputs)]
        await npu.close()
        for view in views:
            with pytest.raises(ValueError, match="released"):
                _ = view[0]
        assert board.leaks() == board.faults == []


@pytest.mark.virtual
async def test_the_simulator_notices_who_looks_at_unmapped_memory() -> None:
    async with VirtualWorld() as world:
        board = Board(world)
        cl = board.library()
        phy = await cl.xmedia_mmz_alloc(None, b"x", PAGE)
        virt = await cl.xmedia_mmz_map(phy, PAGE, cached=True)
        view = cl.memory(virt, PAGE)
        await cl.xmedia_mmz_unmap(virt)
        assert "still looks at it" in board.faults[0]
        view.release()
        await cl.xmedia_mmz_free(phy)


# -- what C was given ------------------------------------------------------------------------------


@pytest.mark.virtual
async def test_a_graph_keeps_the_very_bytes_that_it_was_loaded_from() -> None:
    async with opened() as (_, system):
        for simply in (False, True):
            data = bytes(bytearray(net()))  # of its own
            graph = await system.load_simply(data) if simply else (await loaded_from(system, data))
            assert data in [each for each in gc.get_referents(graph.__dict__) if each is data]
            await graph.unload()
            assert not [each for each in gc.get_referents(graph.__dict__) if each is data]


async def loaded_from(system: System, data: bytes) -> Any:
    sizes = await system.sizes(data)
    work, weight = [await system.allocate("memory", size) for size in (sizes.work, sizes.weight)]
    return await system.load(data, workspace=work, weight=weight)


async def test_what_c_was_given_of_a_graph_lives_until_it_is_unloaded(tmp_path: Path) -> None:
    async with RealWorld() as world:
        library = StubLibrary(tmp_path / "libxmedia_cl.so", Board(world).library()).open()

        def kept() -> int:
            gc.collect()
            return sum(isinstance(each, CInOut) for each in gc.get_objects())

        async def script() -> None:
            async with System(library) as system:
                before = kept()
                graph = await system.load_simply(net())
                both = await system.allocate("both", 2 * PAGE)
                await graph.set_batch(1)
                assert kept() - before == 2, "one for each input"
                await graph.bind(both.span(0, PAGE), both.span(PAGE))
                await graph.bind(both.span(0, PAGE), both.span(PAGE))
                assert kept() - before == 4
                await graph.unload()
                assert kept() == before

        drive(script())


# -- a forked child --------------------------------------------------------------------------------


@pytest.mark.virtual
async def test_a_forked_child_is_refused_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (board, system):
        graph, source, result = await loaded(system)
        await graph.bind(source, result)
        job = await graph.submit()
        calls = watched(system, monkeypatch)
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: 1)
            for call in (
                system.open,
                lambda: system.sizes(net()),
                lambda: system.allocate("x", PAGE),
                lambda: system.load_simply(net()),
                graph.inputs,
                graph.process,
                graph.submit,
                graph.unload,
                lambda: graph.set_batch(1),
                lambda: graph.bind(source, result),
                job.look,
                source.flush,
                source.free,
            ):
                with pytest.raises(DeviceLost, match=r"opened by process \d+, this is 1"):
                    await call()
            with pytest.raises(DeviceLost):
                _ = source.data
            assert await system.close() is None
            assert calls == []
            assert board.mmz.blocks
        while not job.final:
            await anyio.sleep(0.001)
            await job.look()


def watched(system: System, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the calls of the library from now on."""
    calls = list[str]()
    library = system._library  # pyright: ignore[reportPrivateUsage]
    wrap(library, monkeypatch, before=calls.append)
    return calls


# -- exceptions ------------------------------------------------------------------------------------


def wrap(
    library: XmediaCl,
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: Callable[[str], object],
    after: Callable[[str], object] = lambda _: None,
) -> None:
    async def around(name: str, honest: Callable[..., Any], *args: Any) -> object:
        before(name)
        answer = await honest(*args)
        after(name)
        return answer

    for name in CALLS:
        monkeypatch.setattr(library, name, partial(around, name, getattr(library, name)))


def script(library: XmediaCl, data: bytes) -> bytes:
    with ComputeLibrary(library) as cl:
        sizes = cl.sizes(data)
        work, weight = cl.allocate("work", sizes.work), cl.allocate("weight", sizes.weight)
        graph = cl.load(data, workspace=work, weight=weight)
        source = cl.allocate("in", graph.input_bytes())
        result = cl.allocate("out", graph.output_bytes(), cached=False)
        assert source
        assert result
        for place, array in enumerate(question(1)):
            source.data[OFFSET * place :][:SIZE] = array.tobytes()
        graph.bind(source, result)
        graph.process()
        return bytes(result.data[:SIZE]) + bytes(result.data[OFFSET:][:SIZE])


def run(board: Board, before: Callable[[str], object], after: Callable[[str], object]) -> bytes:
    library = board.library()
    with pytest.MonkeyPatch.context() as patched:
        wrap(library, patched, before=before, after=after)
        return script(library, net())


def calls_of_the_script() -> list[str]:
    names = list[str]()
    assert run(Board(RealWorld()), names.append, lambda _: None) == b"".join(answers(*question(1)))
    return names


def at(number: int, what: Callable[[], object]) -> Callable[[str], object]:
    count = iter(range(1000))
    return lambda _: what() if next(count) == number else None


@pytest.mark.parametrize("late", [False, True])
def test_ctrl_c_at_any_call_of_a_script_gives_all_back(late: bool) -> None:
    """Whether the signal comes before or after the call: what the call has given must not be lost."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        calls = calls_of_the_script()
        assert len(calls) > 25
        for number in range(len(calls)):
            board = Board(RealWorld())
            hit, missed = at(number, partial(signal.raise_signal, signal.SIGINT)), at(-1, int)
            with pytest.raises(KeyboardInterrupt) as caught:
                run(board, *((missed, hit) if late else (hit, missed)))
            assert board.leaks() == board.faults == [], f"{number}: {calls[number]}"
            assert caught.tb, "who keeps the error keeps its frames: nothing waited for them to go"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, handler)


def test_an_error_instead_of_any_call_of_a_script_costs_no_more_than_that_call() -> None:
    class Broken(Exception):
        pass

    def fail() -> None:
        raise Broken

    calls = calls_of_the_script()
    gives_back = ("exit", "uninit", "release", "unload", "unmap", "free")
    for number, name in enumerate(calls):
        board = Board(RealWorld())
        seen = list[str]()
        failing = at(number, fail)

        def before(call: str, seen: list[str] = seen, failing: Callable[[str], object] = failing) -> None:
            seen.append(call)
            failing(call)

        with pytest.raises(Broken):
            run(board, before, len)
        if name.endswith(gives_back) or "release" in name:
            assert seen == calls, f"all others are made after {name} fails"
        else:
            assert board.leaks() == [], f"{number}: {name}"


def test_the_second_ctrl_c_is_heard_at_once() -> None:
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    behind = list[str]()

    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        behind.append("first")
        signal.raise_signal(signal.SIGINT)
        behind.append("second")

    try:
        board = Board(RealWorld())
        with pytest.raises(KeyboardInterrupt):
            run(board, at(6, twice), len)
        assert behind == ["first"]
        assert board.leaks() == []
    finally:
        signal.signal(signal.SIGINT, handler)


def test_a_library_whose_block_was_never_left_is_closed_with_it() -> None:
    board = Board(RealWorld())
    cl = ComputeLibrary(board.library())
    cl.__enter__()
    cl.load_simply(net())
    assert board.leaks()
    del cl
    gc.collect()
    assert board.leaks() == board.faults == []
