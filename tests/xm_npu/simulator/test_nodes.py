"""The driver's nodes, call by call, in bytes."""

from __future__ import annotations

import errno
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from repertory.transports.virtual import VirtualWorld
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.faults import Fault, Kind, scripted
from repertory.transports.xm_npu.simulator.parameters import SimulatedNpu

from .host import (
    ALLOC,
    CACHED,
    CLOSE,
    CREATE,
    DESTROY,
    FREE,
    OPEN,
    QUERY,
    REMAP,
    RESET,
    SUBMIT,
    UNMAP,
    WAIT,
    NodeHost,
    Window,
    refused,
)
from .models import twice

pytestmark = pytest.mark.virtual

PEND, PROCESS, SUCCESS, ABORT, UNKNOWN = 0, 1, 2, 5, 6


@asynccontextmanager
async def opened(**params: Any) -> AsyncGenerator[tuple[Board, NodeHost, Window]]:
    async with VirtualWorld() as world:
        board = Board(world, SimulatedNpu(**params))
        host = NodeHost(board)
        await host.prepare()
        yield board, host, await host.load()


async def test_a_run_takes_its_cycles_and_is_collected_once(anyio_backend: object) -> None:
    async with opened() as (board, host, window):
        start = anyio.current_time()
        assert await window.run(3) == 3
        assert anyio.current_time() - start == pytest.approx(0.001)
        assert await host.state(WAIT, 1) == (UNKNOWN, 0)
        await window.give_back()
        await host.call(DESTROY)
        await host.call(CLOSE)
        host.close()
        assert (board.leaks(), board.faults) == ([], [])


async def test_jobs_wait_in_line_and_a_query_collects_too(anyio_backend: object) -> None:
    async with opened() as (_, host, window):
        other = await host.load()
        window.ask(1)
        other.ask(2)
        first, second = await window.submit(), await other.submit()
        assert (first, second) == (1, 2)
        assert [await host.state(QUERY, job) for job in (first, second)] == [(PROCESS, 0), (PEND, 0)]
        assert await host.state(WAIT, second, 0) == (SUCCESS, 0)
        assert [await host.state(QUERY, job) for job in (first, second)] == [(SUCCESS, 0), (UNKNOWN, 0)]
        assert (window.answer(), other.answer()) == (1, 2)


async def test_inputs_are_read_as_a_job_begins_and_must_be_left_alone(anyio_backend: object) -> None:
    async with opened() as (board, host, window):
        window.ask(1)
        job = await window.submit()
        window.ask(2)
        assert await host.state(WAIT, job) == (SUCCESS, 0)
        assert window.answer() == 1
        assert "touched while" in board.faults[0]


async def test_waits_end_by_time_and_by_a_signal(anyio_backend: object) -> None:
    async with opened(latency_ms=5.0) as (board, host, window):
        board.switches.on_job = scripted({0: Fault(Kind.HANG)})
        job = await window.submit()
        start = anyio.current_time()
        with refused(errno.EAGAIN):
            await host.state(WAIT, job, 20)
        assert anyio.current_time() - start == pytest.approx(0.02)
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                with refused(errno.EAGAIN):
                    await host.state(WAIT, job, 0)

            tasks.start_soon(wait)
            await anyio.sleep(0.5)
            host.kernel.interrupt()
        assert anyio.current_time() - start == pytest.approx(0.52)


async def test_what_needs_a_queue_says_so(anyio_backend: object) -> None:
    async with opened() as (_, host, window):
        with refused(errno.EFAULT):
            await host.state(WAIT, 1)
        await host.call(DESTROY)
        for call in (window.submit(), host.state(WAIT, 1), host.state(QUERY, 1), host.call(DESTROY)):
            with refused(errno.EFAULT):
                await call


async def test_an_abort_takes_along_all_that_wait(anyio_backend: object) -> None:
    async with opened() as (board, host, window):
        board.switches.on_job = scripted({1: Fault(Kind.ABORT, report=0x1400)})
        jobs = [await window.submit() for _ in range(4)]
        states = [await host.state(WAIT, job) for job in jobs]
        assert states == [(SUCCESS, 0), (ABORT, 0x1400), (ABORT, 0), (ABORT, 0)]
        with refused(errno.EFAULT):
            await window.submit()
        await host.call(RESET)
        with refused(errno.EFAULT):
            await window.submit()
        await host.call(CREATE)
        assert await window.submit() == 1
        assert await host.state(WAIT, 1) == (SUCCESS, 0)


