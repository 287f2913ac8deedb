"""What passes between driver loops and the event loop, in threads and in virtual time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint

from repertory.transports.world import ChannelClosed, Outbox

from .worlds import BOUND, MakeWorld, ended, in_both_worlds

# -- channels


@in_both_worlds
async def test_a_channel_keeps_the_order_and_ends_after_the_last_item(
    make_world: MakeWorld, anyio_backend: object
) -> None:
    got: list[object] = []

    async with make_world() as world:
        channel = world.channel()

        async def take() -> None:
            while True:
                try:
                    got.append(await channel.get())
                except ChannelClosed:
                    got.append("closed")
                    break
            with pytest.raises(ChannelClosed):
                await channel.get()

        for number in range(3):
            channel.put(number)
        driver = world.spawn(take, name="taker")
        await checkpoint()
        for number in range(3, 100):
            channel.put(number)
        channel.close()
        await ended(driver)
    assert got == [*range(100), "closed"]


@in_both_worlds
async def test_items_pass_from_one_driver_to_another(make_world: MakeWorld, anyio_backend: object) -> None:
    got: list[int] = []

    async with make_world() as world:
        channel, back = world.channel(), world.channel()

        async def ask() -> None:
            for number in range(50):
                channel.put(number)
                got.append(await back.get())
            channel.close()

        async def answer() -> None:
            try:
                while True:
                    back.put(await channel.get() * 2)
            except ChannelClosed:
                return

        await ended(world.spawn(ask, name="asker"), world.spawn(answer, name="answerer"))
    assert got == [number * 2 for number in range(50)]


# -- outboxes


@in_both_worlds
async def test_an_outbox_delivers_on_the_loop_in_order_and_later(
    make_world: MakeWorld, anyio_backend: object
) -> None:
    got: list[int] = []
    here = threading.get_ident()
    done = anyio.Event()

    def deliver(batch: list[int]) -> None:
        assert batch
        assert threading.get_ident() == here
        got.extend(batch)
        if got[-1] == 999:
            done.set()

    async with make_world() as world:
        outbox = world.outbox(deliver)

        async def produce() -> None:
            for number in range(1000):
                outbox.put(number)

        driver = world.spawn(produce, name="producer")
        with anyio.fail_after(BOUND):
            await done.wait()
        await ended(driver)
    assert got == list(range(1000))


@in_both_worlds
async def test_an_outbox_gathers_and_can_be_flushed(make_world: MakeWorld, anyio_backend: object) -> None:
    batches: list[list[int]] = []

    async with make_world() as world:
        outbox = Outbox[int](world.loop.call_soon, batches.append)
        outbox.put(1)
        outbox.put(2)
        assert batches == []
        outbox.flush()
        assert batches == [[1, 2]]
        outbox.put(3)
        outbox.flush()
        outbox.flush()
        for _ in range(5):
            await checkpoint()
    assert batches == [[1, 2], [3]]


def test_an_outbox_wakes_the_loop_once_a_batch() -> None:
    posted: list[Callable[[], None]] = []
    batches: list[list[int]] = []
    outbox = Outbox[int](posted.append, batches.append)
    for number in range(5):
        outbox.put(number)
    assert len(posted) == 1
    posted.pop()()
    outbox.put(5)
    assert len(posted) == 1
    posted.pop()()
    assert batches == [[0, 1, 2, 3, 4], [5]]


@in_both_worlds
async def test_what_is_put_during_a_delivery_comes_in_the_next(
    make_world: MakeWorld, anyio_backend: object
) -> None:
    batches: list[list[int]] = []
    done = anyio.Event()

    def deliver(batch: list[int]) -> None:
        batches.append(batch)
        if batch == [1]:
            outbox.put(2)
            assert batches == [[1]]
        else:
            done.set()

    async with make_world() as world:
        outbox = Outbox[int](world.loop.call_soon, deliver)
        outbox.put(1)
        with anyio.fail_after(BOUND):
            await done.wait()
    assert batches == [[1], [2]]
