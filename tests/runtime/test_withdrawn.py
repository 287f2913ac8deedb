"""Requests that wait behind another model's turn, and are told before their deadline that it is too late."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any, final

import anyio
import pytest
from anyio.abc import TaskGroup

from repertory.actors.context import Limits, Overflow
from repertory.actors.policy import Bind, Decision, Grant, GroupState, Policy, Wait
from repertory.models.errors import DeadlineExceeded, DeadlineUnreachable
from repertory.runtime.model import Model
from repertory.runtime.policies.swap_aware import SwapAware
from repertory.runtime.runtime import Runtime

from .support import Pending, open_virtual, outstanding, reconciles, sketched, tensor

pytestmark = pytest.mark.virtual

DEVICE = "sim://?service_ms=10&swap_ms=20&window=1"
FRAME = 0.01


@final
class _Resident(Policy):
    """The resident first, whatever waits."""

    def decide(self, state: GroupState, now: float) -> Decision:
        ready = [entry for entry in state.entries if entry.ready]
        for entry in ready:
            if entry.program.key in state.residents:
                return Grant(entry, entry.context.waiting, "it is there")
        return (
            Bind(ready[0], tuple(state.residents.values()), "it is not") if ready else Wait("nothing waits")
        )


@pytest.fixture
async def tasks() -> AsyncGenerator[TaskGroup, None]:
    async with anyio.create_task_group() as group:
        yield group


async def _two(rt: Runtime, limits: Limits | None = None) -> tuple[Model, Model]:
    """Load two models, which both have been served, and the second of which is resident."""
    waits = await rt.load(sketched("waits"), limits=limits, warm=True)
    await waits.infer(tensor(0))  # one frame alone is not believed
    return waits, await rt.load(sketched("served"), warm=True)


async def _ask(tasks: TaskGroup, model: Model, count: int = 1, **options: Any) -> list[Pending]:
    """Send requests, in this order on every backend, and within a moment."""
    requests = [Pending(model, number, **options) for number in range(count)]
    for request in requests:
        tasks.start_soon(request)
        await anyio.sleep(1e-6)
    return requests


@pytest.mark.parametrize(
    ("policy", "latest"), [(_Resident, FRAME), (SwapAware, 0.24)], ids=["resident first", "swap-aware"]
)
async def test_the_caller_is_told_at_the_decision_and_not_at_the_deadline(
    tasks: TaskGroup, policy: Callable[[], Policy], latest: float
) -> None:
    async with open_virtual(DEVICE, policy=policy()) as rt:
        waits, served = await _two(rt, Limits(weight=1e-6))
        long = await _ask(tasks, served, 40, timeout=0.41)
        began = anyio.current_time()
        (hopeless,) = await _ask(tasks, waits, timeout=0.25)
        (patient,) = await _ask(tasks, waits, timeout=2.0)
        await anyio.sleep(latest)
        assert isinstance(hopeless.error, DeadlineUnreachable)
        books = rt.statistics().models["waits"]
        assert (books.withdrawn, books.waiting, books.refused) == (1, 1, {})
        assert reconciles(books)
        await anyio.sleep(3)
        assert hopeless.ended is not None
        assert hopeless.ended <= began + latest
        assert all(request.answered_by("served") for request in long)
        assert patient.answered_by("waits")
        books = rt.statistics().models["waits"]
        assert (books.answered, books.withdrawn, books.expired, outstanding(books)) == (3, 1, 0, 0)


async def test_the_message_tells_its_numbers(tasks: TaskGroup) -> None:
    async with open_virtual(DEVICE, policy=_Resident()) as rt:
        waits, served = await _two(rt)
        await _ask(tasks, served, 21)
        with pytest.raises(DeadlineUnreachable) as told:
            await waits.infer(tensor(1), timeout=0.1)
        assert str(told.value) == "waits: an answer takes 0.23 s at least, and the deadline comes in 0.09 s"


async def test_its_place_is_taken_by_who_waits_for_one(tasks: TaskGroup) -> None:
    limits = Limits(queue=1, overflow=Overflow.WAIT)
    async with open_virtual(DEVICE, policy=_Resident()) as rt:
        waits, served = await _two(rt, limits)
        await _ask(tasks, served, 5)
        (first,) = await _ask(tasks, waits, timeout=0.2)
        (second,) = await _ask(tasks, waits)
        books = rt.statistics().models["waits"]
        assert (books.waiting, books.queueing, books.withdrawn) == (1, 1, 0)
        await _ask(tasks, served, 40)
        await anyio.sleep(FRAME)
        books = rt.statistics().models["waits"]
        assert (books.waiting, books.queueing, books.withdrawn) == (1, 0, 1)
        assert isinstance(first.error, DeadlineUnreachable)
        await anyio.sleep(2)
        assert second.answered_by("waits")
        assert reconciles(rt.statistics().models["waits"])


async def test_whom_a_scope_ends_alone_is_not_withdrawn(tasks: TaskGroup) -> None:
    async with open_virtual(DEVICE, policy=_Resident()) as rt:
        waits, served = await _two(rt)
        await _ask(tasks, served, 40)
        began = anyio.current_time()
        with anyio.move_on_after(0.25) as scope:
            await waits.infer(tensor(1))
        assert scope.cancelled_caught
        assert anyio.current_time() == pytest.approx(began + 0.25, abs=1e-3)
        assert rt.statistics().models["waits"].withdrawn == 0


async def test_a_higher_priority_waits_for_its_deadline(tasks: TaskGroup) -> None:
    """This policy knows no priorities; another one might have turned to it."""
    async with open_virtual(DEVICE, policy=_Resident()) as rt:
        waits, served = await _two(rt)
        await _ask(tasks, served, 40)
        (urgent,) = await _ask(tasks, waits, timeout=0.25, priority=1)
        await anyio.sleep(0.2)
        assert urgent.ended is None
        await anyio.sleep(1)
        assert isinstance(urgent.error, DeadlineExceeded)
        assert rt.statistics().models["waits"].withdrawn == 0


async def test_what_another_group_may_do_is_not_withdrawn(tasks: TaskGroup) -> None:
    devices = "sim://0?service_ms=10&swap_ms=20&window=1", "sim://1?service_ms=10&swap_ms=20&window=1"
    async with open_virtual(*devices, policy=_Resident()) as rt:
        waits = await rt.load(sketched("waits"), warm=True)
        served = await rt.load(sketched("served"), groups=[devices[0]], warm=True)
        long = await _ask(tasks, served, 40)
        requests = await _ask(tasks, waits, 3, timeout=0.25)
        await anyio.sleep(1)
        assert all(request.answered_by("waits") for request in requests)
        assert all(request.answered_by("served") for request in long)
        assert rt.statistics().models["waits"].withdrawn == 0


async def test_models_of_one_program_need_no_swap_behind_each_other(tasks: TaskGroup) -> None:
    async with open_virtual(DEVICE, policy=_Resident()) as rt:
        file = sketched("net")
        served = await rt.load(file, name="served", warm=True)
        waits = await rt.load(file, name="waits", warm=True)
        await _ask(tasks, served, 10)
        (request,) = await _ask(tasks, waits, timeout=0.115)  # 100 ms, and 10 of its own
        await anyio.sleep(1)
        assert request.answered_by("net")


async def test_a_scope_ends_in_its_own_way_beside_a_later_timeout(tasks: TaskGroup) -> None:
    async with open_virtual(DEVICE, policy=_Resident()) as rt:
        waits, served = await _two(rt)
        await _ask(tasks, served, 40)
        with anyio.move_on_after(0.25) as scope:
            await waits.infer(tensor(1), timeout=5)
        assert scope.cancelled_caught
