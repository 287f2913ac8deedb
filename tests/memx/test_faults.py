"""Faults that are switched on, and the traps of libmemx 2.11.2 that take time or several callers."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import numpy as np
import pytest

from repertory.models.errors import ConfigError
from repertory.transports.memx.constants import CHIP_GENERATION, Status
from repertory.transports.memx.library import REQUIRED, FmapBuffer, Libmemx
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.memx.simulator.polls import POLL
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import drive

from .files import Net, dfp
from .hand import HandWorld

FRAME, IMAGE = np.ones((4, 6, 1, 3), np.float32), 4 * 6 * 2 * 4
STRICT = SimulatedMx3(groups=2, answers="hash")
COMPAT = replace(STRICT, profile="compat-2.11")
PROFILES = pytest.mark.parametrize("mx3", [STRICT, COMPAT], ids=lambda mx3: mx3.profile)
Wait = Callable[[SimulatedLibmemx, int], Coroutine[Any, Any, Any]]

virtual = pytest.mark.virtual


def out() -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.empty(IMAGE, np.uint8)


async def opened(library: SimulatedLibmemx, **net: Any) -> None:
    assert await library.memx_open(0, 0, CHIP_GENERATION) == Status.OK
    assert await library.memx_download_model(0, dfp(Net(outputs=1, **net)), 0, 0x83) == Status.OK
    assert await library.memx_set_stream_enable(0, 0) == Status.OK


def by_hand(mx3: SimulatedMx3, **net: Any) -> tuple[SimulatedLibmemx, HandWorld]:
    world = HandWorld()
    library = SimulatedLibmemx(world, mx3)
    drive(opened(library, **net))
    return library, world


# -- exports


@pytest.mark.parametrize(
    ("mx3", "lacking"),
    [
        (STRICT, set[str]()),
        (COMPAT, {"memx_reconfigure"}),
        (replace(COMPAT, reconfigure=True), set[str]()),
        (replace(STRICT, reconfigure=False), {"memx_reconfigure"}),
        (
            replace(STRICT, zero_copy=False),
            {f"memx_{way}_{side}_buf" for way in ("enqueue", "dequeue") for side in ("ifmap", "ofmap")},
        ),
    ],
)
def test_what_is_exported(mx3: SimulatedMx3, lacking: set[str]) -> None:
    library = SimulatedLibmemx(HandWorld(), mx3)
    assert library.exports == Libmemx.__abstractmethods__ - REQUIRED - lacking
    for name in lacking:
        with pytest.raises(ConfigError, match=name):
            drive(getattr(library, name)(0, 0))


# -- time-outs


def _write(library: SimulatedLibmemx, timeout: int) -> Any:
    return library.memx_stream_ifmap(0, 0, FRAME, timeout)


def _read(library: SimulatedLibmemx, timeout: int) -> Any:
    return library.memx_stream_ofmap(0, 0, out(), timeout)


def _borrow_empty(library: SimulatedLibmemx, timeout: int) -> Any:
    return library.memx_dequeue_ifmap_buf(0, 0, timeout)


def _borrow_full(library: SimulatedLibmemx, timeout: int) -> Any:
    return library.memx_dequeue_ofmap_buf(0, 0, timeout)


@pytest.mark.parametrize("wait", [_write, _read, _borrow_empty, _borrow_full])
@pytest.mark.parametrize(
    ("mx3", "factor"), [(STRICT, 1), (COMPAT, 8.5), (replace(COMPAT, poll_factor=11), 11)]
)
def test_a_time_out_takes_longer_by_its_factor(wait: Wait, mx3: SimulatedMx3, factor: float) -> None:
    library, world = by_hand(mx3)
    drive(library.memx_set_stream_disable(0, 0))
    for asked in (1, 30):
        for _ in range(5):
            drive(wait(library, 1))  # what there is is soon used up
        begin = world.clock
        drive(wait(library, asked))
        assert world.clock - begin == pytest.approx(asked / 1e3 * factor)


@pytest.mark.parametrize("factor", [2, 8.5, 50])
def test_a_change_is_seen_at_the_next_look_and_not_before(factor: float) -> None:
    library, world = by_hand(replace(STRICT, poll_factor=factor), latency=0.0101234)
    begin = world.clock
    drive(library.memx_stream_ifmap(0, 0, FRAME, 1))
    drive(library.memx_stream_ofmap(0, 0, out(), 1000))
    looks = (world.clock - begin) / (POLL * factor)
    assert looks == pytest.approx(round(looks), abs=1e-6)
    assert 0 < world.clock - begin - 0.0101234 < POLL * factor


@virtual
async def test_a_change_by_another_caller_is_seen_at_the_next_look(anyio_backend: object) -> None:
    async with VirtualWorld() as world, anyio.create_task_group() as tasks:
        library = SimulatedLibmemx(world, replace(STRICT, poll_factor=50))
        await opened(library)
        await library.memx_set_stream_disable(0, 0)
        for _ in range(3):
            await library.memx_stream_ifmap(0, 0, FRAME, 1)
        begin = world.now()

        async def enable_later() -> None:
            await anyio.sleep(0.0101)
            await library.memx_set_stream_enable(0, 0)

        tasks.start_soon(enable_later)
        assert await library.memx_stream_ifmap(0, 0, FRAME, 100) == Status.OK
        assert world.now() - begin == pytest.approx(0.0105)


# -- callers who wait while the state changes


@virtual
@pytest.mark.parametrize("timeout", [0, 20])
@PROFILES
async def test_a_close_and_who_waits_in_a_stream_call(
    mx3: SimulatedMx3, timeout: int, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world, mx3)
        await opened(library)
        ended: list[tuple[int, float]] = []

        async def wait() -> None:
            ended.append((await library.memx_stream_ofmap(0, 0, out(), timeout), world.now()))

        world.spawn(wait, name="reader")
        await anyio.sleep(0.001)
        begin = world.now()
        assert await library.memx_close(0) == Status.OK
        await anyio.sleep(100)
    if mx3.profile == "strict":
        assert ended == [(Status.CONTEXT_NOT_OPEN, begin)]
    else:
        assert [status for status, _ in ended] == ([Status.OUTPUT_TIMEOUT] if timeout else [])


@virtual
@PROFILES
async def test_a_disable_wakes_nobody(mx3: SimulatedMx3, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world, mx3)
        await opened(library)
        with anyio.move_on_after(50) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(library.memx_stream_ofmap, 0, 0, out(), 0)
                await anyio.sleep(1)
                assert await library.memx_set_stream_disable(0, 1) == Status.OK
        assert scope.cancelled_caught


# -- faults


@PROFILES
def test_weights_that_did_not_arrive(mx3: SimulatedMx3) -> None:
    right, _ = by_hand(mx3)
    library = SimulatedLibmemx(HandWorld(), mx3)
    library.fail_weights()
    drive(library.memx_open(0, 0, CHIP_GENERATION))
    status = drive(library.memx_download_model(0, dfp(Net(outputs=1)), 0, 0x83))
    if mx3.profile == "strict":
        assert status == Status.DOWNLOAD_FAILED
        return
    assert status == Status.OK
    assert drive(library.memx_set_stream_enable(0, 0)) == Status.OK
    answers = [out(), out()]
    for each, answer in zip((right, library), answers, strict=True):
        assert drive(each.memx_stream_ifmap(0, 0, FRAME, 1)) == Status.OK
        assert drive(each.memx_stream_ofmap(0, 0, answer, 100)) == Status.OK
    assert answers[0].tobytes() != answers[1].tobytes()
    assert library.faults == []


@PROFILES
@pytest.mark.parametrize("fault", ["hang", "gone"])
def test_a_group_that_fails_only_times_out_and_the_other_goes_on(mx3: SimulatedMx3, fault: str) -> None:
    library, _ = by_hand(mx3)
    drive(library.memx_open(1, 1, CHIP_GENERATION))
    drive(library.memx_download_model(1, dfp(Net(outputs=1)), 0, 0x83))
    drive(library.memx_set_stream_enable(1, 0))
    getattr(library, fault)(0)
    for model_id in (0, 1):
        assert drive(library.memx_stream_ifmap(model_id, 0, FRAME, 1)) == Status.OK
    assert drive(library.memx_stream_ofmap(0, 0, out(), 1000)) == Status.OUTPUT_TIMEOUT
    assert drive(library.memx_stream_ofmap(1, 0, out(), 1000)) == Status.OK
    assert drive(library.memx_operation_get_device_count()) == (Status.OK, 2)
    assert library.faults == []


@pytest.mark.parametrize("call", ["get", "set", "config"])
def test_firmware_that_does_not_answer(call: str) -> None:
    library, world = by_hand(STRICT)
    library.admin_timeout(0)
    begin = world.clock
    calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "get": lambda: library.memx_get_feature(0, 0, 6),
        "set": lambda: library.memx_set_feature(0, 0, 1, 600),
        "config": lambda: library.memx_config_mpu_group(0, 0),
    }
    result = drive(calls[call]())
    assert (result[0] if isinstance(result, tuple) else result) == Status.ADMIN_TIMEOUT
    assert world.clock - begin == pytest.approx(3.0)
    assert drive(library.memx_get_feature(1, 0, 6))[0] == Status.OK


def test_a_slow_reader_lets_outputs_leave_at_its_rate() -> None:
    library, world = by_hand(STRICT, latency=0.001, interval=0.001)
    library.slow_reader(0, IMAGE / 0.05)
    times: list[float] = []
    for _ in range(6):
        drive(library.memx_stream_ifmap(0, 0, FRAME, 1000))
    for _ in range(6):
        assert drive(library.memx_stream_ofmap(0, 0, out(), 1000)) == Status.OK
        times.append(world.clock)
    assert np.diff(times[1:]) == pytest.approx([0.05] * 4)
    library.slow_reader(0)
    for _ in range(3):
        drive(library.memx_stream_ifmap(0, 0, FRAME, 1000))
        assert drive(library.memx_stream_ofmap(0, 0, out(), 1000)) == Status.OK
    assert world.clock - times[-1] < 0.06


def test_a_leaked_mutex_is_healed_by_one_unlock() -> None:
    library, _ = by_hand(STRICT)
    library.leak_mutex(0)
    assert [drive(library.memx_trylock(0)) for _ in range(2)] == [Status.GROUP_IN_USE] * 2
    assert drive(library.memx_unlock(0)) == Status.OK
    assert drive(library.memx_trylock(0)) == Status.OK


def in_child(*calls: Callable[[], Coroutine[Any, Any, int]]) -> list[int]:
    """Return what the calls return in a forked process."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        try:
            os.write(writer, " ".join(str(int(drive(call()))) for call in calls).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        answered = bool(select.select([told], [], [], 10.0)[0])
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert answered, "the child hangs"
        return list(map(int, told.read().split()))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("held", [False, True], ids=["between calls", "during a call of another thread"])
async def test_in_a_fork_writes_succeed_and_outputs_never_come(held: bool, anyio_backend: object) -> None:
    async with RealWorld() as world:
        library = SimulatedLibmemx(world, STRICT)
        await opened(library)
        with library._condition if held else nullcontext():  # pyright: ignore[reportPrivateUsage]
            statuses = in_child(
                lambda: library.memx_stream_ifmap(0, 0, FRAME, 20),
                lambda: library.memx_stream_ofmap(0, 0, out(), 20),
                lambda: library.memx_close(0),
            )
        assert statuses == [Status.OK, Status.OUTPUT_TIMEOUT, Status.OK]
        assert await library.memx_stream_ifmap(0, 0, FRAME, 20) == Status.OK
        assert await library.memx_stream_ofmap(0, 0, out(), 2000) == Status.OK


# -- power states


@PROFILES
@pytest.mark.parametrize("way", ["state", "deep"])
def test_a_sleeping_group_goes_on_where_it_was(mx3: SimulatedMx3, way: str) -> None:
    library, world = by_hand(mx3)
    drive(library.memx_stream_ifmap(0, 0, FRAME, 1))
    if way == "state":
        asleep, awake = partial(library.memx_set_powerstate, 0, 2), partial(library.memx_set_powerstate, 0, 0)
    else:
        asleep = partial(library.memx_enter_device_deep_sleep, 0)
        awake = partial(library.memx_exit_device_deep_sleep, 0)
    assert drive(asleep()) == Status.OK
    world.clock += 10
    assert drive(library.memx_stream_ofmap(0, 0, out(), 100)) == Status.OUTPUT_TIMEOUT
    assert drive(awake()) == Status.OK
    assert drive(library.memx_stream_ofmap(0, 0, out(), 100)) == Status.OK


# -- buffers of the library


@PROFILES
def test_frames_travel_in_the_librarys_buffers(mx3: SimulatedMx3) -> None:
    library, _ = by_hand(mx3)
    for number in range(9):
        frame = np.full(FRAME.nbytes, number, np.uint8)
        status, buffer = drive(library.memx_dequeue_ifmap_buf(0, 0, 100))
        assert status == Status.OK
        assert buffer is not None
        assert buffer.idx == number % 4
        buffer.data[:] = frame
        assert drive(library.memx_enqueue_ifmap_buf(0, 0, buffer, 1)) == Status.OK
        assert drive(library.memx_stream_ifmap(0, 0, frame, 100)) == Status.OK
        status, full = drive(library.memx_dequeue_ofmap_buf(0, 0, 100))
        copied = out()
        assert drive(library.memx_stream_ofmap(0, 0, copied, 100)) == Status.OK
        assert full is not None
        assert full.data.tobytes() == copied.tobytes(), "the same input, by either way"
        assert drive(library.memx_enqueue_ofmap_buf(0, 0, full, 1)) == Status.OK


@PROFILES
def test_a_buffer_comes_back_once_and_to_its_own_flow(mx3: SimulatedMx3) -> None:
    library, _ = by_hand(mx3)
    _, buffer = drive(library.memx_dequeue_ifmap_buf(0, 0, 1))
    assert buffer is not None
    copy = FmapBuffer(buffer.idx, buffer.data.copy())
    assert drive(library.memx_enqueue_ifmap_buf(0, 0, copy, 1)) == Status.BAD_ENGINE
    assert drive(library.memx_enqueue_ofmap_buf(0, 0, buffer, 1)) == Status.BAD_ENGINE
    assert drive(library.memx_enqueue_ifmap_buf(0, 0, buffer, 1)) == Status.OK
    assert drive(library.memx_enqueue_ifmap_buf(0, 0, buffer, 1)) == Status.BAD_ENGINE


@PROFILES
def test_outputs_that_are_not_given_back_stop_the_flow(mx3: SimulatedMx3) -> None:
    library, _ = by_hand(mx3)
    lent: list[FmapBuffer] = []
    for _ in range(8):
        drive(library.memx_stream_ifmap(0, 0, FRAME, 100))
        _, buffer = drive(library.memx_dequeue_ofmap_buf(0, 0, 100))
        if buffer is not None:
            lent.append(buffer)
    assert len(lent) == 3
    assert drive(library.memx_enqueue_ofmap_buf(0, 0, lent[0], 1)) == Status.OK
    assert drive(library.memx_dequeue_ofmap_buf(0, 0, 100))[0] == Status.OK
