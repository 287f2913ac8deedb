"""Devices, callers and options that nobody should write, and somebody does."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import anyio
import numpy as np
import pytest
from anyio.lowlevel import checkpoint

import repertory
from repertory import Limits, Overflow
from repertory.actors.bounds import CLOSE_BOUND, OPEN_BOUND
from repertory.models.errors import ConfigError, DeviceError, DeviceHung, InvalidInput, RuntimeClosed
from repertory.transports.device import Completed, Completion, Fault
from repertory.transports.frame import Frame
from repertory.transports.memory import InMemoryDevice
from repertory.transports.world import World

from .support import SETTLED, answer, open_virtual, reconciles, sketched, tensor

virtual = pytest.mark.virtual


class Odd(InMemoryDevice):  # type: ignore[misc]  # final for users; here it is bent on purpose
    """An in-memory device with one method bent by each test."""

    def bend(self, name: str, method: Callable[..., Any]) -> Odd:
        setattr(self, name, method)
        return self


def odd(name: str, method: Callable[..., Any]) -> Callable[[World], InMemoryDevice]:
    """Return what makes such a device; `method` gets the device first."""

    def make(world: World) -> InMemoryDevice:
        device = Odd(world)
        return device.bend(name, partial(method, device))

    return make


@virtual
async def test_device_that_raises_in_abandon_takes_no_other_group_with_it() -> None:
    made: list[InMemoryDevice] = []

    def abandon(device: InMemoryDevice, frame: Frame) -> None:
        raise ValueError("abandon")

    async def open_(device: InMemoryDevice, completed: Completed, fault: Fault) -> None:
        made.append(device)
        device.abandon = partial(abandon, device)  # type: ignore[method-assign]
        await InMemoryDevice.open(device, completed, fault)

    async with open_virtual(odd("open", open_), "sim://") as rt:
        bad = await rt.load(sketched("bad"), groups=["make"])
        good = await rt.load(sketched("good"), groups=["sim://"])
        made[0].holding = True
        with pytest.raises(repertory.DeadlineExceeded):
            await bad.infer(tensor(1), timeout=0.05)
        await anyio.sleep(SETTLED)
        assert (await good.infer(tensor(2)) == answer("good", 2)).all()
        assert (await bad.infer(tensor(3)) == answer("bad", 3)).all()  # its next incarnation serves
        assert rt.statistics().groups["make"].incarnations == 2


@virtual
async def test_device_that_does_not_close_is_left_behind() -> None:
    async def close(device: InMemoryDevice, *, bound: float) -> None:
        await anyio.sleep(3600)

    async with open_virtual(odd("close", close)) as rt:
        await rt.load(sketched("net"), warm=True)
        began = anyio.current_time()
    assert anyio.current_time() - began < 2 * CLOSE_BOUND + 2


@virtual
async def test_opening_is_given_up_when_whoever_opens_is_cancelled() -> None:
    began = anyio.current_time()
    with anyio.move_on_after(1.0):
        async with open_virtual(odd("open", _never_opens)):
            pytest.fail("it cannot have opened")
    assert anyio.current_time() - began < 1.0 + 2 * CLOSE_BOUND + 2


@virtual
async def test_device_that_does_not_open_is_hung() -> None:
    with pytest.raises(DeviceHung, match="has not opened"):
        async with open_virtual(odd("open", _never_opens)):
            pytest.fail("it cannot have opened")
    assert anyio.current_time() >= OPEN_BOUND


async def _never_opens(device: InMemoryDevice, completed: Completed, fault: Fault) -> None:
    await anyio.sleep_forever()


@virtual
async def test_device_that_cannot_be_made_ends_the_opening() -> None:
    def broken(world: World) -> InMemoryDevice:
        raise ValueError("no such board")

    with pytest.raises(DeviceError, match="no such board"):
        async with open_virtual("null://", broken):
            pytest.fail("it cannot have opened")


@virtual
@pytest.mark.parametrize("outputs", [(), (np.zeros(16, np.float32),) * 2], ids=["none", "two"])
async def test_device_that_gives_too_few_or_too_many_outputs_breaks_its_contract(outputs: Any) -> None:
    def compute(device: InMemoryDevice, frame: Frame) -> Any:
        return outputs

    async with open_virtual(odd("compute", compute)) as rt:
        model = await rt.load(sketched("net"))
        with pytest.raises(repertory.ContractError, match="outputs"):
            await model.infer(tensor(1))
        await anyio.sleep(SETTLED)
        assert "broke its contract" in (rt.statistics().groups["make"].error or "")
        assert reconciles(rt.statistics().models["net"])


@virtual
async def test_device_that_completes_twice_breaks_its_contract_and_harms_nobody() -> None:
    async def open_(device: Any, completed: Completed, fault: Fault) -> None:
        def twice(completions: Sequence[Completion]) -> None:
            completed(completions)
            completed(completions)

        await InMemoryDevice.open(device, twice, fault)

    async with open_virtual(odd("open", open_), "sim://") as rt:
        model = await rt.load(sketched("net"), groups=["make"])
        good = await rt.load(sketched("good"), groups=["sim://"])
        assert (await model.infer(tensor(1)) == answer("net", 1)).all()
        await anyio.sleep(SETTLED)
        assert "broke its contract" in (rt.statistics().groups["make"].error or "")
        assert (await good.infer(tensor(2)) == answer("good", 2)).all()


@virtual
async def test_timeout_beyond_all_clocks_is_no_deadline() -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(sketched("net"), limits=Limits(queue=1))
        for number in range(3):
            assert (await model.infer(tensor(number), timeout=sys.float_info.max)).shape == (16,)
        statistics = rt.statistics().models["net"]
        assert statistics.answered == 3
        assert reconciles(statistics)


@virtual
async def test_overflow_may_be_given_by_its_name() -> None:
    assert Limits(overflow="wait").overflow is Overflow.WAIT  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="refuse, wait, drop_oldest"):
        Limits(overflow="block")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="whole number"):
        Limits(queue=1.5)  # type: ignore[arg-type]


@virtual
@pytest.mark.parametrize(
    "options",
    [
        {"priority": 1000},
        {"priority": "high"},
        {"timeout": -1.0},
        {"timeout": float("nan")},
        {"timeout": "1"},
        {"limits": 5},
        {"name": ""},
        {"name": 5},
        {"groups": "sim://"},
    ],
    ids=str,
)
async def test_options_of_load_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    async with open_virtual("sim://") as rt:
        with pytest.raises(ConfigError):
            await rt.load(sketched("net"), **options)
        assert (await (await rt.load(sketched("net"))).infer(tensor(1))).shape == (16,)


@virtual
async def test_timeout_that_is_no_number_is_refused() -> None:
    async with open_virtual("sim://") as rt:
        model = await rt.load(sketched("net"))
        with pytest.raises(InvalidInput, match="timeout"):
            await model.infer(tensor(1), timeout="1")  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["sim://", [5], [None]], ids=str)
def test_sources_that_are_none_are_refused_at_once(source: Any) -> None:
    with pytest.raises(ConfigError):
        repertory.open_runtime(source)


@virtual
async def test_simulated_device_skips_frames_whose_callers_have_gone() -> None:
    async with open_virtual("sim://?service_ms=1000&window=8") as rt:
        model = await rt.load(sketched("net"), warm=True)
        async with anyio.create_task_group() as callers:
            for number in range(8):
                callers.start_soon(model.infer, tensor(number))
            await anyio.sleep(0.5)
            callers.cancel_scope.cancel()
        began = anyio.current_time()
        await model.infer(tensor(9))
        assert anyio.current_time() - began < 1.6  # the rest of the running one, and its own second


async def test_use_from_another_thread_is_refused() -> None:
    found: list[BaseException | None] = []

    async with repertory.open_runtime(["null://"]) as rt:
        model = await rt.load(sketched("net"))

        async def elsewhere() -> None:
            for use in (lambda: model.infer(tensor(1)), lambda: rt.unload("net")):
                try:
                    await use()
                except Exception as error:  # noqa: BLE001  (looked at below)
                    found.append(error)

        thread = threading.Thread(target=partial(anyio.run, elsewhere))
        thread.start()
        thread.join(10)  # the event loop stands still meanwhile, on purpose
        assert [type(error) for error in found] == [RuntimeClosed, RuntimeClosed]
        assert (await model.infer(tensor(1))).shape == (16,)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_native_cancel_does_not_tear_a_closing_runtime_apart(anyio_backend: object) -> None:
    """asyncio's own `Task.cancel` knows no shield; what is left must be closed all the same."""
    before = set(threading.enumerate())
    leaving = anyio.Event()

    async def app() -> None:
        async with repertory.open_runtime(["sim://?service_ms=300"]) as rt:
            model = await rt.load(sketched("net"), warm=True)
            with anyio.move_on_after(0.05):
                await model.infer(tensor(1))
            leaving.set()

    task = asyncio.ensure_future(app())  # noqa: TID251  (a user's own)
    await leaving.wait()
    for _ in range(3):
        await checkpoint()
        assert task.cancel(), "it is closing, and waits for the frame that runs"
    with pytest.raises(asyncio.CancelledError):
        await task
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive(), "what the runtime began has ended"
