"""Downloads: those that do nothing and say OK, those that crash, those whose weights never arrived."""

from __future__ import annotations

import numpy as np
import pytest

from repertory.models.dfp import PACKED_BY, Dfp, Port, write
from repertory.models.errors import ArtifactError, DeviceError
from repertory.models.program import Artifact
from repertory.models.twin import VERSION, Twin, TwinNetwork
from repertory.runtime.opening import open_runtime
from repertory.transports.memx.constants import CHIP_GENERATION, HALVES_CONFIG, Status
from repertory.transports.memx.features import Operation
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.profile import Trap
from repertory.transports.memx.simulator.rules import SimulatorFault
from repertory.transports.virtual import VirtualWorld
from tests.integration.support import Machine, image
from tests.memx.files import Net, dfp, onnx_net

from .rig import CHIPS, WHOLE, A, B, check, compat, content, loaded, meets, naked, read, right, trial
from .rig import write as write_image

pytestmark = pytest.mark.virtual


X, Y = (Net(name, seed=seed, configuration=seed, outputs=1) for seed, name in enumerate("xy"))
FILE = dfp(X, Y, chips=CHIPS)


async def _reset(library: SimulatedLibmemx) -> None:
    """Let somebody reset the chips of an idle context 0: what they held is gone."""
    assert await library.memx_set_stream_disable(0, 1) == Status.OK
    assert await library.memx_operation(0, Operation.RESET_DEVICE, np.zeros(1, np.uint8), 0) == Status.OK


