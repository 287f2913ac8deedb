"""Starting and stopping streams: what waits for ever, and what a stopped context keeps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

from repertory.models.errors import DeviceHung
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.transports.memx.constants import CHIP_GENERATION, Status
from repertory.transports.memx.device import BIND_BOUND
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.profile import Trap
from repertory.transports.virtual import VirtualWorld
from tests.integration.support import Machine, image
from tests.memx.files import Net

from .rig import EVER, WHOLE, A, B, check, compat, content, loaded, meets, naked, read, right, trial, write

pytestmark = pytest.mark.virtual


async def _returns(call: Coroutine[Any, Any, int]) -> bool:
    with anyio.move_on_after(EVER):
        assert await call == Status.OK
        return True
    return False


@meets(Trap.ENABLE_WAIT)
async def test_an_enable_never_waits(machine: Machine, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        await loaded(library, A)
        assert await _returns(library.memx_set_stream_enable(0, 1)) is not compat(machine)

        device = trial(machine, world)
        program, _ = await device.open_bound()
        await check(device, program, A)
        await device.close()
    assert machine.library.faults == []


def _hangs_after_a_hasty_disable(library: SimulatedLibmemx) -> None:
    """Let a download hang after a disable that did not wait, as the vendor's own runtime warns it may."""
    hasty = False

    def hang(call: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., Coroutine[Any, Any, int]]:
        @functools.wraps(call)
        async def hanging(*args: Any) -> int:
            nonlocal hasty
            if call.__name__ == "memx_set_stream_disable":
                hasty = not args[1]
            elif hasty:
                await anyio.sleep_forever()
            return await call(*args)

        return hanging

    for name in ("memx_set_stream_disable", "memx_download_model"):
        setattr(library, name, hang(getattr(library, name)))


@meets()
async def test_a_disable_always_waits(machine: Machine, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        _hangs_after_a_hasty_disable(library)
        await loaded(library, A)
        assert await library.memx_open(1, 0, CHIP_GENERATION) == Status.OK
        assert await library.memx_set_stream_disable(0, 0) == Status.OK
        assert not await _returns(library.memx_download_model(1, content(B), 0, WHOLE))

    machine.prepare = _hangs_after_a_hasty_disable
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        models = {net: await rt.load(content(net)) for net in (A, B)}
        for number in range(4):
            for net, model in models.items():
                assert (await model.infer(image(number))).tobytes() == right(net, number)
        assert rt.statistics().groups["group 0"].incarnations == 1
    assert machine.library.faults == []


@meets()
async def test_no_frame_stays_behind_in_a_context_that_is_disabled(
    machine: Machine, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        await loaded(library, A)
        assert await library.memx_set_stream_disable(0, 0) == Status.OK
        assert await write(library, 1) == Status.OK
        assert await library.memx_set_stream_enable(0, 0) == Status.OK
        assert await write(library, 2) == Status.OK
        assert await read(library) == (Status.OK, right(A, 1))  # whoever sent 2 gets this

    async def ask(net: Net, model: Model, number: int) -> None:
        assert (await model.infer(image(number))).tobytes() == right(net, number)

    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        models = {net: await rt.load(content(net)) for net in (A, B)}
        async with anyio.create_task_group() as tasks:
            for number in range(60):
                for net, model in models.items():
                    tasks.start_soon(ask, net, model, number)
        group = rt.statistics().groups["group 0"]
        assert group.swaps > 1
        assert group.incarnations == 1
    assert machine.library.faults == []


@meets()
async def test_a_swap_that_hangs_is_over_within_the_bound(machine: Machine, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        await loaded(library, A)
        library.hang(0)
        assert not await _returns(library.memx_set_stream_disable(0, 1))

        device = trial(machine, world)
        a, b = await device.open()
        await device.bind(a)
        machine.library.hang(0)
        began = world.now()
        with pytest.raises(DeviceHung, match="has not returned within 30 s"):
            await device.bind(b, a)
        assert world.now() - began <= BIND_BOUND
        await device.close()
    assert machine.library.faults == []
