"""64 callers on two DSPs: every answer is that of its own input, however late the host reads."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest
import sniffio

import repertory
from repertory.runtime.runtime import Runtime
from repertory.transports.rpmsg import session
from repertory.transports.rpmsg.dsp import Dsp
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from repertory.transports.rpmsg.workspace import Depth, FixedWorkspace
from tests.rpmsg.dsps import Board, answer, module, tensor
from tests.runtime.support import open_virtual

CALLERS = 64
WIRES = pytest.mark.parametrize("wire", [2, 3])


def late_reader(seed: int, most: float = 0.005) -> Any:
    """Let the host see each reply at random up to `most` seconds late."""
    draw = random.Random(seed)

    def prepare(dsp: SimulatedDsp) -> None:
        dsp.faults.reader_delay = lambda: draw.uniform(0, most)

    return prepare


def boards(wire: Any, **options: Any) -> list[Board]:
    params = SimulatedC7x(wire=wire, answers="hash", latency_ms=1.0, **options)
    return [Board(params, prepare=late_reader(seed)) for seed in range(2)]


async def wrong(rt: Runtime, requests: int, *models: str) -> int:
    """Let 64 callers put distinct inputs on the models in turn; return how many answers are wrong."""
    handles = {name: await rt.load(module(name), name=name) for name in models}
    numbers = iter(range(requests))
    wrongs = 0

    async def caller() -> None:
        nonlocal wrongs
        for number in numbers:
            name = models[number % len(models)]
            found = await handles[name].infer(tensor(number))
            wrongs += found.tobytes() != answer(number, name)

    async with anyio.create_task_group() as tasks:
        for _ in range(CALLERS):
            tasks.start_soon(caller)
    return wrongs


@pytest.mark.virtual
@WIRES
async def test_ten_thousand_requests_on_two_dsps(anyio_backend: object, wire: int) -> None:
    """All of them with each version of the wire on one backend, and a part on the other."""
    here = "asyncio" if wire == 2 else "trio"
    requests = 10_000 if sniffio.current_async_library() == here else 1_000
    pair = boards(wire)
    async with open_virtual(*(board.source(f"dsp {at}") for at, board in enumerate(pair))) as rt:
        assert await wrong(rt, requests, "double") == 0
        statistics = rt.statistics()
    assert statistics.models["double"].answered == requests
    assert [board.dsp.firmware.faults for board in pair] == [[], []]
    assert min(board.dsp.firmware.jobs_completed for board in pair) > requests * 0.4
    assert [board.incarnations for board in pair] == [1, 1]


@pytest.mark.virtual
@WIRES
async def test_two_models_swap_on_each(anyio_backend: object, wire: int) -> None:
    pair = boards(wire, load_ms=2.0)
    async with open_virtual(
        *(board.source(f"dsp {at}") for at, board in enumerate(pair)), policy="rotation"
    ) as rt:
        assert await wrong(rt, 1_000, "double", "square") == 0
        swaps = [group.swaps for group in rt.statistics().groups.values()]
    assert min(swaps) > 2
    assert [board.dsp.firmware.faults for board in pair] == [[], []]
    assert [board.dsp.firmware.loaded for board in pair] == [[], []]
    assert [board.dsp.leaks for board in pair] == [[], []]


@pytest.mark.virtual
async def test_sending_early_on_version_2_gives_wrong_answers(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the rule of one outstanding job is there for, and that the tests above would notice."""

    def early(dsp: Dsp, _client: object, *, pipelined: bool) -> FixedWorkspace:
        workspace = FixedWorkspace(dsp, [Depth(3, 1)])
        arrange = workspace.arrange

        def twice(need: Any) -> None:
            arrange(need)
            workspace.areas = workspace.areas[:1] * 2

        monkeypatch.setattr(workspace, "arrange", twice)
        return workspace

    monkeypatch.setattr(session, "_workspace", early)
    monkeypatch.setattr("repertory.transports.rpmsg.device.WINDOWS", {False: 3, True: 3}, raising=True)
    pair = boards(2)
    async with open_virtual(*(board.source(f"dsp {at}") for at, board in enumerate(pair))) as rt:
        assert await wrong(rt, 1_000, "double") > 100


@pytest.mark.realtime
@WIRES
async def test_in_real_time_over_sockets(anyio_backend: object, wire: int) -> None:
    pair = boards(wire)
    sources: list[Any] = [board.source(f"dsp {at}") for at, board in enumerate(pair)]
    async with repertory.open_runtime(sources) as rt:
        assert await wrong(rt, 500, "double") == 0
    assert [board.dsp.firmware.faults for board in pair] == [[], []]
    assert [board.dsp.leaks for board in pair] == [[], []]
