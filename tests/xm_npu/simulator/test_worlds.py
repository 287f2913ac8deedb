"""One core for both worlds: the same calls have the same outcome, whether time passes or jumps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.faults import Fault, Kind, scripted, seeded
from repertory.transports.xm_npu.simulator.parameters import SimulatedNpu

from .host import WAIT, NodeHost, Page

COMPLETED = 3
Script = Callable[[Board, list[Any]], Coroutine[Any, Any, None]]


class Told:
    """Collects callbacks, from whatever thread."""

    def __init__(self, board: Board) -> None:
        self._machine = board.machine
        self._calls = list[tuple[int, int]]()

    def notify(self, event: int, status: int) -> None:
        self._machine.call(lambda _now: self._calls.append((event, status)))

    async def statuses(self, count: int) -> list[int]:
        """Return them in the order of their events."""
        await self._machine.wait(lambda _now: len(self._calls) == count, timeout=5)
        return [status for _, status in sorted(self._calls)]


async def by_nodes(board: Board, seen: list[Any]) -> None:
    """Two graphs queued, then an abort with one innocent."""
    host = NodeHost(board)
    await host.prepare()
    windows = [await host.load() for _ in range(2)]
    for round_ in range(2):
        for number, window in enumerate(windows):
            window.ask(10 * round_ + number)
        jobs = [await window.submit() for window in windows]
        seen.append([await host.state(WAIT, job) for job in jobs])
        seen.append([window.answer() for window in windows] if round_ == 0 else [])
    for window in windows:
        await window.give_back()
    host.close()


async def by_library(board: Board, seen: list[Any]) -> None:
    """Two graphs queued, then an abort that the library mends; callbacks come from its own worker."""
    page = Page(board)
    await page.open()
    graphs = [await page.load() for _ in range(2)]
    for _ in range(2):
        events = [(await page.cl.xmedia_cl_graph_submit(graph))[0] for graph in graphs]
        told = Told(board)
        for event in events:
            for status in (COMPLETED, COMPLETED + 1):
                await page.cl.xmedia_cl_set_event_callback(event, status, told.notify)
        seen.append(await page.cl.xmedia_cl_wait_for_events(events))
        seen.append(await told.statuses(len(events)))
        for event in events:
            await page.cl.xmedia_cl_release_event(event)
    await page.close()


OUTCOMES: dict[Script, list[Any]] = {
    by_nodes: [[(2, 0), (2, 0)], [0, 1], [(5, 0x80), (5, 0)], []],
    by_library: [0, [3, 3], -56, [4, 3]],
}


async def run(world: World, script: Script, expected: list[Any]) -> None:
    board = Board(world, SimulatedNpu(floor_ms=250))  # the second job is there before the first aborts
    board.switches.on_job = scripted({2: Fault(Kind.ABORT, report=0x80)})
    seen = list[Any]()
    driver = world.spawn(lambda: script(board, seen), name="host")
    assert await driver.join(10)
    assert driver.error is None
    assert seen == expected
    assert (board.leaks(), board.faults) == ([], [])


@pytest.mark.virtual
@pytest.mark.parametrize("script", OUTCOMES)
async def test_where_time_jumps(anyio_backend: object, script: Script) -> None:
    async with VirtualWorld() as world:
        await run(world, script, OUTCOMES[script])


@pytest.mark.realtime
@pytest.mark.parametrize("script", OUTCOMES)
async def test_where_time_passes(anyio_backend: object, script: Script) -> None:
    before = set(threading.enumerate())
    async with RealWorld() as world:
        await run(world, script, OUTCOMES[script])
        for thread in set(threading.enumerate()) - before:
            if "simulated" in thread.name:
                thread.join(5)
                assert not thread.is_alive(), "nobody uses the NPU any more"


@pytest.mark.virtual
async def test_hashes_depend_on_inputs_and_need_no_graph(anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        host = NodeHost(Board(world, SimulatedNpu(answers="hash")))
        await host.prepare()
        answers = list[bytes]()
        for number in (1.0, 2.0, 1.0):
            window = await host.load()
            window.view[-(-window.code // 16) * 16] ^= 1
            window.ask(number)
            assert await host.state(WAIT, await window.submit()) == (2, 0)
            answers.append(bytes(window.view[window.outputs : window.outputs + 64]))
        assert answers[0] == answers[2] != answers[1]


def test_a_seed_repeats_its_faults() -> None:
    faults = (Fault(Kind.ABORT), Fault(Kind.HANG))
    first, second = (
        [rule(number) for number in range(200)] for rule in (seeded(5, 0.1, faults), seeded(5, 0.1, faults))
    )
    assert first == second
    assert 5 < sum(fault is not None for fault in first) < 50


@pytest.mark.virtual
async def test_the_two_ways_share_one_npu(anyio_backend: object) -> None:
    """A job of the nodes delays one of the library; and a kill of one leaves the other alone."""
    async with VirtualWorld() as world:
        board = Board(world)
        host, page = NodeHost(board), Page(board)
        await host.prepare()
        await page.open()
        graph, window = await page.load(), await host.load()
        page.ask(graph, 1)
        await window.submit()
        start = anyio.current_time()
        assert await page.cl.xmedia_cl_graph_process(graph) == 0
        assert anyio.current_time() - start == pytest.approx(0.002)
        host.kernel.die()
        assert await page.cl.xmedia_cl_graph_process(graph) == 0
        assert page.answer(graph) == 1
        assert host.kernel.descriptors == 0
        await page.close()