async def test_a_reset_that_fails_leaves_the_npu_as_it_is(anyio_backend: object) -> None:
    async with opened() as (board, host, window):
        board.switches.on_job = scripted({0: Fault(Kind.HANG)})
        board.switches.stuck = True
        await window.submit()
        with refused(errno.EIO):
            await host.call(RESET)
        board.switches.stuck = False
        await host.call(RESET)
        await host.call(CREATE)
        assert await window.run(1) == 1


async def test_a_job_that_runs_on_is_orphaned(anyio_backend: object) -> None:
    async with opened(drain_ms=50.0) as (board, host, window):
        board.switches.on_job = scripted({0: Fault(Kind.SLOW, factor=100)})
        job, pending = await window.submit(), await window.submit()
        start = anyio.current_time()
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                assert await host.state(WAIT, job, 0) == (UNKNOWN, 0)

            tasks.start_soon(wait)
            with refused(errno.EPERM):
                await host.call(DESTROY)
        assert anyio.current_time() - start == pytest.approx(0.05)
        await host.call(CREATE)
        with refused(errno.EBUSY):
            await window.submit()
        assert board.core.state == 4
        await anyio.sleep(0.06)
        assert await window.run(1) == 1
        assert pending == 2


async def test_queues_are_counted_and_ids_begin_anew_with_the_first(anyio_backend: object) -> None:
    async with opened() as (_, host, window):
        await host.call(CREATE)
        for job in (1, 2):
            assert await window.submit() == job
            assert await host.state(WAIT, job) == (SUCCESS, 0)
        await host.call(DESTROY)
        assert await window.submit() == 3
        await host.call(DESTROY)
        await host.call(CREATE)
        assert await window.submit() == 1


@pytest.mark.parametrize(
    ("at", "byte", "report"), [(0, 0, 0x50000), (25, 0xC1, 0x80)], ids=["garbage", "undecodable"]
)
async def test_code_that_is_none_stops_the_npu(
    anyio_backend: object, at: int, byte: int, report: int
) -> None:
    async with opened() as (_, host, window):
        window.view[at] = byte
        assert await host.state(WAIT, await window.submit()) == (ABORT, report)


