"""Loaded and idle: nothing is called, nothing wakes."""

from __future__ import annotations

import selectors
from typing import Any, final

import anyio
import pytest
import trio
from anyio.lowlevel import checkpoint

from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.transports.memx.constants import Status
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.wheel import Wheel
from repertory.transports.world import World
from tests.memx.files import Net, dfp

from .support import Machine, image

NETS = tuple(Net(name, seed=seed, outputs=1, latency=0.002) for seed, name in enumerate("abc"))
HOUR = 3600.0
TIMEOUT = 10.0


async def _busy(rt: Runtime) -> None:
    """Load three models and let all of them work, with deadlines that will never be needed."""
    models = [await rt.load(dfp(net)) for net in NETS]
    async with anyio.create_task_group() as tasks:
        for number in range(30):
            tasks.start_soon(_ask, models[number % 3], number)


async def _ask(model: Any, number: int) -> None:
    await model.infer(image(number), timeout=TIMEOUT)


@final
class Waits(trio.abc.Instrument):
    """Counts how often the event loop waited for something to happen."""

    count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += timeout > 0


@pytest.fixture
def waits(anyio_backend_name: str, monkeypatch: pytest.MonkeyPatch) -> Waits:
    counter = Waits()
    if anyio_backend_name == "asyncio":
        select = selectors.DefaultSelector.select

        def counted(selector: Any, timeout: float | None = None) -> Any:
            counter.before_io_wait(1)
            return select(selector, timeout)

        monkeypatch.setattr(selectors.DefaultSelector, "select", counted)
    return counter


def _watch(waits: Waits, backend: str) -> None:
    if backend == "trio":
        trio.lowlevel.add_instrument(waits)
    waits.count = 0


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the wheel looked for what is due."""
    moments: list[float] = []
    upcoming = Wheel._next  # pyright: ignore[reportPrivateUsage]

    def counted(wheel: Wheel) -> int | None:
        moments.append(anyio.current_time())
        return upcoming(wheel)

    monkeypatch.setattr(Wheel, "_next", counted)
    return moments


@pytest.mark.virtual
async def test_an_idle_hour_passes_in_a_few_steps(
    waits: Waits, looks: list[float], anyio_backend_name: str, anyio_backend: object
) -> None:
    machine = Machine(SimulatedMx3())
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        await _busy(rt)
        await anyio.sleep(2 * TIMEOUT)  # what is left on the wheel of deadlines long met
        _watch(waits, anyio_backend_name)
        machine.calls.clear()
        looks.clear()
        await anyio.sleep(HOUR)
        assert machine.calls == []
        assert looks == []
        assert waits.count <= 3
        assert [model.in_flight for model in rt.statistics().models.values()] == [0, 0, 0]


@pytest.mark.virtual
async def test_the_wheel_wakes_once_for_deadlines_that_were_met(
    looks: list[float], anyio_backend: object
) -> None:
    machine = Machine(SimulatedMx3())
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        await _busy(rt)
        looks.clear()
        await anyio.sleep(HOUR)
    assert len(looks) <= 2


async def test_no_thread_is_called_on_and_none_hands_over(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    async with open_runtime([machine.group()]) as rt:
        await _busy(rt)
        with anyio.fail_after(5):
            while not _parked(machine.world):  # the hand-over's last round
                await checkpoint()
        calls = len(machine.calls)
        for _ in range(1000):
            await checkpoint()
            assert _parked(machine.world)
        assert len(machine.calls) == calls
        assert machine.calls[-1].name == "memx_stream_ofmap"
        assert machine.calls[-1].status == Status.OK


def _parked(world: World) -> bool:
    """Whether no driver call is out, and the hand-over sleeps until one is."""
    assert isinstance(world, RealWorld)
    return not world._calls and world._idle is not None  # pyright: ignore[reportPrivateUsage]