@meets(Trap.LAST_DOWNLOAD)
async def test_a_download_to_the_id_that_was_downloaded_to_last_is_done(
    machine: Machine, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        await loaded(library, A)
        assert await library.memx_set_stream_disable(0, 1) == Status.OK
        assert await library.memx_download_model(0, content(B), 0, WHOLE) == Status.OK
        assert await library.memx_set_stream_enable(0, 0) == Status.OK
        await write_image(library, 1)
        assert await read(library) == (Status.OK, right(A if compat(machine) else B, 1))

        device = trial(machine, world)
        program, _ = await device.open_bound()
        await check(device, program, A)
        await _reset(machine.library)
        await device.bind(program, program)
        await check(device, program, A)
        await device.close()
    assert machine.library.faults == []


@meets(Trap.LAST_DOWNLOAD)
async def test_a_retry_after_a_failed_download_is_done(machine: Machine, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        assert await library.memx_open(0, 0, CHIP_GENERATION) == Status.OK
        library.fail_download()
        assert await library.memx_download_model(0, content(A), 0, WHOLE) == Status.DOWNLOAD_FAILED
        assert await library.memx_download_model(0, content(A), 0, WHOLE) == Status.OK
        size = await library.memx_get_ifmap_size(0, 0)
        assert size[0] == (Status.SIZE_UNKNOWN if compat(machine) else Status.OK)

        device = trial(machine, world)
        a, b = await device.open()
        for program, net, evicted in ((a, A, ()), (b, B, (a,)), (a, A, (b,))):
            await device.bind(program, *evicted)
            await check(device, program, net)
        machine.library.fail_download()
        with pytest.raises(DeviceError, match="download failed"):
            await device.bind(b, a)
        await device.bind(b)
        await check(device, b, B)
        await device.close()
    assert machine.library.faults == []


@meets()
async def test_a_download_that_did_nothing_is_noticed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, anyio_backend: object
) -> None:
    async def nothing(*_: object) -> int:
        return Status.OK

    async with VirtualWorld() as world:
        device = trial(machine, world)
        await device.open()
        x, y = (device.device.prepare(Artifact("file", FILE, net.name)) for net in (X, Y))
        with monkeypatch.context() as patch:
            patch.setattr(machine.library, "memx_download_model", nothing)
            with pytest.raises(DeviceError, match="memx_get_ifmap_size of port 0: size unknown"):
                await device.bind(x)
        await device.bind(y)  # its weights are those of the same file, which did not come either
        await check(device, y, Y)
        await device.bind(x, y)
        await check(device, x, X)
        await device.close()
    assert machine.library.faults == []


@meets(Trap.UNREPORTED_WEIGHTS)
async def test_weights_that_may_not_have_arrived_are_no_success(
    machine: Machine, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        assert await library.memx_open(0, 0, CHIP_GENERATION) == Status.OK
        library.fail_weights()
        status = await library.memx_download_model(0, content(A), 0, WHOLE)
        assert status == (Status.OK if compat(machine) else Status.DOWNLOAD_FAILED)

        device = trial(machine, world)
        a, b = await device.open()
        await device.bind(a)
        machine.library.admin_timeout(0)  # the channel that weights go over is dead
        machine.library.fail_weights()
        began = world.now()
        with pytest.raises(DeviceError) as caught:
            await device.bind(b, a)
        noticed = "memx_get_feature HW_INFO" if compat(machine) else "memx_download_model"
        assert caught.value.call == noticed
        assert world.now() - began < 4
        await device.close()
    assert machine.library.faults == []


@meets()
async def test_a_group_is_set_to_the_chips_that_a_file_is_for(
    machine: Machine, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        assert await library.memx_open(0, 0, CHIP_GENERATION) == Status.OK
        assert await library.memx_download_model(0, content(B, chips=1), 0, WHOLE) == Status.DOWNLOAD_FAILED

    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        models = {A: await rt.load(content(A)), B: await rt.load(content(B, chips=1))}
        for number in range(4):
            for net, model in models.items():
                assert (await model.infer(image(number))).tobytes() == right(net, number)
    assert machine.library.faults == []


@meets(Trap.HALVES, chips=4)
async def test_a_group_is_never_halved(machine: Machine, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        assert await library.memx_open(0, 0, CHIP_GENERATION) == Status.OK
        assert await library.memx_download_model(0, content(A, chips=4), 0, WHOLE) == Status.OK
        assert await library.memx_config_mpu_group(0, HALVES_CONFIG) == Status.OK
        if compat(machine):
            with pytest.raises(SimulatorFault, match="libmemx crashes"):
                await library.memx_download_model(0, content(A, chips=4), 0, WHOLE)

    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        models = {A: await rt.load(content(A, chips=4)), B: await rt.load(content(B, chips=4))}
        for number in range(2):
            for net, model in models.items():
                assert (await model.infer(image(number))).tobytes() == right(net, number)
    assert HALVES_CONFIG not in {args[2] for args in machine.named("memx_config_mpu_group")}
    assert machine.library.faults == []


# -- files


def _file(chips: int = CHIPS, generation: int = 4, hardware: int = 0) -> bytes:
    """Write a file whose last bytes are its compiled part."""
    shape = (4, 6, 1, 3)
    ports = (Port(0, layer_name="x0", shape=shape),), (Port(0, layer_name="y0", shape=(4, 6, 1, 2)),)
    twin = Twin(VERSION, [TwinNetwork("bad", onnx_net(Net(outputs=1)), ["x0"], ["y0"])])
    return write(
        Dfp(
            ("bad",),
            *ports,
            chips=chips,
            generation=generation,
            compiler_version=PACKED_BY,
            hw_size=hardware,
            twin=twin,
        ),
        hardware=bytes(hardware),
    )


async def _refused(machine: Machine, files: list[bytes], why: str) -> None:
    """Load files beside a good one; each is refused, and the library hears of none."""
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        good = await rt.load(content(A))
        for file in files:
            with pytest.raises(ArtifactError, match=why):
                await rt.load(file, warm=True)
        assert (await good.infer(image(1))).tobytes() == right(A, 1)
    assert [args[2] for args in machine.named("memx_download_model")] == [content(A)]
    assert machine.library.faults == []


@meets()
async def test_a_truncated_file_never_reaches_the_library(machine: Machine, anyio_backend: object) -> None:
    whole = _file(hardware=400)
    cuts = [0, 1, 8, 9, len(whole) // 3, len(whole) // 2, *range(len(whole) - 900, len(whole), 53)]
    await _refused(machine, [whole[:cut] for cut in cuts], "at byte")


@meets()
async def test_a_file_for_more_chips_never_reaches_the_library(
    machine: Machine, anyio_backend: object
) -> None:
    await _refused(machine, [_file(chips=4)], "compiled for 4 chips, this group has 2")


@meets()
async def test_a_file_for_another_generation_never_reaches_the_library(
    machine: Machine, anyio_backend: object
) -> None:
    await _refused(machine, [_file(generation=3)], "compiled for chip generation 3")