async def test_parameters_that_are_others_stop_it(anyio_backend: object) -> None:
    async with opened() as (board, host, window):
        assert await window.run(1) == 1
        window.view[-(-window.code // 16) * 16 + 20] ^= 1
        assert await host.state(WAIT, await window.submit()) == (ABORT, 0x80)
        assert "graph" in str(board.core.stopped)


async def test_what_lies_outside_of_the_window_stops_it(anyio_backend: object) -> None:
    async with opened() as (_, host, window):
        job = await window.submit(end=window.phys + window.outputs + 63)
        assert await host.state(WAIT, job) == (ABORT, 0x10000)


async def test_a_window_is_kept_until_another_is_given(anyio_backend: object) -> None:
    async with opened() as (_, host, window):
        assert await window.run(1) == 1
        window.ask(2)
        job = await host.call(SUBMIT, 0, window.code, *[0xFFFFFFFF] * 4, 0, 0)
        assert await host.state(WAIT, job) == (SUCCESS, 0)
        assert window.answer() == 2


async def test_a_window_that_is_cached_works_with_flushes_alone(anyio_backend: object) -> None:
    async with opened() as (board, host, _):
        window = await host.load(request=CACHED)
        window.ask(1)
        assert await host.state(WAIT, await window.submit()) == (ABORT, 0x50000)
        await host.call(RESET)
        await host.call(CREATE)
        await window.flush()
        assert await window.run(2) == 1, "the second question lies in the cache still"
        await window.flush(window.inputs)
        assert await window.run(2) == 2
        assert board.faults == []


async def test_a_workspace_is_used(anyio_backend: object) -> None:
    async with opened() as (_, host, _):
        window = await host.load(twice(work=64))
        assert await window.run(1) == 1
        assert set(window.view[window.inputs - 64 : window.inputs]) == {0xEE}


async def test_faults_of_others(anyio_backend: object) -> None:
    async with opened() as (board, host, window):
        kinds = (Kind.LOST_INTERRUPT, Kind.FOREIGN_RESET, Kind.GONE)
        board.switches.on_job = scripted({number: Fault(kind) for number, kind in enumerate(kinds)})
        window.ask(5)
        job = await window.submit()
        with refused(errno.EAGAIN):
            await host.state(WAIT, job)
        assert window.answer() == 5
        await host.call(RESET)
        await host.call(CREATE)
        assert await host.state(WAIT, await window.submit()) == (UNKNOWN, 0)
        with refused(errno.EFAULT):
            await window.submit()
        await host.call(CREATE)
        assert await host.state(WAIT, await window.submit()) == (UNKNOWN, 0)
        with refused(errno.ENODEV):
            await host.call(CREATE)
        assert host.kernel.nodes(Path("/dev")) == ["mmz_userdev"]


async def test_the_last_descriptor_closes_all(anyio_backend: object) -> None:
    async with opened() as (board, host, window):
        board.switches.on_job = scripted({0: Fault(Kind.HANG)})
        await window.submit()
        host.kernel.die()
        assert len(board.leaks()) == 1
        assert "MMB LEAK" in board.leaks()[0]
        other = NodeHost(board)
        await other.prepare()
        assert await (await other.load()).run(4) == 4


async def test_the_nodes_refuse(anyio_backend: object) -> None:
    async with opened() as (board, host, window):
        with refused(errno.EINVAL):
            await host.call(0xC0046E2B)
        with refused(errno.EINVAL):
            await host.call(0xC0046E28, 4)
        with refused(errno.EFAULT):
            await host.kernel.ioctl(host.npu, OPEN, 0)
        with refused(errno.EINVAL):
            host.kernel.map(host.npu, 8192)
        assert len(host.kernel.map(host.npu, 4096)) == 4096
        with refused(errno.EINVAL):
            await host.kernel.ioctl(host.mmz, 0xC0546D0A, bytearray(84))
        with refused(errno.ENOMEM):
            await host.memory(UNMAP, mapped=0x1000)
        with refused(errno.EFAULT):
            await host.flush(window.phys + 64, window.virt, 64)
        host.kernel.pid += 1
        with refused(errno.EPERM):
            await host.memory(ALLOC, size=1)
        host.kernel.trouble = lambda call: errno.EIO if call == "RESET" else None
        with refused(errno.EIO):
            await host.call(RESET)
        with refused(errno.EBADF):
            host.kernel.close(99)
        assert board.faults == []


async def test_a_mapping_can_be_written_only_if_that_was_asked_for(anyio_backend: object) -> None:
    async with opened() as (_, host, _):
        block = await host.memory(ALLOC, size=1, prot=0)
        block = await host.memory(REMAP, phys=block.phys, size=1, prot=0)
        assert host.kernel.memory(block.virt, 1).readonly
        with refused(errno.EBUSY):
            await host.memory(FREE, phys=block.phys)


@pytest.mark.parametrize(
    ("params", "path", "number"),
    [
        ({"present": False}, "/dev/npu.0", errno.ENOENT),
        ({"privileged": False}, "/dev/mmz_userdev", errno.EPERM),
        ({}, "/dev/npu.1", errno.ENOENT),
    ],
)
async def test_a_node_may_be_missing(
    anyio_backend: object, params: dict[str, Any], path: str, number: int
) -> None:
    async with VirtualWorld() as world:
        with refused(number):
            Board(world, SimulatedNpu(**params)).kernel().open(Path(path))


async def test_ends_are_seen_at_jiffies(anyio_backend: object) -> None:
    async with opened(jiffy_ms=10.0) as (_, _, window):
        for _ in range(2):
            await window.run(1)
            assert anyio.current_time() / 0.01 == pytest.approx(round(anyio.current_time() / 0.01))
        assert anyio.current_time() > 0.009
