"""A C7x behind the device contract: opening, health, closing, and life under the runtime."""

from __future__ import annotations

import gc
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import numpy as np
import pytest

from repertory.models.errors import (
    ArtifactError,
    DeadlineExceeded,
    DeviceBusy,
    DeviceError,
    DeviceHung,
    DeviceLost,
    RepertoryError,
)
from repertory.runtime.model import Model
from repertory.transports.frame import Fate, Frame
from repertory.transports.rpmsg.session import Ledger
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.faults import Fault, Kind, Seen
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from repertory.transports.virtual import VirtualWorld
from tests.rpmsg.dsps import Board, answer, module, tensor
from tests.rpmsg.owner import bench, forget_modules, owned, recover, restart_unseen, shrink_heap
from tests.rpmsg.simulator.modules import summed, wide
from tests.runtime.support import open_virtual

pytestmark = pytest.mark.virtual
WIRES = pytest.mark.parametrize("wire", [2, 3])
INFER, STATUS, PING = 0x21, 0x03, 0x01
CLOSE = 5.0


def params(wire: Any, **options: Any) -> SimulatedC7x:
    usual: dict[str, Any] = {"answers": "hash", "latency_ms": 1.0, "load_ms": 1.0}
    return SimulatedC7x(wire=wire, **{**usual, **options})


def once(opcode: int) -> Any:
    """Lose the first message of a kind."""
    left = [True]

    def rule(seen: Seen) -> Fault | None:
        if seen.opcode & 0xFFF != opcode or not left:
            return None
        left.clear()
        return Fault(Kind.DROP)

    return rule


# -- health


@WIRES
async def test_health_is_the_firmwares(anyio_backend: object, wire: int) -> None:
    async with bench(wire, uptime_ms=60_000, latency_ms=1.0) as (owner, _):
        await owner.end(owner.start(1))
        health = await owner.device.probe()
        assert health.well
        assert health.readings["uptime_s"] >= 60
        rest = {name: value for name, value in health.readings.items() if name != "uptime_s"}
        assert rest == {"jobs_completed": 1, "jobs_failed": 0, "stray_messages": 0, "split_buffers": 1}


@WIRES
async def test_while_it_works_its_last_words_are_told(anyio_backend: object, wire: int) -> None:
    async with bench(wire) as (owner, dsp):
        before = await owner.device.probe()
        asked: list[int] = []
        dsp.faults.on_request = lambda seen: asked.append(seen.opcode)
        frame = owner.start(1)
        began = anyio.current_time()
        assert await owner.device.probe() is before
        assert anyio.current_time() == began
        await owner.end(frame)
        assert asked == [INFER]


@WIRES
@pytest.mark.parametrize("opcode", [PING, STATUS])
@pytest.mark.parametrize("side", ["on_request", "on_reply"])
async def test_a_probe_outlives_a_lost_message(
    anyio_backend: object, wire: int, opcode: int, side: str
) -> None:
    async with bench(wire) as (owner, dsp):
        setattr(dsp.faults, side, once(opcode))
        assert (await owner.device.probe()).readings["jobs_completed"] == 0
        assert owner.faults == []


@WIRES
async def test_a_probe_finds_a_restart(anyio_backend: object, wire: int) -> None:
    async with bench(wire, uptime_ms=60_000) as (owner, dsp):
        restart_unseen(dsp)
        with pytest.raises(DeviceLost, match="has restarted"):
            await owner.device.probe()
        assert [type(fault) for fault in owner.faults] == [DeviceLost]


@WIRES
async def test_a_probe_finds_a_silent_dsp(anyio_backend: object, wire: int) -> None:
    async with bench(wire) as (owner, dsp):
        dsp.crash()
        began = anyio.current_time()
        with pytest.raises(DeviceHung):
            await owner.device.probe()
        assert anyio.current_time() - began <= 4
        assert [type(fault) for fault in owner.faults] == [DeviceHung]


# -- opening


@WIRES
async def test_a_core_that_is_stopped(anyio_backend: object, wire: int) -> None:
    """One that was never seen is not waited for."""
    async with VirtualWorld() as world:
        dsp = SimulatedDsp(params(wire), world)
        dsp.stop(seconds=5)
        owner = owned(world, dsp)
        with pytest.raises(DeviceLost, match="offline"):
            await owner.open()
        assert anyio.current_time() < 0.1
        await owner.device.close(bound=CLOSE)
        assert dsp.leaks == []


