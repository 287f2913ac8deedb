"""The real binding: what is loaded, what is refused, and what C keeps of us."""

from __future__ import annotations

import gc
import shutil
import threading
from pathlib import Path

import pytest

from repertory.models.errors import ConfigError
from repertory.transports.real import RealWorld
from repertory.transports.world import drive
from repertory.transports.xm_npu.cl.binding import CtypesXmediaCl, shared_library
from repertory.transports.xm_npu.cl.context import System
from repertory.transports.xm_npu.cl.library import OPTIONAL, EventStatus
from repertory.transports.xm_npu.simulator.board import Board

from .nets import SIZE, net
from .stub import StubLibrary

ONLY_IN_C = {
    "xmedia_cl_set_workspace_addr",
    "xmedia_cl_graph_query_model_info_from_file",
    "xmedia_cl_graph_get_private_data",
    "xmedia_cl_graph_get_private_data_from_file",
}


async def test_a_missing_library_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"libxmedia_cl\.so \(with libxmedia_common\.so, libxmedia_flatcc"):
        shared_library(tmp_path)


async def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "libxmedia_cl.so").write_bytes(b"no library at all")
    with pytest.raises(ConfigError, match="cannot be loaded") as caught:
        shared_library(tmp_path)
    assert isinstance(caught.value.__cause__, OSError)


async def test_older_revisions_are_refused(tmp_path: Path) -> None:
    async with RealWorld() as world:
        behind = Board(world).library()
        (tmp_path / "a").mkdir()
        oldest = StubLibrary(tmp_path / "a.so", behind, without={"xmedia_cl_graph_set_inout"})
        with pytest.raises(ConfigError, match="revision A"):
            oldest.open()
        older = StubLibrary(tmp_path / "b.so", behind, without=ONLY_IN_C)
        with pytest.raises(ConfigError, match="revision B"):
            older.open()
        assert older.open(revision="C").exports == OPTIONAL - ONLY_IN_C
        foreign = StubLibrary(tmp_path / "c.so", behind, without={"xmedia_mmz_map"})
        with pytest.raises(ConfigError, match="lacks xmedia_mmz_map"):
            foreign.open()


async def test_optional_functions_may_be_missing(tmp_path: Path) -> None:
    missing = "xmedia_cl_graph_submit"
    async with RealWorld() as world:
        stub = StubLibrary(tmp_path / "libxmedia_cl.so", Board(world).library(), without={missing})
        library = stub.open()
        assert library.exports == OPTIONAL - {missing}
        with pytest.raises(ConfigError, match=missing):
            drive(library.xmedia_cl_graph_submit(1))


async def test_functions_are_found_in_each_of_the_libraries(tmp_path: Path) -> None:
    """A handle of the loader finds only what its own file needs: system calls lie in libxmedia_common."""
    elsewhere = {"xmedia_sys_init", "xmedia_sys_exit"}
    async with RealWorld() as world:
        behind = Board(world).library()
        StubLibrary(tmp_path / "libxmedia_common.so", behind)
        StubLibrary(tmp_path / "libxmedia_cl.so", behind, without=elsewhere)
        library = CtypesXmediaCl(tmp_path)
        assert drive(library.xmedia_sys_init()) == drive(library.xmedia_sys_exit()) == 0
        alone = tmp_path / "alone"
        alone.mkdir()
        shutil.copy(tmp_path / "libxmedia_cl.so", alone)
        with pytest.raises(ConfigError, match="xmedia_sys_exit, xmedia_sys_init"):
            CtypesXmediaCl(alone)


async def test_a_library_is_shared_however_its_path_is_spelled(tmp_path: Path) -> None:
    async with RealWorld() as world:
        stub = StubLibrary(tmp_path / "libxmedia_cl.so", Board(world).library())
        (tmp_path / "link").symlink_to(tmp_path)
        first = shared_library(tmp_path)
        assert first is shared_library(stub.path)
        assert first is shared_library(str(tmp_path / "link" / "libxmedia_cl.so"))
        assert not first.simulated
        assert first.file == stub.path.resolve()


async def test_callbacks_live_until_their_event_is_released(tmp_path: Path) -> None:
    """C holds nothing that Python knows of: a collected callback would end the process."""
    async with RealWorld() as world:
        board = Board(world)
        library = StubLibrary(tmp_path / "libxmedia_cl.so", board.library()).open()

        told: list[int] = []
        rung = threading.Event()

        def notify(_event: int, status: int) -> None:
            told.append(status)
            rung.set()

        async def run() -> None:
            async with System(library) as system:
                graph = await system.load_simply(net())
                buffer = await system.allocate("both", 8192)
                await graph.bind(buffer.span(0, 4096), buffer.span(4096))
                job = await graph.submit(notify)
                gc.collect()
                assert rung.wait(20)
                assert await job.look() is EventStatus.COMPLETED

        drive(run())
        assert told == [EventStatus.COMPLETED]
        assert board.leaks() == []


async def test_memory_is_shared_with_the_library(tmp_path: Path) -> None:
    async with RealWorld() as world:
        behind = Board(world).library()
        library = StubLibrary(tmp_path / "libxmedia_cl.so", behind).open()
        phy = drive(library.xmedia_mmz_alloc(b"anonymous", b"x", SIZE))
        virt = drive(library.xmedia_mmz_map(phy, SIZE, cached=True))
        library.memory(virt, SIZE)[:] = bytes(range(SIZE))
        assert bytes(behind.memory(virt, SIZE)) == bytes(range(SIZE))
        assert drive(library.xmedia_mmz_alloc(b"elsewhere", b"x", SIZE)) == 0
