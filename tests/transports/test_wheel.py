"""The wheel is never early, at most a tick late, and wakes only for what is earlier."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from types import TracebackType
from typing import Self, final

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from repertory.transports.loop import Slot, current_loop
from repertory.transports.wheel import TICK, Alarm, Wheel

pytestmark = pytest.mark.virtual

ROUNDING = 1e-9
"""Seconds that a virtual clock's sums may be off."""


@final
class Running:
    """A wheel that runs inside the block, what it told and when, and how often it went to sleep."""

    def __init__(self) -> None:
        self.loop = current_loop()
        self._slot, self.loop.slot = self.loop.slot, self._counted
        self.wheel = Wheel(self.loop)
        self.began = self.loop.now()
        self.sleeps = 0
        self.told: list[tuple[object, float]] = []
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self.wheel.run)
        await self.steps()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    async def steps(self) -> None:
        """Let the wheel do what it can do now."""
        for _ in range(5):
            await checkpoint()

    def alarm(self, name: object, when: float, act: Callable[[], object] = lambda: None) -> Alarm:
        """Put something on the wheel, `when` seconds after the beginning."""

        def told() -> None:
            self.told.append((name, self.loop.now() - self.began))
            act()

        alarm = Alarm(told)
        self.wheel.add(alarm, self.began + when)
        return alarm

    async def at(self, when: float) -> list[object]:
        """Wait until that time; return who was told by then."""
        await anyio.sleep_until(self.began + when)
        await self.steps()
        return [name for name, _ in self.told]

    def _counted(self) -> Slot:
        self.sleeps += 1
        return self._slot()


async def test_thousands_are_told_in_time(anyio_backend: object) -> None:
    draw = random.Random(4)
    assert current_loop().now() == 0
    near = [math.nextafter(n * TICK, draw.choice((-1, 1)) * math.inf) for n in range(1, 500)]
    times = [draw.uniform(0, 20) for _ in range(5000)] + near
    delays: list[float] = []
    async with Running() as running:
        now = running.loop.now
        for when in times:
            running.wheel.add(Alarm(lambda when=when: delays.append(now() - when)), when)  # type: ignore[misc]
        assert len(running.wheel) == len(times)
        await running.at(21)
        assert len(running.wheel) == 0
    assert len(delays) == len(times)
    assert min(delays) >= 0
    assert max(delays) <= TICK + ROUNDING


async def test_what_is_due_already_is_told_at_once(anyio_backend: object) -> None:
    async with Running() as running:
        await running.at(1)
        running.alarm("past", 0.5)
        assert await running.at(1 + TICK) == ["past"]


async def test_infinity_is_never(anyio_backend: object) -> None:
    async with Running() as running:
        running.alarm("never", math.inf)
        assert len(running.wheel) == 0
        assert await running.at(1e6) == []


async def test_what_was_taken_off_is_not_told(anyio_backend: object) -> None:
    async with Running() as running:
        gone = running.alarm("gone", 1)
        running.alarm("stays", 1)
        running.wheel.discard(gone)
        running.wheel.discard(gone)
        assert gone.bucket is None
        assert await running.at(2) == ["stays"]
        running.wheel.discard(gone)


async def test_one_that_is_told_may_take_off_another_of_its_tick(anyio_backend: object) -> None:
    async with Running() as running:
        alarms: list[Alarm] = []

        def take_off_all() -> None:
            for alarm in alarms:
                running.wheel.discard(alarm)

        alarms += [running.alarm(number, 1, take_off_all) for number in range(10)]
        assert len(await running.at(2)) == 1


async def test_one_that_is_told_may_put_itself_on_again(anyio_backend: object) -> None:
    async with Running() as running:

        def again() -> None:
            if len(running.told) < 3:
                running.wheel.add(alarm, running.loop.now() + 1)

        alarm = running.alarm("again", 1, again)
        assert await running.at(3.5) == ["again"] * 3


async def test_an_earlier_one_wakes_it_and_a_later_one_does_not(anyio_backend: object) -> None:
    async with Running() as running:
        assert running.sleeps == 1
        running.alarm("first", 10)
        await running.steps()
        assert running.sleeps == 2
        for later in range(1000):
            running.alarm("later", 10 + later)
        await running.steps()
        assert running.sleeps == 2
        running.alarm("earlier", 5)
        await running.steps()
        assert running.sleeps == 3
        assert await running.at(6) == ["earlier"]


async def test_a_burst_wakes_it_once(anyio_backend: object) -> None:
    async with Running() as running:
        for number in range(1000, 0, -1):
            running.alarm(number, number)
        await running.steps()
        assert running.sleeps == 2


async def test_an_emptied_tick_is_passed_over(anyio_backend: object) -> None:
    async with Running() as running:
        running.wheel.discard(running.alarm("gone", 1))
        running.alarm("stays", 3)
        assert await running.at(2) == []
        assert await running.at(4) == ["stays"]
        running.wheel.discard(running.alarm("gone", 5))
        assert len(running.wheel) == 0