@WIRES
async def test_a_core_that_was_there_is_waited_for(anyio_backend: object, wire: int) -> None:
    async with VirtualWorld() as world:
        dsp, ledger = SimulatedDsp(params(wire), world), Ledger()
        for stopped in (0, 20, 40):
            owner = owned(world, dsp, ledger=ledger)
            if stopped:
                dsp.stop(seconds=stopped)
            if stopped == 40:
                with pytest.raises(DeviceLost):
                    await owner.open()
            else:
                await owner.open()
                await owner.bind()
            await owner.device.close(bound=CLOSE)
        assert 50 < anyio.current_time() < 52
        assert dsp.leaks == []


@WIRES
async def test_two_incarnations(anyio_backend: object, wire: int) -> None:
    """The second finds what the first could not unload."""
    async with VirtualWorld() as world:
        dsp, ledger = SimulatedDsp(params(wire), world), Ledger()
        first = owned(world, dsp, ledger=ledger)
        await first.open()
        await first.bind()
        dsp.hang()
        first.start(1)
        await first.device.close(bound=CLOSE)
        assert len(dsp.firmware.loaded) == 1
        recover(dsp)
        second = owned(world, dsp, ledger=ledger)
        await second.open()
        assert dsp.firmware.loaded == []
        await second.bind()
        frame = second.start(4)
        assert (await second.end(frame)).outputs[0].tobytes() == answer(4)
        await second.device.close(bound=CLOSE)
        assert (dsp.leaks, dsp.firmware.loaded) == ([], [])


@WIRES
async def test_a_second_client_is_refused_and_the_first_undisturbed(anyio_backend: object, wire: int) -> None:
    async with bench(wire) as (owner, dsp):
        held = len(dsp.leaks)
        frame = owner.start(1)
        other = owned(owner.world, dsp)
        with pytest.raises(DeviceBusy):
            await other.open()
        await other.device.close(bound=CLOSE)
        assert len(dsp.leaks) == held
        assert (await owner.end(frame)).outputs[0].tobytes() == answer(1)
        assert owner.faults == []


# -- closing


@WIRES
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("how", ["hang", "crash", "stop"])
async def test_closing_a_dsp_that_does_not_answer(
    anyio_backend: object, wire: int, busy: bool, how: str
) -> None:
    """Within its bound, with every frame completed, and the memory given back where no job may still run."""
    async with VirtualWorld() as world:
        dsp, ledger = SimulatedDsp(params(wire), world), Ledger()
        owner = owned(world, dsp, ledger=ledger, run_bound=60.0)
        await owner.open()
        await owner.bind()
        frames: list[Frame] = []
        getattr(dsp, how)()
        if busy:
            frames = [owner.start(number) for number in range(owner.device.capabilities.window)]
        began = anyio.current_time()
        await owner.device.close(bound=CLOSE)
        assert anyio.current_time() - began <= CLOSE
        assert bool(dsp.leaks) == (busy and how != "stop")
        ledger.release()
        assert dsp.leaks == []
        assert set(owner.landed) == set(frames)
        assert all(owner.landed[frame].fate is not Fate.DONE for frame in frames)
        if how != "stop":
            assert owner.faults == []
        for call in (owner.device.probe, partial(owner.device.bind, None)):
            with pytest.raises(DeviceError):
                await call()


@WIRES
async def test_memory_of_a_job_that_runs_stays_ours_until_the_dsp_is_idle(
    anyio_backend: object, wire: int
) -> None:
    """Others use the heap too: what the DSP still writes must not be theirs meanwhile."""
    async with VirtualWorld() as world:
        dsp, ledger = SimulatedDsp(params(wire, latency_ms=8000.0), world), Ledger()
        owner = owned(world, dsp, ledger=ledger, run_bound=60)
        await owner.open()
        await owner.bind()
        owner.start(1)
        await anyio.sleep(0.1)
        await owner.device.close(bound=1)
        assert set(ledger.held) == set(dsp.leaks) != set()
        await anyio.sleep(8)  # the job ends, and nobody is there to be told
        assert dsp.firmware.faults == []
        owner = owned(world, dsp, ledger=ledger, run_bound=60)
        await owner.open()
        assert ledger.held == []
        await owner.bind()
        assert (await owner.end(owner.start(2), patience=20)).fate is Fate.DONE
        await owner.device.close(bound=CLOSE)
        assert dsp.leaks == []


