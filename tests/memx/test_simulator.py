"""The simulated library as its callers see it: in threads, and in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from repertory.models.errors import ConfigError
from repertory.transports.address import Address
from repertory.transports.memx.constants import CHIP_GENERATION, DownloadType, Status
from repertory.transports.memx.simulated import machine
from repertory.transports.memx.simulator.answers import hash_answer
from repertory.transports.memx.simulator.heat import Heat
from repertory.transports.memx.simulator.libmemx import Call, SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.memx.simulator.rules import SimulatorFault
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World

from .files import Net, dfp, infer

BUFFER = DownloadType.WEIGHTS_AND_MODEL | DownloadType.FROM_BUFFER
Frame: TypeAlias = NDArray[np.float32]

virtual = pytest.mark.virtual


def frames(count: int, seed: int = 1) -> list[Frame]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal((4, 6, 1, 3)).astype(np.float32) for _ in range(count)]


async def opened(library: SimulatedLibmemx, *nets: Net, model_id: int = 0, **options: Any) -> None:
    """Open, download and enable, as the vendor's examples do."""
    assert await library.memx_open(model_id, 0, CHIP_GENERATION) == Status.OK
    content = dfp(*(nets or (Net(),)), **options)
    assert await library.memx_download_model(model_id, content, 0, BUFFER) == Status.OK
    assert await library.memx_set_stream_enable(model_id, 0) == Status.OK


async def read(library: SimulatedLibmemx, flow_id: int = 0, timeout: int = 2000) -> Frame:
    """Read an output, either the image or the mean."""
    out = np.empty((4, 6, 1, 2) if flow_id % 2 == 0 else (1, 1, 1, 2), np.float32)
    assert await library.memx_stream_ofmap(0, flow_id, out, timeout) == Status.OK
    return out


