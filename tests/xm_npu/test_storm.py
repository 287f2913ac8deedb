"""Everything at once: a thousand callers, five models in room for three, cancels, deadlines and faults."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Final, final

import anyio
import pytest

from repertory.models.errors import DeadlineExceeded, DeadlineUnreachable, DeviceError
from repertory.models.program import Artifact
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.runtime.statistics import ModelStatistics
from repertory.transports.world import World
from repertory.transports.xm_npu.cl.npu import ClNpu
from repertory.transports.xm_npu.errors import NpuAborted
from repertory.transports.xm_npu.npu import Npu
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.faults import Fault, Kind, seeded
from tests.runtime.support import open_virtual, outstanding, reconciles

from .boards import WAYS, BoardSource, Via, affine, answer, question
from .cl.stub import open_stub

FACTORS: Final = (2, 3, 5, 7, 11)
PADDING: Final = 20_000
CALLERS: Final = 500
"""By each way: a thousand on each backend."""
FAULTS: Final[dict[Via, list[Fault]]] = {
    "cl": [Fault(Kind.ABORT), Fault(Kind.SLOW)],
    "ioctl": [
        Fault(kind) for kind in (Kind.ABORT, Kind.HANG, Kind.LOST_INTERRUPT, Kind.SLOW, Kind.FOREIGN_RESET)
    ],
}


def _room(via: Via) -> float:
    """Return megabytes that hold any three of the models, and no four."""
    read = BoardSource(via).reading()
    programs = [read(Artifact("x.xmm", affine(factor, padding=PADDING))) for factor in FACTORS]
    sizes, scratch = sorted(each.footprint for each in programs), max(each.scratch for each in programs)
    room = sum(sizes[-3:]) + scratch
    assert sum(sizes[:4]) + scratch > room
    return room / 2**20


@final
class Storm:
    """One run.

    Args:
        seed: of all that is drawn.
        hurry: how long callers wait that give up, in seconds.

    Attributes:
        ends: how many requests ended in each way; `right` and `wrong` are answers.
    """

    def __init__(self, seed: int, *, hurry: float) -> None:
        self.ends = Counter[str]()
        self._draw = random.Random(seed)
        self._hurry = hurry

    async def run(self, rt: Runtime, source: BoardSource, callers: int) -> None:
        """Let all callers ask at about the same time; at the end the NPU serves every model."""
        models = [await rt.load(affine(each, padding=PADDING), name=str(each)) for each in FACTORS]
        async with anyio.create_task_group() as tasks:
            for number in range(1, callers + 1):
                tasks.start_soon(self._call, self._draw.choice(models), number)
        source.board.switches.on_job = None
        for model in models:
            assert await self._ask(model, 0, None) == "right"
        statistics = rt.statistics()
        assert all(map(_settled, statistics.models.values()))
        assert sum(each.admitted for each in statistics.models.values()) >= callers // 2
        (group,) = statistics.groups.values()
        assert group.evictions >= len(FACTORS) - 3

    async def _call(self, model: Model, number: int) -> None:
        kind = number % 6
        patience = self._draw.uniform(0, self._hurry) if kind < 2 else math.inf
        timeout = self._draw.uniform(0.01, self._hurry) if kind == 2 else None
        await anyio.sleep(self._draw.uniform(0, self._hurry / 4))
        with anyio.move_on_after(patience) as scope:
            self.ends[await self._ask(model, number, timeout)] += 1
        if scope.cancelled_caught:
            self.ends["cancelled"] += 1

    async def _ask(self, model: Model, number: int, timeout: float | None) -> str:
        try:
            found = await model.infer(question(number), timeout=timeout)
        except (DeviceError, DeadlineExceeded, DeadlineUnreachable) as error:
            return type(error).__name__
        return "right" if found.tobytes() == answer(int(model.name), number) else "wrong"


def _settled(statistics: ModelStatistics) -> bool:
    return reconciles(statistics) and outstanding(statistics) == 0


def _faulty(via: Via, seed: int, rate: float) -> BoardSource:
    def prepare(board: Board) -> None:
        board.switches.on_job = seeded(seed, rate, FAULTS[via])

    return BoardSource(via, prepare, mmz_mb=_room(via), latency_ms=2.0, run_bound=0.2)


@pytest.mark.virtual
@WAYS
async def test_hundreds_of_callers(anyio_backend: object, via: Via) -> None:
    source, storm = _faulty(via, 3, 0.03), Storm(3, hurry=0.4)
    async with open_virtual(source) as rt:
        await storm.run(rt, source, CALLERS)
    ends = storm.ends
    assert ends["wrong"] == 0
    assert ends.total() == CALLERS
    assert ends["right"] > CALLERS / 2
    assert min(ends["cancelled"], ends["DeadlineExceeded"] + ends["DeadlineUnreachable"]) > 10, ends
    assert ends[NpuAborted.__name__] > 0
    assert source.incarnations == 1
    source.check_clean()


def _stubbed(board: Board, world: World) -> Npu:
    return ClNpu(open_stub(board.library()), world)


@WAYS
async def test_a_hundred_callers_in_real_time(anyio_backend: object, via: Via) -> None:
    """In threads: the binding over C by the one way, system calls by the other."""
    source = BoardSource(
        via,
        lambda board: setattr(board.switches, "on_job", seeded(5, 0.05, [Fault(Kind.ABORT)])),
        connect=_stubbed if via == "cl" else None,
        mmz_mb=_room(via),
        latency_ms=1.0,
    )
    storm = Storm(4, hurry=0.2)
    async with open_runtime([source]) as rt:
        await storm.run(rt, source, 100)
    assert storm.ends["wrong"] == 0
    assert storm.ends.total() == 100
    assert storm.ends["right"] > 30
    assert source.incarnations == 1
    source.check_clean()
