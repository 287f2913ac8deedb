"""The conformance test of the seam between event loops."""

from __future__ import annotations

import math
import threading
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from repertory.transports.loop import Loop, Slot, current_loop

pytestmark = pytest.mark.realtime

HANG = 5.0
"""Seconds after which a wake-up counts as lost."""


async def _await(slot: Slot) -> None:
    with anyio.fail_after(HANG):
        await slot


async def _turns() -> None:
    """Let everybody else go on until he waits."""
    for _ in range(5):
        await checkpoint()


async def test_slot_filled_before_the_wait() -> None:
    loop = current_loop()
    slot = loop.slot()
    loop.fill(slot)
    with anyio.move_on_after(1) as scope:
        await _await(slot)
    assert not scope.cancelled_caught


async def test_slot_filled_during_the_wait() -> None:
    loop = current_loop()
    slot = loop.slot()
    ended = anyio.Event()

    async def wait() -> None:
        await _await(slot)
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await _turns()
        assert not ended.is_set()
        loop.fill(slot)
    assert ended.is_set()


async def test_slot_filled_twice() -> None:
    loop = current_loop()
    slot = loop.slot()
    ended: list[bool] = []

    async def wait() -> None:
        await _await(slot)
        ended.append(True)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await checkpoint()
        loop.fill(slot)
        loop.fill(slot)
    loop.fill(slot)
    assert ended == [True]


async def test_slot_of_a_cancelled_waiter_is_left_alone() -> None:
    loop = current_loop()
    slot = loop.slot()
    with anyio.move_on_after(0) as scope:
        await slot
    assert scope.cancelled_caught
    loop.fill(slot)


async def test_cancelled_waiter_wins_over_a_later_fill() -> None:
    loop = current_loop()
    slot = loop.slot()
    ends: list[str] = []

    async def wait() -> None:
        try:
            await _await(slot)
            ends.append("filled")
        except anyio.get_cancelled_exc_class():
            ends.append("cancelled")
            raise

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await _turns()
            scope.cancel()
            loop.fill(slot)
    assert ends == ["cancelled"]


async def test_waiting_for_a_filled_slot_lets_others_run() -> None:
    loop = current_loop()
    slot = loop.slot()
    loop.fill(slot)
    ran: list[str] = []

    async def other() -> None:
        ran.append("other")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        await _await(slot)
        await checkpoint()
        assert ran == ["other"]


async def test_call_soon_runs_later_and_in_order() -> None:
    loop = current_loop()
    done = loop.slot()
    calls: list[int] = []
    for number in range(5):
        loop.call_soon(lambda number=number: calls.append(number))  # type: ignore[misc]
    loop.call_soon(lambda: loop.fill(done))
    assert calls == []
    await _await(done)
    assert calls == [0, 1, 2, 3, 4]


async def test_call_from_thread_wakes_an_idle_loop() -> None:
    loop = current_loop()
    done = loop.slot()
    callers: list[threading.Thread] = []

    def called() -> None:
        callers.append(threading.current_thread())
        loop.fill(done)

    thread = threading.Thread(target=loop.call_from_thread, args=(called,))
    thread.start()
    await _await(done)
    thread.join()
    assert callers == [threading.current_thread()]


def test_call_from_thread_after_the_end_does_nothing(anyio_backend: tuple[str, dict[str, Any]]) -> None:
    calls: list[str] = []

    async def main() -> Loop:
        return current_loop()

    name, options = anyio_backend
    loop = anyio.run(main, backend=name, backend_options=options)
    thread = threading.Thread(target=loop.call_from_thread, args=(lambda: calls.append("late"),))
    thread.start()
    thread.join()  # pytest fails a test whose thread raises
    assert calls == []


async def test_now_is_the_loops_clock() -> None:
    before = anyio.current_time()
    now = current_loop().now()
    assert before <= now <= anyio.current_time()


async def test_caller_deadline_is_that_of_the_running_task() -> None:
    loop = current_loop()
    assert loop.caller_deadline() == anyio.current_effective_deadline() == math.inf
    with anyio.fail_after(60), anyio.fail_after(30):
        assert loop.caller_deadline() == anyio.current_effective_deadline() < loop.now() + 31
        await checkpoint()


async def test_caller_deadline_of_a_cancelled_task_has_passed() -> None:
    loop = current_loop()
    with anyio.CancelScope() as scope:
        scope.cancel()
        assert loop.caller_deadline() == -math.inf
        await checkpoint()


async def test_waiting_until_a_time_ends_there_and_not_before() -> None:
    loop = current_loop()
    begin = loop.now()
    with anyio.fail_after(HANG):
        await loop.wait_until(loop.slot(), begin + 0.01)
        await loop.wait_until(loop.slot(), begin - 1.0)
    assert loop.now() >= begin + 0.009


@pytest.mark.parametrize("when", [3600.0, math.inf])
async def test_waiting_until_a_time_ends_early_where_the_slot_is_filled(when: float) -> None:
    loop = current_loop()
    slot = loop.slot()
    ended = anyio.Event()

    async def wait() -> None:
        await loop.wait_until(slot, loop.now() + when)
        ended.set()

    with anyio.fail_after(HANG):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await _turns()
            assert not ended.is_set()
            loop.fill(slot)
    assert ended.is_set()


async def test_waiting_until_a_time_can_be_cancelled() -> None:
    loop = current_loop()
    slot = loop.slot()
    with anyio.move_on_after(0) as scope:
        await loop.wait_until(slot, loop.now() + 3600)
    assert scope.cancelled_caught
    loop.fill(slot)
