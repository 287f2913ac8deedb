"""State that changes by calls and by the passing of time, in threads and in virtual time."""

from __future__ import annotations

import math

import anyio
import pytest
from anyio.lowlevel import checkpoint

from repertory.transports.virtual import VirtualWorld

from .worlds import BOUND, MakeWorld, ended, in_both_worlds, never

# -- conditions


@in_both_worlds
async def test_a_wait_ends_when_somebody_changes_the_state(
    make_world: MakeWorld, anyio_backend: object
) -> None:
    results: list[str] = []

    async with make_world() as world:
        condition, items = world.condition(), list[str]()

        def take_one() -> str:
            return items.pop() if items else ""

        async def take() -> None:
            first = await condition.wait(take_one, timeout=None, next_event=never)
            results.extend([first, await condition.wait(take_one, timeout=None, next_event=never)])

        drivers = [world.spawn(take, name=f"taker {number}") for number in range(2)]
        for item in "abcd":
            await checkpoint()
            with condition:
                items.append(item)
                condition.notify()
        await ended(*drivers)
    assert sorted(results) == list("abcd")


@in_both_worlds
async def test_a_wait_ends_at_the_next_event(make_world: MakeWorld, anyio_backend: object) -> None:
    waits: list[tuple[bool, float]] = []

    async with make_world() as world:
        condition = world.condition()

        async def wait() -> None:
            began = world.now()
            events = [began + 0.01, began + 0.02, began + 0.03]

            def next_event() -> float:
                return min((event for event in events if event > world.now()), default=math.inf)

            ready = await condition.wait(
                lambda: world.now() >= events[-1], timeout=None, next_event=next_event
            )
            waits.append((ready, world.now() - began))

        await ended(world.spawn(wait, name="waiter"))
    (ready, took), *_ = waits
    assert ready
    assert 0.03 - 1e-9 <= took < BOUND


@in_both_worlds
async def test_a_timeout_gives_the_last_look(make_world: MakeWorld, anyio_backend: object) -> None:
    looks: list[float] = []
    results: list[object] = []

    async with make_world() as world:
        condition = world.condition()

        def look() -> list[str]:
            looks.append(world.now())
            return []

        async def wait() -> None:
            results.append(await condition.wait(look, timeout=0.02, next_event=never))
            results.append(await condition.wait(look, timeout=0.0, next_event=never))

        await ended(world.spawn(wait, name="waiter"))
    assert results == [[], []]
    assert looks[-1] - looks[0] >= 0.02 - 1e-9


@in_both_worlds
async def test_what_is_ready_is_taken_at_once_and_once(make_world: MakeWorld, anyio_backend: object) -> None:
    items = ["one", "two"]
    results: list[str] = []

    async with make_world() as world:
        condition = world.condition()

        async def wait() -> None:
            for timeout in (1000.0, 0.0):
                results.extend([await condition.wait(items.pop, timeout=timeout, next_event=never)])

        began = world.now()
        await ended(world.spawn(wait, name="waiter"))
        assert world.now() - began < BOUND
    assert results == ["two", "one"]


@pytest.mark.virtual
async def test_virtual_time_is_exact_and_costs_nothing(anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        condition = world.condition()
        began = world.now()

        async def wait() -> None:
            for _ in range(10):
                await condition.wait(lambda: False, timeout=3600.0, next_event=never)

        await ended(world.spawn(wait, name="waiter"), bound=math.inf)
        assert world.now() - began == pytest.approx(36000)
        assert world.now() == anyio.current_time()
