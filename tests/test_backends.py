from __future__ import annotations

import asyncio
from importlib import import_module

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from repertory.transports.virtual import virtual_options

from .determinism import seeded_trio


@pytest.mark.virtual
async def test_virtual_time_jumps_instead_of_passing() -> None:
    start = anyio.current_time()
    await anyio.sleep(3600)
    assert anyio.current_time() == pytest.approx(start + 3600)


@pytest.mark.virtual
async def test_virtual_time_keeps_the_order_of_deadlines() -> None:
    order: list[int] = []

    async def note(hours: int) -> None:
        await anyio.sleep(hours * 3600)
        order.append(hours)

    async with anyio.create_task_group() as tasks:
        for hours in (3, 1, 2):
            tasks.start_soon(note, hours)
    assert order == [1, 2, 3]


@pytest.mark.virtual
@given(seconds=st.floats(0.001, 1e6))
@settings(max_examples=10)
async def test_virtual_time_serves_every_example_of_a_property(seconds: float) -> None:
    start = anyio.current_time()
    await anyio.sleep(seconds)
    assert anyio.current_time() - start == pytest.approx(seconds)


async def test_real_time_is_the_default(anyio_backend: tuple[str, dict[str, object]]) -> None:
    assert anyio_backend[1] == {}


@pytest.mark.realtime
async def test_uvloop_runs_where_it_is_asked_for(request: pytest.FixtureRequest) -> None:
    wanted = {"asyncio": "asyncio", "uvloop": "uvloop", "trio": None}[request.node.callspec.id]
    assert wanted is None or type(asyncio.get_running_loop()).__module__.split(".")[0] == wanted


def test_uvloop_runs_nowhere_else(anyio_backend_name: str, request: pytest.FixtureRequest) -> None:
    assert request.node.callspec.id == anyio_backend_name


@pytest.mark.parametrize("anyio_backend", ["trio"], indirect=True)
async def test_a_test_may_choose_its_backend(anyio_backend_name: str) -> None:
    assert anyio_backend_name == "trio"


def _order_of_tasks(seed: int) -> list[int]:
    order: list[int] = []

    async def step(number: int) -> None:
        for _ in range(4):
            await checkpoint()
            order.append(number)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(step, number)

    with seeded_trio(seed):
        anyio.run(main, backend="trio", backend_options=virtual_options("trio"))
    return order


def test_a_seeded_run_replays_on_trio() -> None:
    assert _order_of_tasks(1) == _order_of_tasks(1)
    assert len({tuple(_order_of_tasks(seed)) for seed in range(10)}) > 1


def test_seeding_leaves_the_scheduler_as_it_was() -> None:
    scheduler = import_module("trio._core._run")
    before = scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    with seeded_trio(1):
        assert scheduler._r is not before[0]
    assert (scheduler._r, scheduler._ALLOW_DETERMINISTIC_SCHEDULING) == before


def test_seeding_fails_loudly_where_trio_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("trio._core._run._r")
    with pytest.raises(pytest.fail.Exception, match="no longer replay"), seeded_trio(1):
        pass
