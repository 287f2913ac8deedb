"""Callers that wait for one model while they owe another model's stream an ear; every bound is 1."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import final

import anyio
import pytest

from repertory.actors.context import Limits, Overflow
from repertory.models.errors import QueueFull
from repertory.models.spec import Array
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.transports.frame import Frame
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World

from .support import Memory, answer, outstanding, reconciles, sketched, tensor

CALLERS, DEPTH = 50, 3
GROUP = "sim://?service_ms=0.2&swap_ms=0.2&window=1"
TIGHT = partial(Limits, queue=1, max_in_flight=1)


@final
class Crowd:
    """Callers of three models in a ring; one who is refused tries again when somebody has an answer."""

    def __init__(self, models: list[Model]) -> None:
        self.answers = 0
        self.refusals = 0
        self._models = models
        self._refused: deque[anyio.Event] = deque()

    async def chain(self, number: int, depth: int = 0) -> None:
        """Ask A, and before its stream is read on ask B, and before that is C, and then A again."""
        model = self._models[depth % len(self._models)]
        async with anyio.create_task_group() as stream:
            if not depth:
                stream.start_soon(self._ask, model, number + 0.5)  # under way for all the time below
            await self._ask(model, number)
            if depth < DEPTH:
                await self.chain(number, depth + 1)

    async def _ask(self, model: Model, number: float) -> None:
        while True:
            try:
                found: Array = await model.infer(tensor(number))
            except QueueFull:
                self.refusals += 1
                self._refused.append(anyio.Event())
                await self._refused[-1].wait()
                continue
            assert found.tobytes() == answer(model.name, number).tobytes()
            self.answers += 1
            for _ in range(min(2, len(self._refused))):
                self._refused.popleft().set()
            return


async def _everybody_ends(world: World, overflow: Overflow) -> None:
    async with open_runtime([GROUP], world=world) as rt:
        crowd = Crowd([await rt.load(sketched(name), limits=TIGHT(overflow=overflow)) for name in "abc"])
        with anyio.fail_after(30):
            async with anyio.create_task_group() as callers:
                for number in range(CALLERS):
                    callers.start_soon(crowd.chain, number)
        _check(rt, CALLERS * (DEPTH + 2), crowd.refusals)
        assert crowd.answers == CALLERS * (DEPTH + 2)
        assert bool(crowd.refusals) is (overflow is Overflow.REFUSE)


def _check(rt: Runtime, answered: int, refused: int) -> None:
    books = rt.statistics().models.values()
    assert all(map(reconciles, books))
    assert not any(map(outstanding, books))
    assert sum(book.answered for book in books) == answered
    assert sum(book.refused.get("full", 0) for book in books) == refused


@pytest.mark.virtual
@pytest.mark.parametrize("overflow", [Overflow.WAIT, Overflow.REFUSE])
async def test_chains_through_full_queues_end_in_virtual_time(overflow: Overflow) -> None:
    await _everybody_ends(VirtualWorld(), overflow)


@pytest.mark.realtime
@pytest.mark.parametrize("overflow", [Overflow.WAIT, Overflow.REFUSE])
async def test_chains_through_full_queues_end_in_real_time(overflow: Overflow) -> None:
    await _everybody_ends(RealWorld(), overflow)


@pytest.mark.realtime
async def test_a_caller_born_in_another_models_completion_is_served() -> None:
    """The device itself, at the end of a frame of A, lets one begin who needs B; A's caller waits for it."""
    memory = Memory(window=1)
    served: list[anyio.Event] = []

    async with open_runtime([memory]) as rt, anyio.create_task_group() as tasks:
        a, b = [await rt.load(sketched(name), limits=TIGHT(overflow=Overflow.WAIT)) for name in "ab"]
        compute = memory.device.compute

        async def nested(done: anyio.Event) -> None:
            await b.infer(tensor(len(served)))
            done.set()

        def compute_and_ask(frame: Frame) -> tuple[Array, ...]:
            if frame.network.name == "a":
                served.append(anyio.Event())
                tasks.start_soon(nested, served[-1])
            return compute(frame)

        async def caller() -> None:
            await a.infer(tensor(1))
            await served[-1].wait()
            await a.infer(tensor(2))

        memory.device.compute = compute_and_ask
        with anyio.fail_after(10):
            async with anyio.create_task_group() as callers:
                for _ in range(CALLERS):
                    callers.start_soon(caller)
            for event in served:
                await event.wait()
        assert len(served) == 2 * CALLERS
        _check(rt, 4 * CALLERS, 0)
