"""Model contexts: 32 of them, each on one group, and nobody may be inside one that is closed."""

from __future__ import annotations

import anyio
import pytest

from repertory.actors.bounds import CLOSE_BOUND
from repertory.models.errors import DeviceError
from repertory.runtime.opening import open_runtime
from repertory.transports.frame import Fate
from repertory.transports.memx.constants import CHIP_GENERATION, CONTEXTS, Status
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.profile import Trap
from repertory.transports.memx.simulator.rules import SimulatorFault
from repertory.transports.virtual import VirtualWorld
from tests.integration.support import Machine, image
from tests.memx.files import Net

from .rig import (
    EVER,
    LATENCY,
    A,
    B,
    Watch,
    check,
    compat,
    content,
    loaded,
    meets,
    naked,
    prepared,
    read,
    right,
    trial,
)

pytestmark = pytest.mark.virtual


@meets(Trap.CLOSE_OF_CLOSED)
async def test_a_context_that_could_not_be_opened_again_is_closed_once(
    machine: Machine, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        status = await naked(machine, world).memx_close(0)
        assert status == (Status.CONTEXT_NOT_OPEN if compat(machine) else Status.OK)

        device = trial(machine, world)
        program, _ = await device.open_bound()
        await check(device, program, A)
        machine.library.gone(0)
        with pytest.raises(DeviceError):  # of a group that vanished, the context is bound anew
            await device.bind(program, program)
        await device.close()
    closes = [call.status for call in machine.calls if call.name == "memx_close"]
    opens = [call.status for call in machine.calls if call.name == "memx_open"]
    assert closes == [Status.OK] * opens.count(Status.OK)
    assert machine.library.faults == []


@meets(firmware=5)
async def test_sizes_of_a_context_that_is_not_open_are_never_asked_for(
    machine: Machine, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        with pytest.raises(SimulatorFault, match="libmemx crashes"):
            await naked(machine, world).memx_get_ifmap_size(0, 0)

        device = trial(machine, world)
        with pytest.raises(DeviceError, match="firmware too old") as caught:
            await device.open_bound()
        assert caught.value.call == "memx_open"
        await device.close()
    assert machine.named("memx_get_ifmap_size", "memx_get_ofmap_size") == []
    assert machine.library.faults == []


@meets(swap_ms=0.0)
async def test_the_33rd_program_takes_the_place_of_the_one_that_was_idle_longest(
    machine: Machine, anyio_backend: object
) -> None:
    nets = [Net(f"n{seed}", seed=seed, outputs=1) for seed in range(CONTEXTS + 1)]
    async with VirtualWorld() as world:
        assert await naked(machine, world).memx_open(CONTEXTS, 0, CHIP_GENERATION) == Status.BAD_MODEL_ID

        device = trial(machine, world)
        await device.open()
        programs = [prepared(device, net) for net in nets]
        turns = [*range(CONTEXTS + 1), 0, CONTEXTS]
        for turn, before in zip(turns, [None, *turns], strict=False):
            await device.bind(programs[turn], *([] if before is None else [programs[before]]))
            if turn in {0, CONTEXTS}:
                await check(device, programs[turn], nets[turn], 1)
        await device.close()
    assert machine.library.faults == []


@meets(groups=2)
async def test_a_program_moves_to_another_group_with_its_context(
    machine: Machine, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        assert await library.memx_open(0, 0, CHIP_GENERATION) == Status.OK
        assert await library.memx_open(0, 1, CHIP_GENERATION) == Status.CONTEXT_ON_OTHER_GROUP

        first, second = trial(machine, world, 0), trial(machine, world, 1)
        (a, b), _ = await first.open(), await second.open()
        await first.bind(a)
        await first.bind(b, a)
        await second.bind(a)
        await check(first, b, B)
        await check(second, a, A)
        for device in (first, second):
            await device.close()
    moved = {call.args[0] for call in machine.calls if call.name == "memx_download_model"}
    assert moved == {0, 1}
    assert machine.library.faults == []


@meets(Trap.FORGOTTEN_CALLER)
async def test_nobody_reads_from_a_context_that_is_closed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        await loaded(library, A)
        reading = world.spawn(lambda: _reads_for_ever(library), name="reader")
        await anyio.sleep(1)
        assert await library.memx_close(0) == Status.OK
        assert await reading.join(EVER) is not compat(machine)

        device = trial(machine, world)
        program, _ = await device.open_bound()
        monkeypatch.setattr(machine.library, "memx_stream_ifmap", _swallow)
        watch = Watch(machine.library, world.now)
        frames = device.frames(program, 3)
        device.start(*frames)
        await anyio.sleep(LATENCY)
        assert watch.out == 1
        await device.device.close(bound=20)
        assert [device.landed[frame].fate for frame in frames] == [Fate.UNDONE] * 3
        assert watch.out == 0
        await anyio.sleep(1)
    reads = [call.status for call in machine.calls if call.name == "memx_stream_ofmap"]
    assert set(reads) == {Status.OUTPUT_TIMEOUT}
    assert [call[0] for call in machine.named()][-2:] == ["memx_close", "memx_unlock"]
    assert machine.library.faults == []


async def _swallow(*_: object) -> int:
    """Take a frame whose output never comes."""
    return Status.OK


async def _reads_for_ever(library: SimulatedLibmemx) -> None:
    await read(library, timeout=0)


@meets()
async def test_a_close_that_hangs_is_over_within_the_bound(machine: Machine, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        await loaded(library, A)
        library.hang(0)
        with anyio.move_on_after(EVER) as scope:
            await library.memx_close(0)
        assert scope.cancelled_caught

    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(content(A))
        assert (await model.infer(image(1))).tobytes() == right(A, 1)
        machine.library.hang(0)
        began = anyio.current_time()
    assert anyio.current_time() - began <= CLOSE_BOUND
    assert machine.library.faults == []
