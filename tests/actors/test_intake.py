"""What waits in all models together never exceeds its bound, and nobody's line stands still for ever."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from typing import final

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from repertory.actors.context import ModelContext
from repertory.actors.intake import Intake
from repertory.actors.limits import Limits, Overflow
from repertory.models.errors import DeviceLost, QueueFull
from repertory.transports.frame import Frame, Outcome
from repertory.transports.loop import current_loop
from repertory.transports.wheel import Wheel

from .books import NETWORK, frame_of

pytestmark = pytest.mark.virtual


@final
class Hall:
    """Contexts that share an intake, and callers of theirs."""

    def __init__(self, tasks: TaskGroup, intake: Intake, seed: int = 0) -> None:
        self.intake = intake
        self.tasks = tasks
        self.random = random.Random(seed)
        self.contexts: list[ModelContext] = []
        self.frames: list[Frame] = []
        self.started: list[Frame] = []
        self.seated: list[str] = []
        self._loop = current_loop()
        self._wheel = Wheel(self._loop)

    def context(self, overflow: Overflow, queue: int = 1024) -> ModelContext:
        name = f"{len(self.contexts)}"
        wanted = Limits(overflow=overflow, queue=queue)
        context = ModelContext(name, NETWORK, wanted, loop=self._loop, wheel=self._wheel, intake=self.intake)
        self.contexts.append(context)
        return context

    def offer(self, context: ModelContext, nbytes: int = 1) -> Frame:
        frame = frame_of(nbytes=nbytes)
        frame.owner = context
        context.offer(frame, expires=frame.deadline)
        self.frames.append(frame)
        return frame

    async def call(self, context: ModelContext, nbytes: int = 1) -> None:
        """Ask as `Model.infer` does."""
        if context.limits.overflow is Overflow.WAIT:
            await context.places.room(nbytes)
        try:
            self.offer(context, nbytes)
        except QueueFull:
            return
        self.seated.append(context.name)

    def act(self) -> None:
        """Do something at random."""
        context = self.random.choice(self.contexts)
        match self.random.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                self.tasks.start_soon(self.call, context, self.random.randint(0, 12))
            case 5 | 6 | 7:
                frame = context.take(0)
                if frame is not None:
                    self.started.append(frame)
            case 8:
                self.frames = [frame for frame in self.frames if frame.outcome is None]
                if self.frames:
                    self.random.choice(self.frames).settle(Outcome.CANCELLED)
            case _:
                if self.started:
                    self.started.pop().settle(Outcome.ANSWERED, ())

    def check(self) -> None:
        """Nothing is above a bound, and the sums are those of the parts."""
        waiting = sum(context.state.waiting for context in self.contexts)
        assert self.intake.count == waiting <= self.intake.queue
        assert 0 <= self.intake.nbytes <= self.intake.queue_bytes
        for context in self.contexts:
            assert 0 <= context.state.waiting <= context.limits.queue
            ends = sum(context.outcomes)
            assert context.admitted == ends + context.state.waiting + context.in_flight


@pytest.fixture
async def tasks() -> AsyncGenerator[TaskGroup, None]:
    async with anyio.create_task_group() as group:
        yield group
        group.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(4))
async def test_no_interleaving_admits_more_than_the_bounds(tasks: TaskGroup, seed: int) -> None:
    hall = Hall(tasks, Intake(6, 40), seed)
    for overflow in (*Overflow, *Overflow):
        hall.context(overflow, queue=4)
    fullest = 0
    for _ in range(1500):
        hall.act()
        hall.check()
        fullest = max(fullest, hall.intake.count)
        if hall.random.random() < 0.3:
            await checkpoint()
            hall.check()
    assert fullest == 6
    for context in hall.contexts:
        for _ in range(1000):
            if context.take(0) is None:
                break
    for _ in range(5000):
        await checkpoint()
        for context in hall.contexts:
            context.take(0)
    hall.check()
    assert not any(len(context.places) for context in hall.contexts), "whoever waited got a place"


async def test_the_message_says_whose_bound_it_was(tasks: TaskGroup) -> None:
    hall = Hall(tasks, Intake(3, 100))
    first, second = hall.context(Overflow.REFUSE, queue=2), hall.context(Overflow.REFUSE)
    hall.offer(first)
    hall.offer(first)
    with pytest.raises(QueueFull, match=r"^0: 2 frames wait, 2 bytes .* the bounds are 2 and"):
        hall.offer(first)
    with pytest.raises(QueueFull, match=r"2 frames of all models wait, 2 bytes .* runtime are 3 and 100"):
        hall.offer(second, nbytes=99)
    hall.offer(second)
    with pytest.raises(QueueFull, match=r"^1: 3 frames of all models wait"):
        hall.offer(second)


async def test_newest_frame_takes_the_place_of_its_own_model_alone(tasks: TaskGroup) -> None:
    hall = Hall(tasks, Intake(3, 10))
    other, latest = hall.context(Overflow.REFUSE), hall.context(Overflow.DROP_OLDEST)
    kept = hall.offer(other, nbytes=2)
    first, second = hall.offer(latest, nbytes=2), hall.offer(latest, nbytes=2)
    third = hall.offer(latest, nbytes=2)
    assert first.outcome is Outcome.SUPERSEDED
    with pytest.raises(QueueFull):
        hall.offer(latest, nbytes=9)
    assert (second.outcome, third.outcome, kept.outcome) == (None, None, None)
    hall.offer(latest, nbytes=8)
    assert (second.outcome, third.outcome, kept.outcome) == (Outcome.SUPERSEDED, Outcome.SUPERSEDED, None)


async def test_lines_of_models_take_turns(tasks: TaskGroup) -> None:
    hall = Hall(tasks, Intake(1))
    full, *others = hall.context(Overflow.REFUSE), hall.context(Overflow.WAIT), hall.context(Overflow.WAIT)
    hall.offer(full)
    for context in others:
        for _ in range(20):
            tasks.start_soon(hall.call, context)
    await anyio.sleep(0.001)
    assert hall.seated == []
    for _ in range(20):
        for context in hall.contexts:
            context.take(0)
        await anyio.sleep(0.001)
    assert len(hall.seated) == 20
    assert min(hall.seated.count(context.name) for context in others) >= 3, "neither line stood still"


async def test_frames_that_come_back_and_those_of_a_closed_model_are_counted(tasks: TaskGroup) -> None:
    hall = Hall(tasks, Intake(2))
    context, waiting = hall.context(Overflow.REFUSE), hall.context(Overflow.WAIT)
    hall.offer(context)
    frame = context.take(0)
    assert frame is not None
    hall.offer(context)
    hall.offer(context)
    assert context.undo(frame)
    assert hall.intake.count == 3
    tasks.start_soon(hall.call, waiting)
    await anyio.sleep(0.001)
    assert hall.seated == []
    context.close(lambda: DeviceLost("gone", family="group"))
    await anyio.sleep(0.001)
    assert hall.seated == [waiting.name]
    assert hall.intake.count == 1
