"""A thousand callers on one group, and a device that hangs under them."""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

import repertory
from repertory.actors.bounds import CLOSE_BOUND
from repertory.actors.flightbook import FlightBook
from repertory.models.errors import DeadlineExceeded, DeadlineUnreachable, DeviceHung, DeviceLost
from repertory.models.program import Program
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.transports.device import Device, Residency
from repertory.transports.memx.device import BIND_BOUND, STALL, MemxDevice
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.memx.simulator.rules import SimulatorFault
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World, drive
from tests.memx.files import Net, dfp
from tests.runtime.support import reconciles

from .support import Floats, Machine, expected, image

NETS = tuple(
    Net(name, seed=seed, outputs=1, latency=0.002, interval=0.001) for seed, name in enumerate("abc")
)
CALLERS = 1000


@dataclass
class Caller:
    """One request and what became of it: answered, wrong, late, refused, cancelled, or never asked.

    Attributes:
        start: when it asks, in seconds from the storm's beginning.
        cancel: when somebody cancels it, or None.
        timeout: its own, or None.
    """

    net: Net
    number: int
    start: float
    cancel: float | None
    timeout: float | None
    end: str = "never asked"

    def __post_init__(self) -> None:
        self.scope = anyio.CancelScope()

    async def __call__(self, model: Model) -> None:
        with self.scope as scope:
            await anyio.sleep(self.start)
            self.end = "asked"
            try:
                answer: Floats = await model.infer(image(self.number), timeout=self.timeout)
            except DeadlineExceeded:
                self.end = "late"
            except DeadlineUnreachable:
                self.end = "told early"
            else:
                right = answer.tobytes() == expected(self.net, image(self.number))[0].tobytes()
                self.end = "answered" if right else "wrong"
        if scope.cancelled_caught and self.end == "asked":
            self.end = "cancelled"


async def _cancel(callers: list[Caller]) -> None:
    """Cancel those whose time has come; no deadline, which the queue would take for an urgency."""
    began = anyio.current_time()
    moments = [(caller.cancel, caller) for caller in callers if caller.cancel is not None]
    for moment, caller in sorted(moments, key=lambda pair: pair[0]):
        await anyio.sleep_until(began + moment)
        caller.scope.cancel()


def _callers(seed: int) -> list[Caller]:
    """A third will be cancelled at random moments; one in ten of the others has a deadline."""
    draw = random.Random(seed)
    fates = ["cancel"] * (CALLERS // 3) + ["deadline"] * (CALLERS // 15)
    fates += [""] * (CALLERS - len(fates))
    draw.shuffle(fates)
    return [
        Caller(
            NETS[number % len(NETS)],
            number,
            draw.uniform(0, 0.2),
            draw.uniform(0, 1.0) if fate == "cancel" else None,
            draw.uniform(0.01, 0.6) if fate == "deadline" else None,
        )
        for number, fate in enumerate(fates)
    ]


@pytest.mark.parametrize(
    ("make_world", "anyio_backend", "seed"),
    [
        *((RealWorld, backend, 0) for backend in ("asyncio", "trio")),
        *(
            pytest.param(VirtualWorld, backend, seed, marks=pytest.mark.virtual)
            for backend in ("asyncio", "trio")
            for seed in (1, 2, 3)
        ),
    ],
    indirect=["anyio_backend"],
)
async def test_a_storm_of_cancels_harms_nobody_else(
    make_world: type[World], seed: int, anyio_backend: object
) -> None:
    machine = Machine(SimulatedMx3(swap_ms=10))
    callers = _callers(seed)
    async with open_runtime([machine.group()], world=make_world()) as rt:
        models = {net: await rt.load(dfp(net)) for net in NETS}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel, callers)
            for caller in callers:
                tasks.start_soon(caller, models[caller.net])
        for model in models.values():  # a swap drains what cancelled callers left on the device
            await model.infer(image(0))
        statistics = rt.statistics()

    for caller in callers:
        if caller.cancel is None:
            assert caller.end == "answered" or (caller.end in {"late", "told early"} and caller.timeout)
        else:
            assert caller.end in {"answered", "cancelled", "never asked"}
    ends = Counter(caller.end for caller in callers)
    assert ends["cancelled"] > CALLERS // 10
    assert ends["late"] + ends["told early"]
    books = statistics.models.values()
    assert all(map(reconciles, books))
    assert [(book.waiting, book.in_flight) for book in books] == [(0, 0)] * 3
    answered = sum(book.answered for book in books) - 3
    cancelled = sum(book.cancelled for book in books)
    assert sum(book.expired for book in books) == ends["late"]
    withdrawn = sum(book.withdrawn for book in books)
    refused = sum(book.refused.get("deadline", 0) for book in books)
    assert withdrawn + refused == ends["told early"]
    # a cancel may come when the outcome is fixed already, or before the request was admitted
    assert 0 <= answered - ends["answered"] <= 5
    assert 0 <= ends["cancelled"] - cancelled <= 5
    assert sum(book.admitted for book in books) == answered + cancelled + ends["late"] + withdrawn + 3
    (group,) = statistics.groups.values()
    assert (group.in_flight, group.incarnations) == (0, 1)
    assert group.swaps > 3
    assert group.completed < CALLERS
    assert machine.library.faults == []


