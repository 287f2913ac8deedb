"""Queue bounds and cancels by the real clock, with a thousand callers at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import final

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from repertory.actors.context import Limits, Overflow
from repertory.models.errors import QueueFull, RepertoryError, Superseded
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.runtime.statistics import ModelStatistics

from .support import Memory, Pending, outstanding, reconciles, sketched, tensor

pytestmark = pytest.mark.realtime

CALLERS, QUEUE = 1000, 10

BOUNDS = {"frames": {"queue": QUEUE}, "bytes": {"queue_bytes": QUEUE * tensor(0).nbytes}}


async def _until(happened: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not happened():
            await checkpoint()


@final
class Crowd:
    """A thousand callers of one model on a device that holds its one frame until it is let go.

    Attributes:
        most: frames that were seen waiting at once.
    """

    def __init__(self, rt: Runtime, model: Model, memory: Memory) -> None:
        self.callers = [Pending(model, number) for number in range(CALLERS)]
        self.most = 0
        self._rt = rt
        self._memory = memory

    @property
    def books(self) -> ModelStatistics:
        """The model's, at this moment."""
        books = self._rt.statistics().models["net"]
        self.most = max(self.most, books.waiting)
        assert reconciles(books)
        return books

    async def gather(self, tasks: TaskGroup) -> None:
        """Let the first caller have the device, and then all others come."""
        tasks.start_soon(self.callers[0])
        await _until(lambda: len(self._memory.ran) == 1)
        for caller in self.callers[1:]:
            tasks.start_soon(caller)
        for _ in range(50):
            await checkpoint()

    async def disperse(self) -> None:
        """Complete one frame after the other, look at the books between them, and then let all go."""
        for number in range(100):
            if not self._memory.device.held:
                return
            if number % 10 == 0:
                assert self.books.waiting <= QUEUE
            self._memory.device.release(1)
            for _ in range(4):
                await checkpoint()
        self._memory.let_go()
        while outstanding(self.books):
            for _ in range(100):
                await checkpoint()

    def ends(self) -> Counter[type[BaseException] | None]:
        """What those raised who have an end; None for an answer."""
        assert all(caller.value is None or caller.answered_by("net") for caller in self.callers)
        ended = [caller for caller in self.callers if caller.ended is not None]
        return Counter(None if caller.error is None else type(caller.error) for caller in ended)


@pytest.mark.parametrize(
    ("overflow", "bound", "ended_in"),
    [
        (Overflow.REFUSE, "frames", QueueFull),
        (Overflow.DROP_OLDEST, "frames", Superseded),
        (Overflow.DROP_OLDEST, "bytes", Superseded),
        (Overflow.WAIT, "frames", None),
    ],
)
async def test_bound_is_exact_under_a_thousand_callers(
    overflow: Overflow, bound: str, ended_in: type[RepertoryError] | None
) -> None:
    left_out = CALLERS - QUEUE - 1 if ended_in else 0
    memory = Memory(window=1, holding=True)
    async with open_runtime([memory]) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"), limits=Limits(**BOUNDS[bound], overflow=overflow))
        crowd = Crowd(rt, model, memory)
        await crowd.gather(tasks)
        assert (crowd.books.waiting, crowd.books.in_flight) == (QUEUE, 1)
        assert crowd.ends() == ({ended_in: left_out} if ended_in else {})
        await crowd.disperse()
        await _until(lambda: all(caller.ended is not None for caller in crowd.callers))
        assert crowd.ends() == ({ended_in: left_out} if ended_in else {}) | {None: CALLERS - left_out}
        assert crowd.most == QUEUE
        assert crowd.books.refused == ({"full": left_out} if ended_in is QueueFull else {})
    ran = [frame.seq for frame in memory.ran]
    newest = [1, *range(CALLERS - QUEUE + 1, CALLERS + 1)]
    assert ran == (newest if overflow is Overflow.DROP_OLDEST else list(range(1, len(ran) + 1)))
    assert memory.wasted == []


async def test_bound_on_all_models_together_is_exact_under_a_thousand_callers() -> None:
    memory = Memory(window=1, holding=True)
    async with open_runtime([memory], queue=QUEUE) as rt, anyio.create_task_group() as tasks:
        refusing = await rt.load(sketched("refusing"))
        waiting = await rt.load(sketched("waiting"), limits=Limits(overflow=Overflow.WAIT))
        callers = [Pending(model, number) for number in range(CALLERS // 2) for model in (refusing, waiting)]
        tasks.start_soon(callers[0])
        await _until(lambda: len(memory.ran) == 1)
        for caller in callers[1:]:
            tasks.start_soon(caller)
        for _ in range(50):
            await checkpoint()
        books = rt.statistics().models
        assert sum(book.waiting for book in books.values()) == QUEUE
        assert books["waiting"].waiting + books["waiting"].queueing == CALLERS // 2
        memory.let_go()
        while any(caller.ended is None for caller in callers):
            books = rt.statistics().models
            assert all(map(reconciles, books.values()))
            assert sum(book.waiting for book in books.values()) <= QUEUE
            for _ in range(20):
                await checkpoint()
        books = rt.statistics().models
        assert books["waiting"].answered == CALLERS // 2
        assert books["refusing"].refused == {"full": CALLERS // 2 - books["refusing"].answered}
        assert books["refusing"].answered <= QUEUE + 1


@pytest.mark.parametrize("swapping", [False, True])
async def test_cancel_before_the_start_frees_the_place_in_the_same_step(swapping: bool) -> None:
    memory = Memory(window=1, holding=True)
    memory.bind_seconds = 0.05
    async with open_runtime([memory]) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"), limits=Limits(queue=1))

        async def give_up(scope: anyio.CancelScope) -> None:
            await _until(lambda: rt.statistics().models["net"].waiting == 1)
            assert bool(memory.device.binds) is not swapping, "else the swap has not ended"
            scope.cancel()
            await _until(lambda: rt.statistics().models["net"].admitted == (2 if swapping else 3))
            memory.let_go()

        if not swapping:
            tasks.start_soon(model.infer, tensor(0))
            await _until(lambda: len(memory.ran) == 1)
        with anyio.CancelScope() as scope:
            tasks.start_soon(give_up, scope)
            await model.infer(tensor(1))
        assert scope.cancelled_caught
        next_one = Pending(model, 2)
        await next_one()  # in the very step in which the other one left
        assert next_one.answered_by("net")
        books = rt.statistics().models["net"]
        assert (books.cancelled, books.refused) == (1, {})
    assert [frame.seq for frame in memory.ran] == ([2] if swapping else [1, 3])


async def test_cancel_after_the_start_returns_at_once_and_keeps_the_slot_until_the_completion() -> None:
    memory = Memory(window=1, holding=True)
    async with open_runtime([memory]) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"))
        first, second = Pending(model, 1), Pending(model, 2)
        tasks.start_soon(first)
        await _until(lambda: len(memory.ran) == 1)
        tasks.start_soon(second)
        await _until(lambda: rt.statistics().models["net"].waiting == 1)
        began = anyio.current_time()
        first.scope.cancel()
        for _ in range(3):
            await checkpoint()
        assert first.ended is not None
        assert first.ended - began < 0.1
        for _ in range(100):
            await checkpoint()
        assert rt.statistics().groups["memory"].in_flight == len(memory.ran) == 1
        memory.device.release(1)
        for _ in range(5):
            await checkpoint()
        assert len(memory.ran) == 2, "the next one starts with the completion"
        memory.let_go()
        await _until(lambda: second.answered_by("net"))