async def test_held_memory_goes_with_its_ledger(anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        dsp, ledger = SimulatedDsp(params(2, latency_ms=8000.0), world), Ledger()
        owner = owned(world, dsp, ledger=ledger)
        await owner.open()
        await owner.bind()
        owner.start(1)
        await anyio.sleep(0.1)
        await owner.device.close(bound=1)
        assert dsp.leaks != []
        del owner, ledger
        gc.collect()
        assert dsp.leaks == []


@WIRES
async def test_closing_lands_what_is_in_flight(anyio_backend: object, wire: int) -> None:
    async with bench(wire) as (owner, dsp):
        frames = [owner.start(number) for number in range(owner.device.capabilities.window)]
        await owner.device.close(bound=CLOSE)
        fates = [owner.landed[frame].fate for frame in frames]
        assert fates == [Fate.DONE] * len(frames)
        assert (dsp.leaks, dsp.firmware.loaded) == ([], [])


@WIRES
async def test_closing_while_it_is_opened(anyio_backend: object, wire: int) -> None:
    """It waits for a DSP to come back; who closes it does not wait for that."""
    async with VirtualWorld() as world:
        dsp, ledger = SimulatedDsp(params(wire), world), Ledger()
        owner = owned(world, dsp, ledger=ledger)
        await owner.open()
        await owner.device.close(bound=CLOSE)
        dsp.stop()
        owner = owned(world, dsp, ledger=ledger)
        ends: list[float] = []

        async def opening() -> None:
            with pytest.raises(DeviceLost):
                await owner.open()
            ends.append(anyio.current_time())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opening)
            await anyio.sleep(3.1)  # between two looks for the DSP
            await owner.device.close(bound=CLOSE)
        assert ends == [pytest.approx(3.1, abs=0.01)]
        assert dsp.leaks == []


@WIRES
async def test_closing_while_its_first_answer_is_awaited(anyio_backend: object, wire: int) -> None:
    """The job of a client that died still runs; the opening ends later, and is none any more."""
    async with VirtualWorld() as world:
        dsp = SimulatedDsp(params(wire, latency_ms=8000.0), world)
        dead = owned(world, dsp, ledger=(held := Ledger()))
        await dead.open()
        await dead.bind()
        dead.start(1)
        await anyio.sleep(0.1)
        await dead.device.close(bound=0.2)
        held.release()  # as the kernel does it when a process ends
        owner = owned(world, dsp)
        errors: list[BaseException] = []

        async def opening() -> None:
            try:
                await owner.open()
            except DeviceError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opening)
            await anyio.sleep(1)
            began = anyio.current_time()
            await owner.device.close(bound=2)
            assert anyio.current_time() - began <= 2
        assert [type(error) for error in errors] == [DeviceLost]
        with pytest.raises(DeviceError):
            await owner.device.probe()
        assert dsp.leaks == []


# -- under the runtime


@WIRES
@pytest.mark.parametrize("count", [1, 4, 5, 128])
async def test_models_of_many_inputs(anyio_backend: object, wire: int, count: int) -> None:
    board = Board(params(wire, answers="twin"))
    async with open_virtual(board.source()) as rt:
        model = await rt.load(summed(count), name="summed")
        inputs = {spec.name: np.full(3, at, np.float32) for at, spec in enumerate(model.inputs)}
        found = await model.infer(inputs if count > 1 else inputs["x0"])
        assert found.tolist() == [sum(range(count))] * 3
    assert board.dsp.firmware.faults == []


@WIRES
async def test_a_deadline_that_passes_while_the_job_runs(anyio_backend: object, wire: int) -> None:
    board = Board(params(wire, latency_ms=50.0))
    async with open_virtual(board.source()) as rt:
        model = await rt.load(
            module(), name="double", pin=True
        )  # there, and never run: nobody knows how slow
        began = anyio.current_time()
        with pytest.raises(DeadlineExceeded):
            await model.infer(tensor(1), timeout=0.02)
        assert anyio.current_time() - began == pytest.approx(0.02, abs=0.01)
        found = await model.infer(tensor(2))
        assert found.tobytes() == answer(2)
        assert anyio.current_time() - began == pytest.approx(0.1, abs=0.002), "it ran to its end"
    assert board.dsp.firmware.faults == []


