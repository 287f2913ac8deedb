"""The real world: a thread for each driver loop, and the machine's clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, final

import anyio
from anyio.abc import TaskGroup

from .loop import Loop, Slot
from .world import Channel, ChannelClosed, Condition, Driver, DriverLoop, Outbox, World, drive

__all__ = ["HAND_OVER", "RealChannel", "RealCondition", "RealWorld"]

T = TypeVar("T")

HAND_OVER = 0.001
"""Seconds between the event loop's hand-overs of the GIL while driver calls are out."""


@final
class RealCondition(Condition):
    """A threading condition."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._condition = threading.Condition(threading.Lock())

    def __enter__(self) -> None:
        self._condition.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self._condition.release()

    def notify(self) -> None:
        self._condition.notify_all()

    async def wait(
        self, ready: Callable[[], T], *, timeout: float | None, next_event: Callable[[], float]
    ) -> T:
        deadline = float("inf") if timeout is None else self._now() + timeout
        with self._condition:
            while not (value := ready()):
                now = self._now()
                if now >= deadline:
                    break
                pause = min(deadline, next_event()) - now
                self._condition.wait(None if pause == float("inf") else max(pause, 0.0))
            return value


@final
class RealChannel(Channel[T], Generic[T]):
    """A queue whose `get` waits in C, so that an idle driver costs nothing."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[T | ChannelClosed] = SimpleQueue()

    def put(self, item: T) -> None:
        self._queue.put(item)

    def close(self) -> None:
        self._queue.put(ChannelClosed())

    async def get(self) -> T:
        item = self._queue.get()
        if isinstance(item, ChannelClosed):
            self._queue.put(item)  # closed stays closed
            raise item
        return item


@final
class RealWorld(World):
    """Driver loops run in daemon threads.

    One that a vendor call never gives back is abandoned, and does not keep the process from ending.

    A thread that returns from a C call needs the GIL, and a saturated event loop may withhold it for
    hundreds of milliseconds. So while driver calls are out, the loop hands the GIL over once in
    `HAND_OVER` seconds.
    """

    virtual = False

    def __init__(self) -> None:
        self.now = time.monotonic
        self._calls = 0
        self._idle: Slot | None = None
        self._tasks: TaskGroup
        self._scope: anyio.CancelScope

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._scope = anyio.CancelScope(shield=True)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._hand_over, name="repertory: GIL hand-over")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    def condition(self) -> Condition:
        return RealCondition(self.now)

    def channel(self) -> Channel[Any]:
        return RealChannel()

    def outbox(self, deliver: Callable[[list[T]], None]) -> Outbox[T]:
        return Outbox(self.loop.call_from_thread, deliver)

    def spawn(
        self, loop: DriverLoop, *, name: str, on_exit: Callable[[BaseException | None], None] | None = None
    ) -> Driver:
        driver = Driver(name, on_exit)
        entered: Loop | None = getattr(self, "loop", None)  # a script has no event loop, and nobody is told

        def run() -> None:
            error: BaseException | None = None
            try:
                drive(loop())
            except BaseException as exc:  # noqa: BLE001  (its owner is told on the event loop)
                error = exc
            if entered is not None:
                entered.call_from_thread(partial(driver.end, error))

        threading.Thread(target=run, name=name, daemon=True).start()
        return driver

    def working(self, calls: int) -> None:
        self._calls += calls
        if self._idle is not None and self._calls:
            idle, self._idle = self._idle, None
            self.loop.fill(idle)

    async def _hand_over(self) -> None:
        with self._scope:
            while True:
                if self._calls:
                    await anyio.sleep(HAND_OVER)
                    time.sleep(0)  # noqa: ASYNC251  (the point: give the GIL to a driver thread)
                else:
                    self._idle = self.loop.slot()
                    await self._idle
