"""Deadlines by the real clock, while the device is busy with one long job."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from repertory.models.errors import DeadlineExceeded
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.transports.device import Device
from repertory.transports.simulated import SimulatedDevice, SimulatedOptions
from repertory.transports.world import World

from .support import outstanding, reconciles, sketched, tensor

pytestmark = pytest.mark.realtime

JOB = 2.0
PROMPT = 0.010
"""Seconds after a deadline within which its caller is to know."""

WAITING = 40


async def test_callers_learn_of_their_deadline_within_10_ms_while_a_job_of_2_s_runs() -> None:
    """A slow moment of the machine may hit some, so nine of ten count, and a loose bound for all."""
    devices: list[SimulatedDevice] = []
    late: list[float] = []

    def device(world: World) -> Device:
        devices.append(SimulatedDevice(world, SimulatedOptions(service_ms=JOB * 1000, window=1, swap_ms=0)))
        return devices[-1]

    async def ask(model: Model, number: int, deadline: float) -> None:
        with pytest.raises(DeadlineExceeded):
            await model.infer(tensor(number), deadline=deadline)
        late.append(anyio.current_time() - deadline)

    async with open_runtime([device]) as rt:
        model = await rt.load(sketched("net"))
        began = anyio.current_time()
        async with anyio.create_task_group() as callers:
            callers.start_soon(ask, model, 0, began + 0.35)  # the job's own caller
            while not rt.statistics().groups["device"].in_flight:
                await checkpoint()
            for number in range(1, WAITING):
                callers.start_soon(ask, model, number, began + 0.1 + 0.3 * number / WAITING)
        assert anyio.current_time() - began < JOB / 2, "nobody waited for the job"
        assert rt.statistics().groups["device"].in_flight == 1, "which goes on"
        books = rt.statistics().models["net"]
        assert (books.expired, outstanding(books)) == (WAITING, 0)
        assert reconciles(books)
        await devices[0].close(bound=1.0)  # the job need not be seen to its end

    assert min(late) >= 0
    assert sorted(late)[WAITING * 9 // 10 - 1] <= PROMPT
    assert max(late) < 10 * PROMPT
