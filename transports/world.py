"""Where driver code runs: threads and the real clock, or tasks and a virtual one.

A driver is written once, as coroutines over the primitives of this module. In the real world a driver
loop has a thread of its own and `drive` runs it there: what it awaits blocks the thread and never
suspends. In a virtual world the same loop is a task. Simulators stand on `Condition`, driver loops take
their work from a `Channel`, and what they produce reaches the event loop through an `Outbox`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar, final

import anyio

from .loop import Loop, current_loop

__all__ = ["Channel", "ChannelClosed", "Condition", "Driver", "Outbox", "World", "drive"]

T = TypeVar("T")
DriverLoop = Callable[[], Coroutine[Any, Any, None]]


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run driver code to its end in this thread.

    Raises:
        RuntimeError: the code suspended: it awaited something that only an event loop can wake.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    coroutine.close()
    raise RuntimeError("driver code suspended in a thread: it may await only what a World gives")


@final
class ChannelClosed(Exception):
    """No more items will come: a driver loop ends itself here."""


class Condition(ABC):
    """Guards state that changes by calls and by the passing of time."""

    @abstractmethod
    def __enter__(self) -> None: ...

    @abstractmethod
    def __exit__(self, *exc_info: object) -> None: ...

    @abstractmethod
    def notify(self) -> None:
        """Let every waiter look again. The caller holds the condition."""

    @abstractmethod
    async def wait(
        self, ready: Callable[[], T], *, timeout: float | None, next_event: Callable[[], float]
    ) -> T:
        """Call `ready` until its result is true or `timeout` seconds have passed; return the last result.

        `ready` runs while the condition is held; it first brings the state up to the present, and may take
        what it finds. `next_event` tells when, on the world's clock and after the present, the state would
        change by itself; `math.inf` for never. A timeout of None waits for ever.
        """


class Channel(ABC, Generic[T]):
    """Work on its way to one driver loop, first in first out."""

    @abstractmethod
    def put(self, item: T) -> None:
        """Never blocks; the owner bounds what it puts. From any thread."""

    @abstractmethod
    def close(self) -> None:
        """Let `get` raise once the channel is empty."""

    @abstractmethod
    async def get(self) -> T:
        """Wait for the next item.

        Raises:
            ChannelClosed: the channel is closed and empty.
        """


@final
class Outbox(Generic[T]):
    """Results on their way from driver loops to the event loop, in order, one wake-up a batch."""

    def __init__(
        self, post: Callable[[Callable[[], None]], None], deliver: Callable[[list[T]], None]
    ) -> None:
        self._post = post
        self._deliver = deliver
        self._items: deque[T] = deque()
        self._armed = False

    def put(self, item: T) -> None:
        """Hand `item` over; from any thread, and never delivered from inside this call."""
        self._items.append(item)
        if not self._armed:
            self._armed = True
            self._post(self.flush)

    def flush(self) -> None:
        """Deliver what is there now. Event loop's thread only."""
        self._armed = False  # before looking: what is put from here on arms again
        items = self._items
        if batch := [items.popleft() for _ in range(len(items))]:
            self._deliver(batch)


@final
class Driver:
    """A running driver loop.

    Attributes:
        error: what ended it, or None where it ended by itself or still runs.
    """

    def __init__(self, name: str, on_exit: Callable[[BaseException | None], None] | None) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._on_exit = on_exit
        self._ended = anyio.Event()

    @property
    def ended(self) -> bool:
        """Whether the loop has returned or raised."""
        return self._ended.is_set()

    def end(self, error: BaseException | None) -> None:
        """Note the end. Loop's thread only; called by the world that runs the driver."""
        self.error = error
        self._ended.set()
        if self._on_exit is not None:
            self._on_exit(error)

    async def join(self, bound: float) -> bool:
        """Wait up to `bound` seconds; return whether the loop has ended. Not cancelled from outside."""
        with anyio.move_on_after(bound, shield=True):
            await self._ended.wait()
        return self.ended


class World(ABC):
    """A clock and a way to run driver loops; an async context manager, entered on the event loop.

    Attributes:
        virtual: whether time jumps instead of passing.
        loop: the event loop's seam.
        now: seconds on a clock that driver loops may read too. Use differences only: in the real world it
            is not the event loop's clock.
    """

    virtual: ClassVar[bool]
    loop: Loop
    now: Callable[[], float]

    async def __aenter__(self) -> Self:
        self.loop = current_loop()
        return self

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def condition(self) -> Condition:
        """Return a new condition for a simulator."""

    @abstractmethod
    def channel(self) -> Channel[Any]:
        """Return a new channel for one driver loop."""

    @abstractmethod
    def outbox(self, deliver: Callable[[list[T]], None]) -> Outbox[T]:
        """Return a new outbox that calls `deliver` on the event loop; `deliver` must not raise.

        In the real world that is in a later step, in batches. In a virtual one it is at once, for driver
        loops are tasks of the event loop: whoever must not be called back from inside a call of its own
        (`Device.start`) makes an outbox over `Loop.call_soon` instead.
        """

    @abstractmethod
    def spawn(
        self, loop: DriverLoop, *, name: str, on_exit: Callable[[BaseException | None], None] | None = None
    ) -> Driver:
        """Run a driver loop; `on_exit` is called on the event loop when it ends, however it ends."""

    @abstractmethod
    def working(self, calls: int) -> None:
        """Note that `calls` more (or fewer, if negative) driver calls are out. Loop's thread only."""
