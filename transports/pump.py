"""Vendor calls off the event loop: one at a time, under a watchdog, with a bound that is always kept."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast, final

import anyio

from repertory.models.errors import DeviceError, DeviceHung, DeviceLost

from .loop import Slot
from .world import Channel, ChannelClosed, Driver, Outbox, World

__all__ = ["NativeTimeout", "Worker"]

T = TypeVar("T")


@final
@dataclass(slots=True)
class _Order(Generic[T]):
    job: Callable[[], Coroutine[Any, Any, T]]
    slot: Slot
    done: bool = False
    result: T | None = None
    error: BaseException | None = None


@final
class Worker:
    """A device's control calls: open, load, enable, close and their like, which have no time-out.

    They run one after the other in one thread (under virtual time: in one task). When a call outlasts its
    bound the worker is lost: the thread is abandoned with it, and every later call raises the same error.
    Only ending the process gets such a thread back.
    """

    def __init__(self, world: World, *, family: str, name: str) -> None:
        self._world = world
        self._family = family
        self._lost: DeviceError | None = None
        self._closed = False
        self._out = 0
        self._orders: Channel[_Order[Any]] = world.channel()
        self._outbox: Outbox[_Order[Any]] = world.outbox(self._answer)
        self._driver: Driver = world.spawn(self._work, name=name)

    @property
    def busy(self) -> bool:
        """Whether a call is out, or waits for one that is."""
        return self._out > 0

    async def call(self, job: Callable[[], Coroutine[Any, Any, T]], *, bound: float, what: str) -> T:
        """Run driver code and return its result; shielded from cancellation, over within `bound` seconds.

        Raises:
            DeviceHung: it took longer; the worker is lost.
            DeviceLost: the worker was closed before.
        """
        if self._lost is not None:
            raise self._lost
        if self._closed:
            raise DeviceLost(f"{what}: the device is closed", family=self._family, call=what)
        order = _Order(job, self._world.loop.slot())
        self._out += 1
        self._world.working(1)
        self._orders.put(order)
        with anyio.move_on_after(bound, shield=True):
            await order.slot
        self._world.working(-1)
        self._out -= 1
        if not order.done:
            self._lost = DeviceHung(
                f"{what} has not returned within {bound:g} s", family=self._family, call=what
            )
            raise self._lost
        if order.error is not None:
            raise order.error
        return cast("T", order.result)

    async def close(self, *, bound: float) -> bool:
        """End the thread; return whether it ended in time. A lost worker is left behind at once."""
        self._closed = True
        self._orders.close()
        return self._lost is None and await self._driver.join(bound)

    async def _work(self) -> None:
        while True:
            try:
                order = await self._orders.get()
            except ChannelClosed:
                return
            try:
                order.result = await order.job()
            except Exception as error:  # noqa: BLE001  (raised again at the caller)
                order.error = error
            self._outbox.put(order)
            del order  # it may hold a whole file, and the next one may be long in coming

    def _answer(self, orders: list[_Order[Any]]) -> None:
        for order in orders:
            order.done = True
            self._world.loop.fill(order.slot)


@final
class NativeTimeout:
    """What to ask of a vendor's time-out so that it really takes about `aim` seconds.

    libmemx counts polls instead of time: 1 ms asked takes 8 to 11 ms, by the host's timer slack. So one
    short time-out is measured, and all others are asked for in that proportion.
    """

    def __init__(self, aim: float) -> None:
        self._aim = aim
        self.milliseconds = max(1, round(aim * 1000))

    def learn(self, *, asked: int, took: float) -> None:
        """Note that `asked` milliseconds took `took` seconds."""
        stretch = max(1.0, took * 1000 / asked)
        self.milliseconds = max(1, int(self._aim * 1000 / stretch))
