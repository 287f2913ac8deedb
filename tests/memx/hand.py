"""A world whose clock is moved by hand, and by calls that wait: everything in one thread, with no loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from repertory.transports.world import Channel, Condition, Driver, DriverLoop, Outbox, World

__all__ = ["Forever", "HandWorld"]

T = TypeVar("T")


class Forever(Exception):
    """A call waits for what never comes."""


class HandCondition(Condition):
    """Whoever waits here moves the clock on to the next event."""

    def __init__(self, world: HandWorld) -> None:
        self._world = world

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        pass

    def notify(self) -> None:
        pass

    async def wait(
        self, ready: Callable[[], T], *, timeout: float | None, next_event: Callable[[], float]
    ) -> T:
        world = self._world
        deadline = math.inf if timeout is None else world.clock + timeout
        while not (value := ready()) and world.clock < deadline:
            moment = min(deadline, next_event())
            if moment == math.inf or world.outside():
                raise Forever
            assert moment > world.clock, "an event lies after the present"
            world.clock = moment
            world.steps += 1
        return value


class HandWorld(World):
    """The world of one caller.

    Attributes:
        clock: seconds.
        steps: how often a wait moved the clock.
        outside: asked at each step of a wait, whether to give up on it.
    """

    virtual = True

    def __init__(self) -> None:
        self.clock = 100.0
        self.steps = 0
        self.now = lambda: self.clock
        self.outside: Callable[[], bool] = lambda: False

    def condition(self) -> Condition:
        return HandCondition(self)

    async def __aexit__(self, *exc_info: object) -> None: ...

    def channel(self) -> Channel[Any]:
        self._no()

    def outbox(self, deliver: Callable[[list[T]], None]) -> Outbox[T]:
        self._no()

    def spawn(
        self, loop: DriverLoop, *, name: str, on_exit: Callable[[BaseException | None], None] | None = None
    ) -> Driver:
        self._no()

    def working(self, calls: int) -> None:
        self._no()

    def _no(self) -> NoReturn:
        raise AssertionError("a simulator needs none of this")
