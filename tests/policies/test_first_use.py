"""What nobody knows yet: first calls that are slow, groups that were never tried, swaps that do not end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any
from unittest.mock import patch

import anyio
import pytest

from repertory.models.errors import RepertoryError
from repertory.runtime.model import Model
from repertory.transports.simulated import SimulatedDevice
from tests.policies.loads import every
from tests.runtime.support import SETTLED, Memory, Pending, open_virtual, sketched, tensor

pytestmark = pytest.mark.virtual


async def _ask(models: Mapping[Model, Iterable[float]], timeout: float) -> tuple[Counter[str], list[str]]:
    """Send requests at these moments from now; count answers, and return whose were lost, in their order."""
    answered, lost, began = Counter[str](), list[str](), anyio.current_time()

    async def ask(model: Model, at: float) -> None:
        await anyio.sleep_until(began + at)
        try:
            await model.infer(tensor(1), timeout=timeout)
            answered[model.name] += 1
        except RepertoryError:
            lost.append(model.name)

    async with anyio.create_task_group() as tasks:
        for model, moments in models.items():
            for at in moments:
                tasks.start_soon(ask, model, at)
    return answered, lost


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("first", [0.3, 3.0])
async def test_a_slow_first_call_is_not_held_against_the_next(first: float, *, warm: bool) -> None:
    calls, service = count(), vars(SimulatedDevice)["_service"]

    def slow_at_first(device: SimulatedDevice, *args: Any) -> float:
        seconds: float = service(device, *args)
        return seconds if next(calls) else first

    with patch.object(SimulatedDevice, "_service", slow_at_first):
        async with open_virtual("sim://0?service_ms=5&window=1") as rt:
            model = await rt.load(sketched("net"), warm=warm)
            _, lost = await _ask({model: every(0.05, end=5.0)}, 0.05)
    assert len(lost) <= (0 if warm else first / 0.05 + 3)


@pytest.mark.parametrize("slow_first", [False, True])
@pytest.mark.parametrize("warm", [False, True])
async def test_a_group_that_is_quick_enough_is_found(*, slow_first: bool, warm: bool) -> None:
    groups = "sim://slow?service_ms=40&window=1", "sim://quick?service_ms=20&window=1"
    async with open_virtual(*(groups if slow_first else groups[::-1])) as rt:
        model = await rt.load(sketched("net"), warm=warm)
        answered, lost = await _ask({model: every(0.1, end=5.0)}, 0.033)
    assert answered["net"] >= 47, lost


@pytest.mark.parametrize("slow_first", [False, True])
async def test_a_slow_group_leaves_what_it_could_only_answer_too_late(*, slow_first: bool) -> None:
    groups = "sim://slow?service_ms=300&window=1", "sim://quick?service_ms=10&window=1"
    async with open_virtual(*(groups if slow_first else groups[::-1])) as rt:
        one, other = await rt.load(sketched("one")), await rt.load(sketched("other"))
        moments = {one: every(0.05, end=6.0), other: every(0.1, 0.013, 6.0)}
        _, lost = await _ask(moments, 0.2)
    assert len(lost) < 0.05 * 180


@pytest.mark.parametrize("slow_first", [False, True])
@pytest.mark.parametrize("timeout", [0.5, 100.0])
async def test_a_swap_that_does_not_end_holds_nobody_where_another_group_is_idle(
    timeout: float, *, slow_first: bool
) -> None:
    groups = "sim://slow?service_ms=10&swap_ms=4000&window=1", "sim://quick?service_ms=10&swap_ms=20&window=1"
    async with open_virtual(*(groups if slow_first else groups[::-1])) as rt:
        model, began = await rt.load(sketched("net")), anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(lambda: model.infer(tensor(number), timeout=timeout))  # noqa: B023
            await anyio.sleep(0.2)
            assert rt.statistics().models["net"].answered == 4, anyio.current_time() - began


@pytest.mark.parametrize("count", [2, 12])
@pytest.mark.parametrize("timeout", [0.5, None])
async def test_a_first_frame_that_does_not_end_holds_nobody_where_another_group_is_idle(
    count: int, timeout: float | None
) -> None:
    groups = [Memory(name, window=1, holding=True) for name in ("first", "second")]
    async with open_virtual(*groups) as rt, anyio.create_task_group() as tasks:
        model = await rt.load(sketched("net"))
        hung = Pending(model, 0, timeout=timeout)
        tasks.start_soon(hung)
        await anyio.sleep(SETTLED)
        [free] = [memory for memory in groups if not memory.device.held]
        free.let_go()
        others = [Pending(model, number, timeout=timeout) for number in range(1, count)]
        for other in others:
            tasks.start_soon(other)
        await anyio.sleep(0.1)
        assert all(other.answered_by("net") for other in others)
        assert not hung.answered_by("net")
        for memory in groups:
            memory.let_go()


@pytest.mark.parametrize("others", [1, 2])
@pytest.mark.parametrize("timeout", [0.5, None])
async def test_a_first_frame_that_hangs_holds_nobody_though_other_groups_have_something_to_do(
    others: int, timeout: float | None
) -> None:
    first, *rest = [Memory(name, window=1) for name in ("first", "second", "third")[: 1 + others]]
    for each in (first, *rest):
        each.bind_seconds = 0.02
    async with open_virtual(first, *rest) as rt, anyio.create_task_group() as tasks:
        busy = [
            await rt.load(sketched(f"busy{number}"), groups=[each.__name__], warm=True)
            for number, each in enumerate(rest)
        ]
        model = await rt.load(sketched("net"))
        first.holding = first.device.holding = True
        asked = [Pending(each, number) for number in range(20) for each in busy]
        hung = Pending(model, 0)
        tasks.start_soon(hung)
        await anyio.sleep(0.02 + SETTLED)
        assert first.device.held
        late = [Pending(model, number, timeout=timeout) for number in range(1, 21)]
        for number, pending in enumerate(late):
            for other in asked[number * others : (number + 1) * others]:
                tasks.start_soon(other)
            tasks.start_soon(pending)
            await anyio.sleep(0.1)
        assert sum(pending.answered_by("net") for pending in late) >= 18, "those that came while nobody knew"
        assert all(other.value is not None for other in asked)
        first.let_go()


async def test_a_model_that_could_never_be_in_time_takes_no_group_from_another() -> None:
    groups = [f"sim://{number}?service_ms=10&swap_ms=20&window=1" for number in range(2)]
    async with open_virtual(*groups) as rt:
        slow, good = await rt.load(sketched("slow", service=2.0)), await rt.load(sketched("good"))
        moments = {good: every(0.033, end=6.0), slow: every(0.1, end=6.0)}
        began = anyio.current_time()

        async def ask(model: Model, at: float, timeout: float) -> None:
            await anyio.sleep_until(began + at)
            with suppress(RepertoryError):
                await model.infer(tensor(1), timeout=timeout)

        async with anyio.create_task_group() as tasks:
            for model, timeout in ((good, 0.2), (slow, 0.1)):
                for at in moments[model]:
                    tasks.start_soon(ask, model, at, timeout)
        assert rt.statistics().models["good"].answered == len(moments[good])
