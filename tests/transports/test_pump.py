"""Vendor calls off the loop: one at a time, and bounded whatever they do."""

from __future__ import annotations

import math
import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint

from repertory.models.errors import ArtifactError, DeviceHung, DeviceLost
from repertory.transports.pump import NativeTimeout, Worker
from repertory.transports.real import RealWorld
from repertory.transports.world import World

from .worlds import MakeWorld, in_both_worlds


def worker(world: World) -> Worker:
    return Worker(world, family="test", name="worker")


class Gate:
    """Where a job waits until the test lets it pass, or for ever."""

    def __init__(self, world: World) -> None:
        self.entered = world.loop.slot()
        self._world = world
        self._condition = world.condition()
        self._open = False

    async def job(self) -> str:
        self._world.loop.call_from_thread(lambda: self._world.loop.fill(self.entered))
        await self._condition.wait(lambda: self._open, timeout=None, next_event=lambda: math.inf)
        return "passed"

    def open(self) -> None:
        with self._condition:
            self._open = True
            self._condition.notify()


async def give() -> int:
    return 42


@in_both_worlds
async def test_results_and_errors_come_back(make_world: MakeWorld, anyio_backend: object) -> None:
    async def refuse() -> None:
        raise ArtifactError("refused")

    async with make_world() as world:
        control = worker(world)
        assert await control.call(give, bound=10, what="give") == 42
        with pytest.raises(ArtifactError, match=r"^refused$"):
            await control.call(refuse, bound=10, what="refuse")
        assert await control.call(give, bound=10, what="give") == 42
        assert await control.close(bound=10)


@in_both_worlds
async def test_a_call_that_never_returns_costs_the_worker(
    make_world: MakeWorld, anyio_backend: object
) -> None:
    async with make_world() as world:
        control, gate = worker(world), Gate(world)
        began = anyio.current_time()
        with pytest.raises(DeviceHung, match=r"vendor_load has not returned within 0\.05 s") as first:
            await control.call(gate.job, bound=0.05, what="vendor_load")
        assert anyio.current_time() - began + 1e-3 >= 0.05
        assert first.value.call == "vendor_load"
        assert first.value.family == "test"
        with pytest.raises(DeviceHung) as later:
            await control.call(give, bound=10, what="give")
        assert later.value is first.value
        assert not await control.close(bound=1000)
        assert anyio.current_time() - began < 5
        gate.open()


@in_both_worlds
async def test_a_call_goes_on_when_its_caller_is_cancelled(
    make_world: MakeWorld, anyio_backend: object
) -> None:
    results: list[str] = []

    async with make_world() as world:
        control, gate = worker(world), Gate(world)
        scope = anyio.CancelScope()

        async def call() -> None:
            with scope:
                results.append(await control.call(gate.job, bound=10, what="job"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await gate.entered
            scope.cancel()
            for _ in range(5):
                await checkpoint()
            assert results == []
            gate.open()
        assert results == ["passed"]
        assert await control.close(bound=10)


@in_both_worlds
async def test_calls_run_one_after_the_other(make_world: MakeWorld, anyio_backend: object) -> None:
    log: list[str] = []

    async with make_world() as world:
        control, gate = worker(world), Gate(world)

        async def first() -> None:
            await control.call(gate.job, bound=10, what="first")
            log.append("first")

        async def second() -> None:
            await control.call(note, bound=10, what="second")

        async def note() -> None:
            log.append("second")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            await gate.entered
            tasks.start_soon(second)
            for _ in range(5):
                await checkpoint()
            assert log == []
            gate.open()
        assert sorted(log) == ["first", "second"]
        assert await control.close(bound=10)


@in_both_worlds
async def test_after_a_close_calls_are_refused(make_world: MakeWorld, anyio_backend: object) -> None:
    async with make_world() as world:
        control = worker(world)
        assert await control.close(bound=10)
        assert await control.close(bound=10)
        with pytest.raises(DeviceLost, match="give: the device is closed"):
            await control.call(give, bound=1000, what="give")


@in_both_worlds
async def test_a_close_waits_for_the_call_that_runs_and_no_longer_than_its_bound(
    make_world: MakeWorld, anyio_backend: object
) -> None:
    async with make_world() as world:
        control, gate = worker(world), Gate(world)
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                assert await control.call(gate.job, bound=10, what="job") == "passed"

            tasks.start_soon(call)
            await gate.entered
            assert not await control.close(bound=0.02)
            gate.open()
            assert await control.close(bound=10)


async def test_the_thread_of_a_call_is_no_event_loops(anyio_backend: object) -> None:
    threads: list[threading.Thread] = []

    async def note() -> None:
        threads.append(threading.current_thread())

    async with RealWorld() as world:
        control = worker(world)
        for _ in range(2):
            await control.call(note, bound=10, what="note")
        assert await control.close(bound=10)
    assert threads[0] is threads[1] is not threading.current_thread()
    assert threads[0].daemon
    assert threads[0].name == "worker"


@pytest.mark.parametrize(
    ("aim", "asked", "took", "milliseconds"),
    [
        (0.05, None, 0.0, 50),
        (0.05, 1, 0.001, 50),
        (0.05, 1, 0.010, 5),
        (0.05, 2, 0.020, 5),
        (0.05, 1, 0.0002, 50),
        (0.05, 1, 10.0, 1),
        (0.0001, None, 0.0, 1),
    ],
)
def test_a_vendors_timeout_is_asked_for_in_its_own_measure(
    aim: float, asked: int | None, took: float, milliseconds: int
) -> None:
    timeout = NativeTimeout(aim)
    if asked is not None:
        timeout.learn(asked=asked, took=took)
    assert timeout.milliseconds == milliseconds
