"""Groups that were not asked at once: nobody waits for ever, or long, because another was to serve him."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import anyio
import pytest
from anyio.abc import TaskGroup

from repertory.actors.limits import Limits
from repertory.transports.simulated import SimulatedDevice
from tests.runtime.support import Memory, Pending, lost, open_virtual, sketched, tensor

pytestmark = pytest.mark.virtual

ONE = "sim://?service_ms=1&swap_ms=5&window=1"


def _requests(model: Any, count: int, **options: Any) -> list[Pending]:
    return [Pending(model, number, **options) for number in range(count)]


async def _ask(tasks: TaskGroup, requests: list[Pending]) -> None:
    """Make requests, one after the other."""
    for request in requests:
        tasks.start_soon(request)
        await anyio.sleep(1e-4)


@pytest.mark.parametrize("count", [1, 3])
async def test_another_group_serves_what_one_dies_on_in_its_swap(count: int) -> None:
    first, second = Memory("first", window=1), Memory("second", window=1)
    async with open_virtual(first, second) as rt:
        model = await rt.load(sketched("net"))
        first.bind_seconds = second.bind_seconds = 0.05
        requests, began = _requests(model, count, timeout=20.0), anyio.current_time()
        async with anyio.create_task_group() as tasks:
            await _ask(tasks, requests)
            await anyio.sleep(0.02)
            (where,) = {said.group for said in rt.explain() if said.decision == "bind"}
            dying = first if where == "first" else second
            dying.open_errors = [lost() for _ in range(50)]
            dying.device.fail(lost())
        assert all(request.answered_by("net") for request in requests)
        assert anyio.current_time() - began < 1


@pytest.mark.parametrize("count", [1, 3])
async def test_another_group_serves_what_one_refuses(count: int) -> None:
    first, second = Memory("first"), Memory("second")
    first.refuse, first.bind_seconds = {"net"}, 0.02
    async with open_virtual(first, second) as rt:
        model = await rt.load(sketched("net"))
        requests = _requests(model, count, timeout=1.0)
        async with anyio.create_task_group() as tasks:
            await _ask(tasks, requests)
        assert all(request.answered_by("net") for request in requests)


async def test_idle_groups_that_have_a_model_share_a_burst() -> None:
    groups = [f"sim://{number}?service_ms=50&swap_ms=20&window=1" for number in range(2)]
    async with open_virtual(*groups) as rt:
        model = await rt.load(sketched("net", service=0.05), warm=True)
        async with anyio.create_task_group() as tasks:
            await _ask(tasks, _requests(model, 10))  # both get it
        before = {name: group.completed for name, group in rt.statistics().groups.items()}
        async with anyio.create_task_group() as tasks:
            await _ask(tasks, _requests(model, 10, timeout=5.0))
        groups_now = rt.statistics().groups
        assert [groups_now[name].completed - before[name] for name in groups] == [5, 5]


@pytest.fixture
def pace() -> Iterator[list[float]]:
    """Return by what the time of each simulated frame is multiplied."""
    factor, service = [1.0], vars(SimulatedDevice)["_service"]

    def slowed(device: SimulatedDevice, *args: Any) -> float:
        seconds: float = service(device, *args)
        return seconds * factor[0]

    with patch.object(SimulatedDevice, "_service", slowed):
        yield factor


@pytest.mark.parametrize("count", [40, 450])
@pytest.mark.parametrize("options", [{}, {"timeout": 10.0}])
async def test_frames_that_become_slow_do_not_make_a_model_wait_for_a_long_grant(
    pace: list[float], options: dict[str, float], count: int
) -> None:
    async with open_virtual(ONE) as rt:
        waits, busy = [await rt.load(sketched(name), warm=True) for name in ("waits", "busy")]
        for model in (waits, busy):
            for number in range(5):
                await model.infer(tensor(number))
        await anyio.sleep(3)
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(Pending(busy, number))
            await anyio.sleep(0.0101)
            (request,) = requests = _requests(waits, 1, **options)
            await _ask(tasks, requests)
            pace[0] = 100.0
            await anyio.sleep(1)
            assert request.answered_by("waits"), "it had its turn within `max_wait`"
            tasks.cancel_scope.cancel()


async def test_who_is_more_urgent_is_thought_of_at_once() -> None:
    async with open_virtual(ONE) as rt:
        urgent = await rt.load(sketched("urgent"), warm=True, limits=Limits(priority=100))
        busy = await rt.load(sketched("busy"), warm=True)
        await urgent.infer(tensor(0))
        await busy.infer(tensor(0))
        async with anyio.create_task_group() as tasks:
            for number in range(450):
                tasks.start_soon(Pending(busy, number))
            await anyio.sleep(0.05)
            (request,) = requests = _requests(urgent, 1)
            await _ask(tasks, requests)
            await anyio.sleep(0.2)
            assert request.answered_by("urgent"), "not after what the other is granted"
            tasks.cancel_scope.cancel()


async def test_a_scope_ends_what_could_only_be_late_in_its_own_way() -> None:
    async with open_virtual("sim://?service_ms=500&swap_ms=20&window=1") as rt:
        model = await rt.load(sketched("net", service=0.5), warm=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Pending(model, 1))
            await anyio.sleep(0.01)
            began = anyio.current_time()
            with anyio.move_on_after(0.8) as scope:
                await model.infer(tensor(2))
            assert scope.cancelled_caught
            assert anyio.current_time() - began == pytest.approx(0.8)
