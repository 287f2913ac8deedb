"""Several graphs in flight under many callers: no cross-talk, and an abort hits whom it must."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest

from repertory.models.errors import DeviceError
from repertory.runtime.model import Model
from repertory.transports.xm_npu.errors import NpuAborted
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.faults import Fault, Kind, scripted
from tests.runtime.support import open_virtual, reconciles

from .boards import WAYS, BoardSource, Via, affine, answer, question

CALLERS, REQUESTS = 64, 8
FACTORS = (2, 3, 5)
REPORT = 0x010400  # rwddr_out_of_bound, dma_addr

pytestmark = pytest.mark.virtual


async def _asked(models: list[Model]) -> Counter[str]:
    """Let all callers ask all models in turn; return how the requests ended."""
    ends = Counter[str]()

    async def ask(caller: int) -> None:
        for at in range(REQUESTS):
            model, factor = models[(caller + at) % 3], FACTORS[(caller + at) % 3]
            number = caller * REQUESTS + at + 1
            try:
                found = await model.infer(question(number))
            except NpuAborted as error:
                ends["abort", *error.names] += 1  # type: ignore[index]
            except DeviceError as error:
                ends[repr(error)] += 1
            else:
                ends["right" if found.tobytes() == answer(factor, number) else "wrong"] += 1

    async with anyio.create_task_group() as tasks:
        for caller in range(CALLERS):
            tasks.start_soon(ask, caller)
    return ends


@WAYS
async def test_three_graphs_are_in_flight_at_once(anyio_backend: object, via: Via) -> None:
    depths: list[int] = []

    def prepare(board: Board) -> None:
        board.switches.on_job = lambda _number: depths.append(board.machine.core.depth)

    source = BoardSource(via, prepare, latency_ms=2.0)
    async with open_virtual(source) as rt:
        models = [await rt.load(affine(factor), name=f"times{factor}") for factor in FACTORS]
        assert await _asked(models) == {"right": CALLERS * REQUESTS}
        (group,) = rt.statistics().groups.values()
        assert group.swaps == len(FACTORS)
    behind = len(FACTORS) - 1
    assert sum(depth == behind for depth in depths) > CALLERS * REQUESTS // 2, "mostly one of each is there"
    source.check_clean()


@WAYS
async def test_an_abort_hits_one_job_and_the_others_are_answered(anyio_backend: object, via: Via) -> None:
    """The culprit's caller gets the report by name, where the way tells it; the NPU serves again."""

    def prepare(board: Board) -> None:
        board.switches.on_job = scripted({100: Fault(Kind.ABORT, report=REPORT)})

    source = BoardSource(via, prepare, latency_ms=2.0)
    async with open_virtual(source) as rt:
        models = [await rt.load(affine(factor), name=f"times{factor}") for factor in FACTORS]
        ends = await _asked(models)
        assert all(reconciles(statistics) for statistics in rt.statistics().models.values())
    names = ("dma_addr", "rwddr_out_of_bound") if via == "ioctl" else ()
    assert ends == {"right": CALLERS * REQUESTS - 1, ("abort", *names): 1}
    assert source.incarnations == 1, "the device was never lost"
    source.check_clean()
