"""Stream calls: they tell little, wait long, and pair nothing."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from repertory.models.errors import DeviceHung, DeviceLost
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.transports.device import Device
from repertory.transports.memx.constants import CHIP_GENERATION, Status
from repertory.transports.memx.device import POLL, STALL, MemxDevice
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World
from tests.integration.support import Machine, image

from .rig import EVER, LATENCY, WHOLE, A, Watch, compat, content, loaded, meets, naked, read, right, write

pytestmark = pytest.mark.virtual

SLOW = replace(A, latency=1.0)


@meets()
async def test_an_answer_that_nobody_waits_for_is_read_out(machine: Machine, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        await loaded(library, A)
        for number in (1, 2):
            await write(library, number)
        assert await read(library) == (Status.OK, right(A, 1))
        assert await read(library) == (Status.OK, right(A, 2))  # whoever gave up on 2, and sent 3, gets this

    async def ask(model: Model, number: int) -> None:
        assert (await model.infer(image(number))).tobytes() == right(A, number)

    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(content(A), warm=True)
        machine.calls.clear()
        scope = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, model, 1)
            await anyio.sleep(LATENCY / 10)
            with scope:
                tasks.start_soon(_cancel, scope, LATENCY / 2)
                await model.infer(image(2))
            tasks.start_soon(ask, model, 3)
        assert scope.cancelled_caught
    assert len(machine.named("memx_stream_ifmap")) == 3
    assert machine.library.faults == []


async def _cancel(scope: anyio.CancelScope, after: float) -> None:
    """Cancel, not by a deadline, which the queue would take for the request's."""
    await anyio.sleep(after)
    scope.cancel()


def _window_of_one(world: World, library: SimulatedLibmemx, index: int) -> Device:
    return MemxDevice(world, lambda: library, index, simulated=True, window=1, lock=None)


@meets()
async def test_a_window_of_one_frame_has_a_queue_that_holds_it(
    machine: Machine, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        assert await library.memx_open(0, 0, CHIP_GENERATION) == Status.OK
        assert await library.memx_set_ifmap_queue_size(0, 1) == Status.OK
        assert await library.memx_download_model(0, content(A), 0, WHOLE) == Status.OK
        assert await library.memx_set_stream_enable(0, 0) == Status.OK
        assert await write(library, 1) == Status.INPUT_TIMEOUT

    machine.made = _window_of_one
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(content(A))
        for number in range(3):
            assert (await model.infer(image(number))).tobytes() == right(A, number)
    assert machine.library.faults == []


@meets(depth=1)
async def test_queues_have_their_size_before_the_first_download(
    machine: Machine, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        await loaded(library, SLOW)
        assert await library.memx_set_ifmap_queue_size(0, 100) == Status.OK
        statuses = [await write(library, number, timeout=1) for number in range(6)]
        assert statuses[-1] == Status.INPUT_TIMEOUT

    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(content(SLOW), warm=True)
        machine.calls.clear()
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(model.infer, image(number))
    assert [call.status for call in machine.calls if call.name == "memx_stream_ifmap"] == [Status.OK] * 8


# -- time-outs


@meets()
async def test_a_stream_call_is_back_soon_whatever_a_millisecond_is(
    machine: Machine, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        await loaded(library, A)
        began = world.now()
        status, _ = await read(library, timeout=50)
        assert status == Status.OUTPUT_TIMEOUT
        assert (world.now() - began > 0.4) is compat(machine)

    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(content(SLOW), warm=True)
        watch = Watch(machine.library, machine.world.now)
        assert (await model.infer(image(1))).tobytes() == right(SLOW, 1)
    assert len(watch.took) > 10
    assert max(watch.took) < 2 * POLL


@meets(poll_factor=60.0)  # a host that sleeps so coarsely
async def test_a_timeout_of_zero_is_never_asked_for(machine: Machine, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        await loaded(library, A)
        began = world.now()
        await read(library, timeout=1)
        assert world.now() - began > POLL  # so one of POLL would round to none
        with anyio.move_on_after(EVER) as scope:
            await read(library, timeout=0)
        assert scope.cancelled_caught

    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(content(SLOW))
        for number in range(2):
            assert (await model.infer(image(number))).tobytes() == right(SLOW, number)
    asked = {args[-1] for args in machine.named("memx_stream_ifmap", "memx_stream_ofmap")}
    assert min(asked) > 0
    assert machine.library.faults == []


# -- silence


@meets()
@pytest.mark.parametrize("fate", ["hang", "gone"])
async def test_a_transport_that_fails_is_found_out_by_its_silence(
    fate: str, machine: Machine, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        await loaded(library, A)
        getattr(library, fate)(0)
        assert await write(library, 1) == Status.OK
        status, _ = await read(library)
        assert status == Status.OUTPUT_TIMEOUT

    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(content(A), warm=True)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_told, model)
            await anyio.sleep(LATENCY / 2)
            getattr(machine.library, fate)(0)
            await anyio.sleep(STALL)
            assert rt.statistics().groups["group 0"].error == "group 0: no completion for 5.0 s"
    assert machine.library.faults == []


async def _told(model: Model) -> None:
    with pytest.raises((DeviceHung, DeviceLost)):
        await model.infer(image(1))


@meets()
async def test_nothing_is_called_while_nothing_is_in_flight(machine: Machine, anyio_backend: object) -> None:
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(content(A), warm=True)
        for number in range(3):
            calls = len(machine.calls)
            await anyio.sleep(3600)
            assert len(machine.calls) == calls
            assert (await model.infer(image(number))).tobytes() == right(A, number)
            assert (machine.calls[-1].name, machine.calls[-1].status) == ("memx_stream_ofmap", Status.OK)
    assert machine.library.faults == []
