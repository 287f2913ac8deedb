"""How busy a DSP is while work waits: the driver adds nothing to what the host's own lateness costs.

In virtual time, so these are the protocol's figures: version 2 waits for the host between two jobs, version 3
has the next one already. What Python costs beside that is in `benchmarks/dsp_occupancy.py`.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from tests.rpmsg.dsps import Board, module, tensor
from tests.runtime.support import open_virtual

CALLERS, REQUESTS = 64, 200


async def share(wire: Any, latency_ms: float, late_ms: float) -> float:
    """Return the part of the time in which a DSP with work was at a job, for a host that is always late."""

    def late(dsp: SimulatedDsp) -> None:
        dsp.faults.reader_delay = lambda: late_ms / 1000

    board = Board(SimulatedC7x(wire=wire, latency_ms=latency_ms, answers="hash"), prepare=late)
    async with open_virtual(board.source()) as rt:
        model = await rt.load(module(), name="double", warm=True)
        rest = iter(range(REQUESTS))

        async def caller() -> None:
            for number in rest:
                await model.infer(tensor(number))

        before, began = board.dsp.firmware.infer_seconds, anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for _ in range(CALLERS):
                tasks.start_soon(caller)
        return (board.dsp.firmware.infer_seconds - before) / (anyio.current_time() - began)


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("wire", "latency_ms", "late_ms", "wanted"),
    [
        (2, 1.0, 0.0, 1.0),
        (2, 1.0, 0.25, 0.8),
        (2, 5.0, 0.25, 5 / 5.25),
        (3, 1.0, 0.25, 1.0),
        (3, 1.0, 0.9, 1.0),
        (3, 1.0, 3.0, 0.5),  # two jobs in the time of one and of the host's lateness
    ],
)
async def test_only_the_hosts_lateness_idles_a_dsp(
    anyio_backend: object, wire: int, latency_ms: float, late_ms: float, wanted: float
) -> None:
    assert await share(wire, latency_ms, late_ms) == pytest.approx(wanted, abs=0.01)
