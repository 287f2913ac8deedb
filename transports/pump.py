"""Vendor calls off the event loop: one at a time, under a watchdog, with a bound that is always kept."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast, final

import anyio

from repertory.models.errors import DeviceError, DeviceHung, DeviceLost

from .loop import Slot
from .world import Channel, ChannelClosed, Driver, Outbox, World

__all__ = ["NativeTimeout", "Order", "Orders", "Worker"]

T = TypeVar("T")


@final
@dataclass(slots=True, eq=False)
class Order(Generic[T]):
    """A call on its way to a driver loop, and its outcome on the way back."""

    job: Callable[[], Coroutine[Any, Any, T]]
    slot: Slot
    done: bool = False
    result: T | None = None
    error: BaseException | None = None


@final
class Orders:
    """Calls from the event loop into one driver loop, which runs them one after the other.

    When a call outlasts its bound the loop is lost, and every later call raises the same error.

    Args:
        world: real or virtual.
        family: for errors.
        post: brings an order to the driver loop, which gives it to `carry_out`.
    """

    def __init__(self, world: World, *, family: str, post: Callable[[Order[Any]], None]) -> None:
        self._world = world
        self._family = family
        self._post = post
        self._outbox: Outbox[Order[Any]] = world.outbox(self._answer)
        self._closed = False
        self._out = 0
        self.lost: DeviceError | None = None

    @property
    def busy(self) -> bool:
        """Whether a call is out, or waits for one that is."""
        return self._out > 0

    async def call(self, job: Callable[[], Coroutine[Any, Any, T]], *, bound: float, what: str) -> T:
        """Run driver code and return its result; shielded from cancellation, over within `bound` seconds.

        Raises:
            DeviceHung: it took longer; the driver loop is lost.
            DeviceLost: the orders were closed before.
        """
        if self.lost is not None:
            raise self.lost
        if self._closed:
            raise DeviceLost(f"{what}: the device is closed", family=self._family, call=what)
        order = Order(job, self._world.loop.slot())
        self._out += 1
        self._world.working(1)
        self._post(order)
        with anyio.move_on_after(bound, shield=True):
            await order.slot
        self._world.working(-1)
        self._out -= 1
        if not order.done:
            self.lost = DeviceHung(
                f"{what} has not returned within {bound:g} s", family=self._family, call=what
            )
            raise self.lost
        if order.error is not None:
            raise order.error
        return cast("T", order.result)

    def close(self) -> None:
        """Take no more calls."""
        self._closed = True

    async def carry_out(self, order: Order[Any]) -> None:
        """Run an order, in the driver loop."""
        try:
            order.result = await order.job()
        except Exception as error:  # noqa: BLE001  (raised again at the caller)
            order.error = error
        self._outbox.put(order)

    def refuse(self, order: Order[Any], error: DeviceError) -> None:
        """Answer an order that will not be run; in the driver loop or on the event loop."""
        order.error = error
        self._outbox.put(order)

    def _answer(self, orders: list[Order[Any]]) -> None:
        for order in orders:
            order.done = True
            self._world.loop.fill(order.slot)


@final
class Worker:
    """A device's control calls: open, load, enable, close and their like, which have no time-out.

    They run one after the other in one thread (under virtual time: in one task). When a call outlasts its
    bound the worker is lost: the thread is abandoned with it, and every later call raises the same error.
    Only ending the process gets such a thread back.
    """

    def __init__(self, world: World, *, family: str, name: str) -> None:
        self._channel: Channel[Order[Any]] = world.channel()
        self._orders = Orders(world, family=family, post=self._channel.put)
        self._driver: Driver = world.spawn(self._work, name=name)

    @property
    def busy(self) -> bool:
        """Whether a call is out, or waits for one that is."""
        return self._orders.busy

    async def call(self, job: Callable[[], Coroutine[Any, Any, T]], *, bound: float, what: str) -> T:
        """Run driver code and return its result; as `Orders.call`.

        Raises:
            DeviceHung: it took longer; the worker is lost.
            DeviceLost: the worker was closed before.
        """
        return await self._orders.call(job, bound=bound, what=what)

    async def close(self, *, bound: float) -> bool:
        """End the thread; return whether it ended in time. A lost worker is left behind at once."""
        self._orders.close()
        self._channel.close()
        return self._orders.lost is None and await self._driver.join(bound)

    async def _work(self) -> None:
        try:
            while True:
                await self._orders.carry_out(await self._channel.get())  # no name keeps the last order's file
        except ChannelClosed:
            return


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
