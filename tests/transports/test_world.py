"""Driver code meets the same primitives in threads and in virtual time."""

from __future__ import annotations

import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint

from repertory.transports.pump import Worker
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import drive

from .worlds import BOUND, MakeWorld, ended, in_both_worlds

# -- drive


def test_drive_runs_code_that_never_suspends() -> None:
    async def inner() -> int:
        return 20

    async def outer() -> int:
        return await inner() + await inner()

    assert drive(outer()) == 40


def test_drive_passes_errors_on() -> None:
    async def fail() -> None:
        raise LookupError("none")

    with pytest.raises(LookupError, match="none"):
        drive(fail())


async def test_drive_refuses_code_that_suspends_and_unwinds_it(anyio_backend: object) -> None:
    log: list[str] = []

    async def suspend() -> None:
        try:
            await checkpoint()
            log.append("went on")
        finally:
            log.append("unwound")

    with pytest.raises(RuntimeError, match="driver code suspended in a thread"):
        drive(suspend())
    assert log == ["unwound"]


# -- drivers


@in_both_worlds
async def test_a_driver_ends_once_and_tells_so_on_the_loop(
    make_world: MakeWorld, anyio_backend: object
) -> None:
    told: list[tuple[BaseException | None, int]] = []
    error = LookupError("broken")

    async def fine() -> None:
        pass

    async def broken() -> None:
        raise error

    def on_exit(error: BaseException | None) -> None:
        told.append((error, threading.get_ident()))

    async with make_world() as world:
        good = world.spawn(fine, name="good", on_exit=on_exit)
        assert await good.join(BOUND)
        bad = world.spawn(broken, name="bad", on_exit=on_exit)
        assert await bad.join(BOUND)
    here = threading.get_ident()
    assert told == [(None, here), (error, here)]
    assert (good.ended, good.error, bad.ended, bad.error) == (True, None, True, error)


@in_both_worlds
async def test_a_join_keeps_its_bound_and_is_not_cancelled(
    make_world: MakeWorld, anyio_backend: object
) -> None:
    async with make_world() as world:
        channel = world.channel()

        async def wait() -> None:
            await channel.get()

        driver = world.spawn(wait, name="waiting")
        assert not await driver.join(0.01)
        joined = False
        with anyio.CancelScope() as scope:
            scope.cancel()
            channel.put("at last")
            joined = await driver.join(BOUND)
        assert joined


@pytest.mark.virtual
async def test_a_virtual_world_cancels_what_still_runs(anyio_backend: object) -> None:
    log: list[str] = []

    async with VirtualWorld() as world:

        async def wait() -> None:
            try:
                await world.channel().get()
            finally:
                log.append("unwound")

        drivers = [world.spawn(wait, name=f"driver {number}") for number in range(3)]
        await checkpoint()
    assert log == ["unwound"] * 3
    assert all(driver.ended and driver.error is None for driver in drivers)


@pytest.mark.virtual
async def test_a_virtual_driver_is_shielded_from_its_worlds_owner(anyio_backend: object) -> None:
    with anyio.CancelScope() as scope:
        async with VirtualWorld() as world:
            channel = world.channel()
            driver = world.spawn(channel.get, name="driver")
            scope.cancel()
            with anyio.CancelScope(shield=True):
                for _ in range(5):
                    await checkpoint()
                assert not driver.ended
                channel.put("work")
                await ended(driver)


async def test_a_real_world_closes_though_a_driver_never_ends(anyio_backend: object) -> None:
    gate = threading.Event()

    async def wait() -> None:
        gate.wait()

    with anyio.fail_after(BOUND):
        async with RealWorld() as world:
            driver = world.spawn(wait, name="stuck")
    assert not driver.ended
    gate.set()
    await ended(driver)


# -- the GIL


async def test_hand_overs_last_as_long_as_calls_are_out(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks: list[float] = []
    sleep = anyio.sleep

    async def counted(seconds: float) -> None:
        ticks.append(seconds)
        await sleep(0)

    monkeypatch.setattr("repertory.transports.real.anyio.sleep", counted)
    async with RealWorld() as world:

        async def ticked_in(steps: int) -> int:
            before = len(ticks)
            for _ in range(steps):
                await checkpoint()
            return len(ticks) - before

        assert await ticked_in(20) == 0
        world.working(2)
        assert await ticked_in(20) > 3
        world.working(-1)
        assert await ticked_in(20) > 3
        world.working(-1)
        await ticked_in(3)
        assert await ticked_in(20) == 0
        world.working(1)
        assert await ticked_in(20) > 3
        world.working(-1)


async def test_a_worker_asks_for_hand_overs_while_it_works(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    balance: list[int] = []

    async def give() -> None:
        assert balance == [1]

    async with RealWorld() as world:
        monkeypatch.setattr(world, "working", balance.append)
        worker = Worker(world, family="test", name="worker")
        await worker.call(give, bound=BOUND, what="give")
        assert await worker.close(bound=BOUND)
    assert balance == [1, -1]
