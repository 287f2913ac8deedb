"""The virtual world: a task for each driver loop, and a clock that jumps to the next event.

The event loop itself must run on a virtual clock: `virtual_options` gives the arguments for
`anyio.run` (and for anyio's pytest plugin) that make it so.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, final

import anyio
from anyio.abc import TaskGroup

from .loop import Loop, Slot
from .world import Channel, ChannelClosed, Condition, Driver, DriverLoop, Outbox, World

__all__ = ["VirtualChannel", "VirtualCondition", "VirtualWorld", "virtual_options"]

T = TypeVar("T")


@final
class _Waiter:
    """Somebody who waits at a condition.

    Attributes:
        served: whether `value` or `error` is the outcome.
    """

    __slots__ = ("_loop", "_next_event", "_ready", "_slot", "_until", "error", "served", "value")

    def __init__(self, loop: Loop, ready: Callable[[], Any], next_event: Callable[[], float]) -> None:
        self._loop = loop
        self._ready = ready
        self._next_event = next_event
        self._until: float
        self._slot: Slot
        self.value: Any = None
        self.error: Exception | None = None
        self.served = False

    async def sleep(self, deadline: float) -> None:
        """Return once served, at the next event, or at `deadline`."""
        self._slot = self._loop.slot()
        self._until = min(deadline, self._next_event())
        await self._loop.wait_until(self._slot, self._until)

    def look(self) -> None:
        """Look again, for the task that sleeps: it is woken only if that is its last look."""
        try:
            self.value = self._ready()
        except Exception as error:  # noqa: BLE001  (raised where it waits)
            self.error = error
        if self.value or self.error is not None:
            self.served = True
            self._loop.fill(self._slot)
        elif self._next_event() < self._until:
            self._loop.fill(self._slot)  # it sleeps too long: let it look itself


@final
class VirtualCondition(Condition):
    """Nothing to lock: only one task runs at a time, and none between two awaits."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._now = loop.now
        self._waiters: dict[_Waiter, None] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        pass

    def notify(self) -> None:
        for waiter in list(self._waiters):
            if self._waiters.pop(waiter, waiter) is None:  # else it was served by a look of another
                waiter.look()
                if not waiter.served:
                    self._waiters[waiter] = None

    async def wait(
        self, ready: Callable[[], T], *, timeout: float | None, next_event: Callable[[], float]
    ) -> T:
        if value := ready():
            return value
        deadline = math.inf if timeout is None else self._now() + timeout
        waiter = _Waiter(self._loop, ready, next_event)
        while self._now() < deadline:
            self._waiters[waiter] = None
            try:
                await waiter.sleep(deadline)
            finally:
                self._waiters.pop(waiter, None)
            if waiter.error is not None:
                raise waiter.error
            if waiter.served:
                served: T = waiter.value
                return served
            if value := ready():
                return value
        return value


@final
class VirtualChannel(Channel[T], Generic[T]):
    """A deque and a slot."""

    def __init__(self, world: VirtualWorld) -> None:
        self._loop = world.loop
        self._items: deque[T] = deque()
        self._closed = False
        self._waiter: Slot | None = None

    def put(self, item: T) -> None:
        self._items.append(item)
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            self._loop.fill(waiter)

    async def get(self) -> T:
        while not self._items:
            if self._closed:
                raise ChannelClosed
            self._waiter = self._loop.slot()
            await self._waiter
        return self._items.popleft()


def _at_once(callback: Callable[[], None]) -> None:
    """Driver loops are tasks of the event loop: what they produce is where it belongs already."""
    callback()


@final
class VirtualWorld(World):
    """Driver loops that have not ended when the world closes are cancelled."""

    virtual = True

    def __init__(self) -> None:
        self._tasks: TaskGroup
        self._scopes: dict[anyio.CancelScope, None] = {}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.now = self.loop.now
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for scope in self._scopes:
            scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    def condition(self) -> Condition:
        return VirtualCondition(self.loop)

    def channel(self) -> Channel[Any]:
        return VirtualChannel(self)

    def outbox(self, deliver: Callable[[list[T]], None]) -> Outbox[T]:
        return Outbox(_at_once, deliver)

    def spawn(
        self, loop: DriverLoop, *, name: str, on_exit: Callable[[BaseException | None], None] | None = None
    ) -> Driver:
        driver = Driver(name, on_exit)
        scope = anyio.CancelScope(shield=True)
        self._scopes[scope] = None

        async def run() -> None:
            error: BaseException | None = None
            with scope:
                try:
                    await loop()
                except Exception as exc:  # noqa: BLE001  (its owner is told)
                    error = exc
            del self._scopes[scope]
            driver.end(error)

        self._tasks.start_soon(run, name=name)
        return driver

    def working(self, calls: int) -> None:
        pass


@final
class _JumpingSelector(selectors.DefaultSelector):
    """Adds a time-out to the loop's clock instead of sleeping through it."""

    offset = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:
            return []  # tasks are ready to run; whatever came from outside can wait until none is
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("nothing will ever happen in this virtual world: every task waits for ever")
        if not ready and timeout is not None and timeout > 0:
            self.offset += timeout
        return ready


@final
class _VirtualEventLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.offset


def virtual_options(backend: str) -> dict[str, Any]:
    """Return `backend_options` under which that backend ("asyncio" or "trio") runs on virtual time.

    Make them anew for each run: a clock is used once. Nothing that happens outside the loop (threads,
    sockets, `anyio.to_thread`) may be waited for under them.
    """
    if backend == "asyncio":
        return {"loop_factory": _VirtualEventLoop}
    from ._trio import JumpingClock  # noqa: PLC0415  (asyncio users do not load trio)

    return {"clock": JumpingClock()}