# -- rebinding under a frame


@pytest.mark.virtual
@pytest.mark.parametrize("call", ["memx_reconfigure", "memx_download_model"])
async def test_the_simulator_refuses_a_swap_under_a_frame(call: str, anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3(latency_ms=1000))
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(dfp(Net(latency=1.0)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(model.infer, image(0))
            await anyio.sleep(0.5)
            assert rt.statistics().groups["group 0"].in_flight == 1
            arguments: dict[str, tuple[Any, ...]] = {
                "memx_reconfigure": (0, 0),
                "memx_download_model": (0, dfp(Net("b")), 0, 0x83),
            }
            with pytest.raises(SimulatorFault, match=f"{call}: .* has a transfer in flight"):
                drive(getattr(machine.library, call)(*arguments[call]))
    assert len(machine.library.faults) == 1


class Reckless(MemxDevice):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]
    """Swaps without asking what is in flight, and without stopping what runs."""

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        assert program is not None
        self._control._running = None  # pyright: ignore[reportPrivateUsage]
        self._streams.model_id = await self._call(lambda: self._control.swap(program), "memx_download_model")
        self._flight._seats.clear()  # pyright: ignore[reportPrivateUsage]
        return self._flight.settle_in(Residency(program, self._window))


def _reckless(world: World, library: SimulatedLibmemx, index: int) -> Device:
    return Reckless(world, lambda: library, index, simulated=True, window=8, lock=None)


@pytest.mark.virtual
async def test_a_device_that_does_not_drain_is_found_out(
    monkeypatch: pytest.MonkeyPatch, anyio_backend: object
) -> None:
    def careless(_flight: FlightBook, _evict: Sequence[Program]) -> bool:
        return False

    monkeypatch.setattr(FlightBook, "blocks", careless)
    machine = Machine(SimulatedMx3(), made=_reckless)
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        models = [await rt.load(dfp(net)) for net in NETS]
        async with anyio.create_task_group() as tasks:
            for number in range(240):
                tasks.start_soon(_endure, models[number % 3], number)
    assert machine.library.faults
    assert "in flight" in str(machine.library.faults[0])


async def _endure(model: Model, number: int) -> None:
    with contextlib.suppress(repertory.RepertoryError):
        await model.infer(image(number))


# -- a device that hangs

TOLD = STALL + BIND_BOUND + 2 * CLOSE_BOUND + 1
"""Seconds within which every caller of a hung device knows: found out, closed, tried once more, closed."""


@pytest.mark.virtual
async def test_callers_of_a_hung_device_are_told_and_others_are_served(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3(groups=2))
    hung = math.inf
    ends: list[tuple[float, BaseException]] = []
    served = 0

    async def suffer(model: Model, number: int) -> None:
        try:
            while True:
                await model.infer(image(number))
        except (DeviceHung, DeviceLost) as error:
            ends.append((anyio.current_time(), error))

    async def enjoy(model: Model) -> None:
        nonlocal served
        while len(ends) < 20:
            answer = await model.infer(image(served))
            assert answer.tobytes() == expected(NETS[2], image(served))[0].tobytes()
            served += 1
            await anyio.sleep(0.1)

    async with open_runtime([machine.group(0), machine.group(1)], world=VirtualWorld()) as rt:
        doomed = [await rt.load(dfp(net), groups=["group 0"]) for net in NETS[:2]]
        well = await rt.load(dfp(NETS[2]), groups=["group 1"])
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(suffer, doomed[number % 2], number)
            tasks.start_soon(enjoy, well)
            await anyio.sleep(1)
            machine.library.hang(0)
            hung = anyio.current_time()
        assert max(when for when, _ in ends) - hung < TOLD
        assert await _dead(rt, doomed[0]) < TOLD
        await well.infer(image(1))
        began = anyio.current_time()
    assert served > 100
    assert anyio.current_time() - began < 20
    assert machine.library.faults == []


async def _dead(rt: Runtime, model: Model) -> float:
    """Return how long a late comer waits to be told."""
    began = anyio.current_time()
    with pytest.raises((DeviceHung, DeviceLost)):
        await model.infer(image(0))
    return anyio.current_time() - began


@pytest.mark.virtual
async def test_a_runtime_closes_on_a_hung_device_under_load(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    ends: list[BaseException] = []

    async def suffer(model: Model, number: int) -> None:
        try:
            while True:
                await model.infer(image(number))
        except repertory.RepertoryError as error:
            ends.append(error)

    async with anyio.create_task_group() as tasks:
        async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
            models = [await rt.load(dfp(net)) for net in NETS]
            for number in range(30):
                tasks.start_soon(suffer, models[number % 3], number)
            await anyio.sleep(0.5)
            machine.library.hang(0)
            await anyio.sleep(0.5)
            began = anyio.current_time()
        assert anyio.current_time() - began < 15
    assert len(ends) == 30