@WIRES
async def test_a_module_that_is_gone_is_loaded_again(anyio_backend: object, wire: int) -> None:
    board = Board(params(wire))
    async with open_virtual(board.source()) as rt:
        model = await rt.load(module(), name="double", warm=True)
        forget_modules(board.dsp)
        found = [0] * 8

        async def ask(number: int) -> None:
            found[number] = (await model.infer(tensor(number))).tobytes() == answer(number)

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(ask, number)
    assert found == [True] * 8
    assert board.incarnations == 2


@WIRES
async def test_a_hundred_swaps_leak_no_slot(anyio_backend: object, wire: int) -> None:
    board = Board(params(wire))
    most = 0
    async with open_virtual(board.source()) as rt:
        models = [await rt.load(module(name), name=name) for name in ("double", "square")]
        for number in range(100):
            model = models[number % 2]
            assert (await model.infer(tensor(number))).tobytes() == answer(number, model.name)
            most = max(most, len(board.dsp.firmware.loaded))
        (group,) = rt.statistics().groups.values()
        assert group.swaps == 100
    assert (most, board.dsp.firmware.loaded, board.dsp.leaks) == (1, [], [])
    assert board.dsp.firmware.faults == []


@WIRES
async def test_a_refused_module_costs_nothing_else(anyio_backend: object, wire: int) -> None:
    board = Board(params(wire, heap_mb=10, workspace_mb=4))
    async with open_virtual(board.source()) as rt:
        model = await rt.load(module(), name="double", warm=True)
        shrink_heap(board.dsp, 1)
        with pytest.raises(
            ArtifactError, match=r"square: the DSP refused DYN_LOAD: NO_MEMORY .* bytes wanted"
        ):
            await rt.load(module("square"), name="square", warm=True)
        shrink_heap(board.dsp, 10 << 20)
        assert (await model.infer(tensor(3))).tobytes() == answer(3)
        assert len(board.dsp.firmware.loaded) == 1
    assert (board.incarnations, board.dsp.firmware.loaded, board.dsp.leaks) == (1, [], [])


# -- the runtime's end


@WIRES
@pytest.mark.parametrize("state", ["opening", "loading"])
async def test_closing_the_runtime_cuts_short_what_takes_long(
    anyio_backend: object, wire: int, state: str
) -> None:
    """A DSP that is waited for, and a load that never ends: both have bounds far beyond the runtime's."""
    board = Board(params(wire))
    rt = open_virtual(board.source())
    began = 0.0
    async with anyio.create_task_group() as tasks, rt:
        model = await rt.load(module(), name="double")
        if state == "opening":
            board.dsp.stop()
        else:
            board.dsp.hang()
        tasks.start_soon(suppressed, model)
        await anyio.sleep(1.0)
        began = anyio.current_time()
    assert anyio.current_time() - began <= 15
    board.ledger.release()
    assert board.dsp.leaks == []


async def suppressed(model: Model) -> None:
    with suppress(RepertoryError):
        await model.infer(tensor(1))


@WIRES
async def test_a_dsp_that_never_comes_back_is_waited_for_once(anyio_backend: object, wire: int) -> None:
    board = Board(params(wire))
    async with open_virtual(board.source()) as rt:
        model = await rt.load(module(), name="double")
        await model.infer(tensor(1))
        board.dsp.stop()
        began = anyio.current_time()
        with pytest.raises(DeviceLost, match="out of service for good"):
            await model.infer(tensor(2))
        assert 30 <= anyio.current_time() - began < 40


@WIRES
async def test_a_model_that_never_fits_is_refused_as_it_is_loaded(anyio_backend: object, wire: int) -> None:
    board = Board(params(wire))
    async with open_virtual(board.source()) as rt:
        with pytest.raises(ArtifactError, match=r"wide: .*do not fit into 33488896"):
            await rt.load(wide(5 << 20, 3), name="wide")
