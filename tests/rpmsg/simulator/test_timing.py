"""One task, first in first out: when jobs begin and end, to the last bit of the clock."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from repertory.transports.virtual import VirtualWorld

from .host import INFER, LARGE, PING, STATUS, Host
from .modules import double

pytestmark = pytest.mark.virtual
X = np.array([[1, 2, 3, 4]], np.float32)


@asynccontextmanager
async def host(**params: Any) -> AsyncGenerator[tuple[Host, Callable[[], float]]]:
    async with VirtualWorld() as world:
        told: dict[str, Any] = {"answers": "hash", "latency_ms": 4.0} | params
        dsp = SimulatedDsp(SimulatedC7x(**told), world)
        yield await Host(dsp, 2).open(), world.now


async def test_jobs_follow_each_other_without_a_gap() -> None:
    async with host() as (h, now):
        handle = await h.loaded(double())
        start, body = now(), h.job(handle, h.put([X]))
        seqs = [h.send(INFER, body) for _ in range(50)]
        for place, seq in enumerate(seqs):
            assert (await h.reply()).seq == seq
            assert now() - start == pytest.approx(0.004 * (place + 1), abs=1e-12)
        assert h.dsp.firmware.infer_seconds == pytest.approx(0.2)


async def test_a_late_look_costs_no_time() -> None:
    async with host() as (h, now):
        handle = await h.loaded(double())
        start, body = now(), h.job(handle, h.put([X]))
        for _ in range(10):
            h.send(INFER, body)
        assert await h.endpoint.receive(0) is None
        h.dsp.faults.reader_delay = lambda: 1.0
        for place in range(10):
            await h.reply()
            assert now() - start == pytest.approx(1 + 0.004 * (place + 1), abs=1e-12)
        assert h.dsp.firmware.occupied(now()) - h.dsp.firmware.load_seconds == pytest.approx(0.04)


async def test_even_a_ping_waits_behind_a_job() -> None:
    async with host() as (h, now):
        handle = await h.loaded(double())
        start = now()
        h.send(INFER, h.job(handle, h.put([X])))
        h.send(PING)
        assert [(await h.reply()).kind for _ in range(2)] == [0x1021, 0x1001]
        assert now() - start == pytest.approx(0.004, abs=1e-12)
        await h.ask(STATUS)
        assert now() - start == pytest.approx(0.004, abs=1e-12), "which takes no time itself"


async def test_a_load_takes_its_fixed_time_and_the_bytes() -> None:
    async with host(load_ms=20, load_mbs=2) as (h, now):
        start = now()
        await h.loaded(double())
        assert now() - start == pytest.approx(0.02 + len(double()) / 2e6, abs=1e-12)
        start = now()
        assert (await h.load(b"no module" * 8)).status == -9
        assert now() == start
        assert h.dsp.firmware.load_seconds == pytest.approx(0.02 + len(double()) / 2e6)


@pytest.mark.parametrize(("repeat", "runs"), [(0, 1), (1, 1), (5, 5), (0xFFFF, 0xFFFF), (0x10002, 2)])
@pytest.mark.parametrize("large", [False, True])
async def test_repeats(repeat: int, runs: int, large: bool) -> None:
    async with host(tsc_mhz=800) as (h, now):
        handle = await h.loaded(double())
        start, inputs = now(), h.put([X])
        body = h.large_job(handle, inputs, repeat=repeat) if large else h.job(handle, inputs, repeat=repeat)
        reply = await h.ask(LARGE if large else INFER, body)
        assert now() - start == pytest.approx(0.004 * runs, abs=1e-9)
        assert h.inference(reply).cycles == 3_200_000 * (runs if large else 1)
        assert h.dsp.firmware.jobs_completed == 1


async def test_a_twin_tells_its_time() -> None:
    async with host() as (h, now):
        handle = await h.loaded(double(0.25))
        start = now()
        await h.run(handle, X)
        assert now() - start == pytest.approx(0.25, abs=1e-12)


async def test_occupied_is_when_something_ran_or_waited() -> None:
    async with host() as (h, now):
        handle = await h.loaded(double())
        loaded, body = h.dsp.firmware.occupied(now()), h.job(handle, h.put([X]))
        for _ in range(3):
            h.send(INFER, body)
            h.send(INFER, body)
            await h.reply()
            await h.reply()
            assert await h.endpoint.receive(0.1) is None
        assert h.dsp.firmware.occupied(now()) - loaded == pytest.approx(6 * 0.004)
        h.send(INFER, body)
        assert await h.endpoint.receive(0.003) is None
        assert h.dsp.firmware.occupied(now()) - loaded == pytest.approx(6 * 0.004 + 0.003)


async def test_the_same_run_gives_the_same_bytes() -> None:
    runs: list[list[bytes | None]] = []
    for _ in range(2):
        async with host(answers="twin", prints="x") as (h, _now):
            handle = await h.loaded(double())
            body = h.job(handle, h.put([X]))
            for _ in range(5):
                h.send(INFER, body)
            runs.append([await h.endpoint.receive(1) for _ in range(5)])
    assert runs[0] == runs[1]