async def together(world: World, *loops: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run driver loops until all have ended, and raise what one raised."""
    drivers = [world.spawn(loop, name=f"driver {index}") for index, loop in enumerate(loops)]
    for driver in drivers:
        assert await driver.join(20), f"{driver.name} does not end"
    for driver in drivers:
        if driver.error is not None:
            raise driver.error


WORLDS: Sequence[Any] = (RealWorld, pytest.param(VirtualWorld, marks=virtual))


async def write_all(library: SimulatedLibmemx, sent: Sequence[Frame], flow_id: int = 0) -> None:
    """Write frames from one buffer, which the library has copied when a call returns."""
    buffer = np.empty_like(sent[0])
    for frame in sent:
        buffer[:] = frame
        assert await library.memx_stream_ifmap(0, flow_id, buffer, 2000) == Status.OK


async def read_all(library: SimulatedLibmemx, results: list[Frame], count: int, flow_id: int = 0) -> None:
    results.extend([await read(library, flow_id) for _ in range(count)])


@pytest.mark.parametrize("make_world", WORLDS)
async def test_twins_answer_bit_for_bit(make_world: Callable[[], World], anyio_backend: object) -> None:
    net = Net(seed=5, latency=0.001, interval=0.0005)
    sent, images, means = frames(40), list[Frame](), list[Frame]()
    async with make_world() as world:
        library = SimulatedLibmemx(world)
        await opened(library, net)
        await together(
            world,
            lambda: write_all(library, sent),
            lambda: read_all(library, images, len(sent)),
            lambda: read_all(library, means, len(sent), flow_id=1),
        )
    for frame, image, mean in zip(sent, images, means, strict=True):
        expected = infer(net, frame)
        assert image.tobytes() == expected[0].tobytes()
        assert mean.tobytes() == expected[1].tobytes()


@pytest.mark.parametrize("make_world", WORLDS)
async def test_resident_networks_do_not_mix(make_world: Callable[[], World], anyio_backend: object) -> None:
    first, second = Net("a", seed=1, outputs=1), Net("b", seed=2, first_flow=2, inputs=2, outputs=1)
    left, right = frames(12, seed=1), frames(12, seed=2)
    from_first, from_second = list[Frame](), list[Frame]()
    async with make_world() as world:
        library = SimulatedLibmemx(world)
        await opened(library, first, second)
        await together(
            world,
            lambda: write_all(library, left, 0),
            lambda: write_all(library, left, 2),
            lambda: write_all(library, right, 3),
            lambda: read_all(library, from_first, 12, 0),
            lambda: read_all(library, from_second, 12, 2),
        )
    for place in range(12):
        assert from_first[place].tobytes() == infer(first, left[place])[0].tobytes()
        assert from_second[place].tobytes() == infer(second, left[place], right[place])[0].tobytes()


@pytest.mark.parametrize("make_world", WORLDS)
async def test_many_readers_of_one_flow_lose_nothing(
    make_world: Callable[[], World], anyio_backend: object
) -> None:
    mx3 = SimulatedMx3(answers="hash")
    results = [list[Frame](), list[Frame]()]
    sent = frames(60)
    async with make_world() as world:
        library = SimulatedLibmemx(world, mx3)
        await opened(library, Net(outputs=1, latency=0.0005, interval=0.0001))
        await together(
            world,
            lambda: write_all(library, sent[:30]),
            lambda: write_all(library, sent[30:]),
            lambda: read_all(library, results[0], 30),
            lambda: read_all(library, results[1], 30),
        )
    expected = {hash_answer("net", [frame.tobytes()], [4 * 6 * 2 * 4])[0] for frame in sent}
    assert {image.tobytes() for image in results[0] + results[1]} == expected


@pytest.mark.parametrize("make_world", WORLDS)
async def test_stream_calls_time_out(make_world: Callable[[], World], anyio_backend: object) -> None:
    async with make_world() as world:
        library = SimulatedLibmemx(world)
        await opened(library)
        assert await library.memx_set_stream_disable(0, 0) == Status.OK
        frame, out = frames(1)[0], np.empty((4, 6, 1, 2), np.float32)
        for _ in range(3):
            assert await library.memx_stream_ifmap(0, 0, frame, 1) == Status.OK
        before = world.now()
        assert await library.memx_stream_ifmap(0, 0, frame, 20) == Status.INPUT_TIMEOUT
        assert await library.memx_stream_ofmap(0, 0, out, 30) == Status.OUTPUT_TIMEOUT
        assert world.now() - before >= 0.049
        assert await library.memx_stream_ofmap(0, 0, None, -1) == Status.NULL_POINTER
        assert await library.memx_stream_ofmap(0, 0, out, -1) == Status.BAD_ARGUMENT


@virtual
async def test_virtual_time_is_the_models(anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world, SimulatedMx3(swap_ms=20, bandwidth_mbs=1e9))
        before = world.now()
        await opened(library, Net(latency=0.010, interval=0.004))
        assert world.now() - before == pytest.approx(0.020, abs=1e-5)
        times: list[float] = []
        start = world.now()

        async def read_times() -> None:
            for _ in range(6):
                await read(library)
                times.append(world.now() - start)

        await together(
            world,
            lambda: write_all(library, frames(6)),
            read_times,
            lambda: read_all(library, [], 6, flow_id=1),
        )
    assert times == pytest.approx([0.010 + 0.004 * place for place in range(6)], abs=1e-6)


@virtual
async def test_disable_waits_for_the_chips(anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world)
        await opened(library, Net(latency=0.5))
        await write_all(library, frames(1))
        start = world.now()
        assert await library.memx_set_stream_disable(0, 1) == Status.OK
        assert world.now() - start == pytest.approx(0.5)
        assert await library.memx_stream_ofmap(0, 0, np.empty((4, 6, 1, 2), np.float32), 1) == Status.OK


@pytest.mark.parametrize("make_world", WORLDS)
@pytest.mark.parametrize("call", ["reconfigure", "download", "config", "close"])
async def test_a_transfer_in_flight_forbids_rebinding(
    make_world: Callable[[], World], call: str, anyio_backend: object
) -> None:
    async with make_world() as world:
        library = SimulatedLibmemx(world)
        await opened(library)
        await write_all(library, frames(1))
        calls: dict[str, Callable[[], Coroutine[Any, Any, int]]] = {
            "reconfigure": lambda: library.memx_reconfigure(0, 0),
            "download": lambda: library.memx_download_model(0, dfp(Net()), 0, BUFFER),
            "config": lambda: library.memx_config_mpu_group(0, 0),
            "close": lambda: library.memx_close(0),
        }
        with pytest.raises(SimulatorFault, match=f"memx_{call}.* in flight"):
            await calls[call]()
        assert len(library.faults) == 1
        await read(library, 0)
        await read(library, 1)
        assert await library.memx_set_stream_disable(0, 1) == Status.OK
        assert await calls[call]() == Status.OK


@virtual
async def test_the_vendors_swap_over_two_groups_and_two_contexts(anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        calls: list[Call] = []
        library = SimulatedLibmemx(world, SimulatedMx3(groups=2), record=calls.append)
        nets = (Net("a", seed=1), Net("b", seed=2))
        for model_id in (0, 1):
            assert await library.memx_open(model_id, 0, CHIP_GENERATION) == Status.OK
        for turn in range(4):
            model_id, group_id = turn % 2, turn // 2
            assert await library.memx_trylock(group_id) == Status.OK
            assert await library.memx_reconfigure(model_id, group_id) == Status.OK
            assert await library.memx_download_model(model_id, dfp(nets[model_id]), 0, BUFFER) == Status.OK
            assert await library.memx_set_stream_enable(model_id, 0) == Status.OK
            frame = frames(1, seed=turn)[0]
            out = [np.empty((4, 6, 1, 2), np.float32), np.empty((1, 1, 1, 2), np.float32)]
            assert await library.memx_stream_ifmap(model_id, 0, frame, 100) == Status.OK
            for flow_id in (0, 1):
                assert await library.memx_stream_ofmap(model_id, flow_id, out[flow_id], 100) == Status.OK
            assert out[0].tobytes() == infer(nets[model_id], frame)[0].tobytes()
            assert await library.memx_set_stream_disable(model_id, 1) == Status.OK
            assert await library.memx_unlock(group_id) == Status.OK
        assert [call.name for call in calls[2:6]] == [
            "memx_trylock",
            "memx_reconfigure",
            "memx_download_model",
            "memx_set_stream_enable",
        ]
        assert calls[3] == ("memx_reconfigure", (0, 0), Status.OK)


@virtual
async def test_networks_of_one_file_swap_by_the_model_alone(anyio_backend: object) -> None:
    nets = (Net("a", seed=1, outputs=1), Net("b", seed=2, outputs=1, configuration=1))
    content = dfp(*nets)
    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world)
        assert await library.memx_open(0, 0, CHIP_GENERATION) == Status.OK
        weights = DownloadType.WEIGHTS | DownloadType.FROM_BUFFER
        assert await library.memx_download_model(0, content, 0, weights) == Status.OK
        for index in (0, 1, 0):
            model = DownloadType.MODEL | DownloadType.FROM_BUFFER
            assert await library.memx_download_model(0, content, index, model) == Status.OK
            assert await library.memx_set_stream_enable(0, 0) == Status.OK
            await write_all(library, frames(1))
            assert (await read(library)).tobytes() == infer(nets[index], *frames(1))[0].tobytes()
            assert await library.memx_set_stream_disable(0, 1) == Status.OK


@pytest.mark.parametrize("make_world", WORLDS)
async def test_a_hung_group_times_out(make_world: Callable[[], World], anyio_backend: object) -> None:
    async with make_world() as world:
        library = SimulatedLibmemx(world)
        await opened(library)
        await write_all(library, frames(1))
        library.hang(0)
        out = np.empty((4, 6, 1, 2), np.float32)
        assert await library.memx_stream_ofmap(0, 0, out, 20) == Status.OUTPUT_TIMEOUT
        assert await library.memx_set_stream_disable(0, 0) == Status.OK
        assert library.faults == []


@virtual
@pytest.mark.parametrize("call", ["close", "disable", "download"])
async def test_what_waits_for_a_hung_group_waits_for_ever(call: str, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world)
        await opened(library)
        library.hang(0)
        calls: dict[str, Callable[[], Coroutine[Any, Any, int]]] = {
            "close": lambda: library.memx_close(0),
            "disable": lambda: library.memx_set_stream_disable(0, 1),
            "download": lambda: library.memx_download_model(0, dfp(Net()), 0, BUFFER),
        }
        with anyio.move_on_after(1e6) as scope:
            await calls[call]()
        assert scope.cancelled_caught


@virtual
async def test_downloads_fail_as_told(anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world)
        assert await library.memx_open(0, 0, CHIP_GENERATION) == Status.OK
        library.fail_download(2)
        statuses = [await library.memx_download_model(0, dfp(Net()), 0, BUFFER) for _ in range(3)]
        assert statuses == [Status.DOWNLOAD_FAILED, Status.DOWNLOAD_FAILED, Status.OK]


@virtual
async def test_output_frames_can_be_tampered_with(anyio_backend: object) -> None:
    seen: list[tuple[int, int]] = []

    def flip(model_id: int, flow_id: int, frame: memoryview) -> None:
        seen.append((model_id, flow_id))
        if len(seen) == 2:
            frame[0] ^= 1

    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world, tamper=flip)
        await opened(library, Net(outputs=1))
        results: list[Frame] = []
        for _ in range(2):
            await write_all(library, frames(1))
            results.append(await read(library))
    expected = bytearray(infer(Net(outputs=1), *frames(1))[0].tobytes())
    assert results[0].tobytes() == expected
    expected[0] ^= 1
    assert results[1].tobytes() == expected
    assert seen == [(0, 0), (0, 0)]


@virtual
async def test_the_small_calls(anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world, SimulatedMx3(groups=3, chips=8, reconfigure=False))
        assert library.simulated
        assert "memx_reconfigure" not in library.exports
        with pytest.raises(ConfigError, match="does not export memx_reconfigure"):
            await library.memx_reconfigure(0, 0)
        assert await library.memx_operation_get_device_count() == (Status.OK, 3)
        assert await library.memx_get_total_chip_count(2) == (Status.OK, 8)
        assert await library.memx_get_total_chip_count(3) == (Status.BAD_GROUP_ID, 0)
        assert await library.memx_get_ifmap_size(32, 0) == (Status.BAD_ENGINE, 0, 0, 0, 0, 0)
        assert await library.memx_download_model(0, b"", 0, BUFFER) == Status.CONTEXT_NOT_OPEN
        assert await library.memx_open(0, 0, CHIP_GENERATION) == Status.OK
        assert await library.memx_download_model(0, b"/nowhere", 0, 3) == Status.DFP_CANNOT_BE_OPENED
        assert await library.memx_download_model(0, b"", 0, 0) == Status.OK
        with pytest.raises(SimulatorFault, match="crashes"):
            await library.memx_get_ofmap_size(9, 0)


@virtual
async def test_a_file_is_read_from_its_path(anyio_backend: object, tmp_path: Any) -> None:
    (tmp_path / "net.dfp").write_bytes(dfp(Net()))
    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world)
        assert await library.memx_open(0, 0, CHIP_GENERATION) == Status.OK
        path = str(tmp_path / "net.dfp").encode()
        assert await library.memx_download_model(0, path, 0, DownloadType.WEIGHTS_AND_MODEL) == Status.OK
        assert await library.memx_get_ifmap_size(0, 0) == (Status.OK, 4, 6, 1, 3, 5)


@virtual
async def test_buffers_that_libmemx_would_overrun(anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world)
        await opened(library)
        with pytest.raises(SimulatorFault, match="for a frame of 288"):
            await library.memx_stream_ifmap(0, 0, np.zeros(71, np.float32), 1)
        with pytest.raises(SimulatorFault, match="for a frame of 192"):
            await library.memx_stream_ofmap(0, 0, np.frombuffer(bytes(192), np.uint8), 1)


@virtual
async def test_a_network_without_twin_fails_loudly(anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world)
        await opened(library, twins=False)
        await write_all(library, frames(1))
        for flow_id in (0, 1):
            with pytest.raises(SimulatorFault, match="no twin"):
                await read(library, flow_id)


def test_hashed_answers_are_finite_and_tell_networks_and_inputs_apart() -> None:
    answers = {hash_answer(network, [frame], [4000])[0] for network in ("a", "b") for frame in (b"x", b"y")}
    assert len(answers) == 4
    for answer in answers:
        assert np.isfinite(np.frombuffer(answer, np.float32)).all()
        assert len(answer) == 4000
    assert hash_answer("a", [b"x"], [0, 7, 64]) == tuple(
        hash_answer("a", [b"x"], [64])[0][:n] for n in (0, 7, 64)
    )


def test_an_address_describes_the_machine() -> None:
    options = "profile=compat-2.11&poll_factor=9&zero_copy=false&admin_ms=2&lock_dir=/tmp&ambient_k=320"
    found = machine(Address.parse(f"sim+memx://1?answers=hash&{options}"))
    assert found == SimulatedMx3(
        groups=2,
        profile="compat-2.11",
        poll_factor=9.0,
        zero_copy=False,
        admin_ms=2.0,
        lock_dir="/tmp",
        heat=Heat(ambient_k=320.0),
        answers="hash",
    )
    assert machine(Address.parse("sim+memx://0?answers=hash")) == SimulatedMx3(answers="hash")


@pytest.mark.parametrize("wrong", ["profile=lax", "poll_factor=0.5", "admin_ms=-1", "ambient_k=-1"])
def test_parameters_that_an_address_may_not_have(wrong: str) -> None:
    with pytest.raises(ConfigError):
        machine(Address.parse(f"sim+memx://0?answers=hash&{wrong}"))
