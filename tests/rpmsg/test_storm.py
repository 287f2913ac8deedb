"""Everything at once: callers that give up, deadlines, two models, faults of the link, restarts."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import final

import anyio
import pytest

from repertory.models.errors import DeadlineExceeded, DeadlineUnreachable, DeviceError
from repertory.runtime.model import Model
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.faults import Fault, Kind, Seen
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from tests.rpmsg.dsps import Board, answer, module, tensor
from tests.runtime.support import open_virtual, reconciles

STORMS = 12
CALLERS, REQUESTS = 8, 12
ANSWER = 0x1021
KINDS = (
    Kind.DROP,
    Kind.DELAY,
    Kind.DUPLICATE,
    Kind.STALE,
    Kind.WRONG_TYPE,
    Kind.TRUNCATE,
    Kind.MANY_OUTPUTS,
)


@final
class Storm:
    """One run, the same for the same seed.

    Attributes:
        ends: how many requests ended in each way; `right` and `wrong` are answers.
    """

    def __init__(self, seed: int) -> None:
        self.ends: Counter[str] = Counter()
        self._draw = random.Random(seed)
        self._numbers = itertools.count()
        params = SimulatedC7x(
            wire=3 if seed // 2 % 2 else 2, answers="hash", latency_ms=4.0, load_ms=1.0, coherent=seed % 3 > 0
        )
        self._board = Board(params, run_bound=0.3, prepare=self._bend)

    async def run(self) -> None:
        board = self._board
        async with open_virtual(board.source()) as rt:
            models = [await rt.load(module(name), name=name) for name in ("double", "square")]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._trouble)
                for _ in range(CALLERS):
                    tasks.start_soon(self._call, models)
            board.dsp.faults.on_reply = None
            for model in models:
                assert (await model.infer(tensor(9999))).tobytes() == answer(9999, model.name)
            assert all(reconciles(statistics) for statistics in rt.statistics().models.values())
        assert self.ends["wrong"] == 0
        assert self.ends.total() == CALLERS * REQUESTS
        assert (board.dsp.leaks, board.dsp.firmware.loaded, board.dsp.firmware.faults) == ([], [], [])

    def _bend(self, dsp: SimulatedDsp) -> None:
        dsp.faults.on_reply = self._fault

    def _fault(self, seen: Seen) -> Fault | None:
        if self._draw.random() > 0.03 or seen.opcode != ANSWER:
            return None
        return Fault(self._draw.choice(KINDS), self._draw.uniform(0, 0.2))

    async def _trouble(self) -> None:
        dsp = self._board.dsp
        happenings: list[Callable[[], None]] = [dsp.restart, partial(dsp.stop, 1.0), partial(dsp.crash, 2.0)]
        for _ in range(self._draw.randint(0, 3)):
            await anyio.sleep(self._draw.uniform(0.02, 0.3))
            self._draw.choice(happenings)()

    async def _call(self, models: list[Model]) -> None:
        for _ in range(REQUESTS):
            patience = self._draw.choice([math.inf, math.inf, self._draw.uniform(0, 0.1)])
            with anyio.move_on_after(patience) as scope:
                self.ends[await self._ask(self._draw.choice(models), next(self._numbers))] += 1
            if scope.cancelled_caught:
                self.ends["cancelled"] += 1

    async def _ask(self, model: Model, number: int) -> str:
        try:
            found = await model.infer(tensor(number), timeout=self._draw.choice([None, None, 0.05]))
        except (DeviceError, DeadlineExceeded, DeadlineUnreachable) as error:
            return type(error).__name__
        return "right" if found.tobytes() == answer(number, model.name) else "wrong"


@pytest.mark.virtual
async def test_storms(anyio_backend: object) -> None:
    ends: Counter[str] = Counter()
    for seed in range(STORMS):
        storm = Storm(seed)
        await storm.run()
        ends += storm.ends
    assert ends["right"] > STORMS * CALLERS * REQUESTS / 2
    assert {"cancelled", "DeadlineExceeded", "DeviceError"} <= set(ends)
