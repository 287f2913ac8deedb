"""The driver loop: what is staged and submitted when, what is cancelled, refused or taken along."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
import numpy as np
import pytest

from repertory.models.errors import ContractError, DeviceError, DeviceHung, DeviceLost
from repertory.models.pack_xm_npu import Format, pack_xm_npu
from repertory.models.spec import Array
from repertory.models.xmm_tensor import NpuType
from repertory.transports.frame import Fate
from repertory.transports.xm_npu import engine, seat
from repertory.transports.xm_npu.errors import ClStatus, NpuAborted, NpuRefusal
from repertory.transports.xm_npu.npu import Place
from repertory.transports.xm_npu.program import Loadable
from repertory.transports.xm_npu.simulator.faults import Fault, Kind, scripted
from repertory.transports.xm_npu.simulator.library import SimulatedXmediaCl
from repertory.transports.xm_npu.tensors import stage
from tests.models.graphs import model, node, tensor

from .boards import WAYS, Via, answer
from .owner import Owner, bench

pytestmark = pytest.mark.virtual

JOB = 0.05  # seconds
LOST = -67


def _staged(monkeypatch: pytest.MonkeyPatch) -> list[Array]:
    """Return the inputs that are laid into memory from now on."""
    staged = list[Array]()

    def noted(arrays: Sequence[Array], model: Loadable, place: Place) -> None:
        staged.extend(arrays)
        stage(arrays, model, place)

    monkeypatch.setattr(seat, "stage", noted)
    return staged


@WAYS
async def test_the_npu_is_never_idle_while_frames_wait(anyio_backend: object, via: Via) -> None:
    """One runs and one is staged, by the library; by the nodes two graphs keep it busy."""
    async with bench(via) as owner:
        programs = [await owner.load(2), *([await owner.load(3)] if via == "ioctl" else [])]
        began = anyio.current_time()
        started = [(program, owner.start(program, 1)) for _ in range(2) for program in programs]
        for _ in range(10):
            program, frame = started.pop(0)
            assert (await owner.end(frame)).fate is Fate.DONE
            started.append((program, owner.start(program, 1)))
        assert anyio.current_time() - began == pytest.approx(10 * JOB, rel=1e-6)
        ends = [await owner.end(frame) for _, frame in started]
        assert sum(end.busy for end in owner.landed) == pytest.approx(len(owner.landed) * JOB, rel=1e-6)
        assert all(end.busy == pytest.approx(JOB, rel=1e-6) for end in ends)


@WAYS
async def test_frames_of_a_network_end_in_their_order(anyio_backend: object, via: Via) -> None:
    async with bench(via, latency_ms=3.0) as owner:
        programs = {factor: await owner.load(factor) for factor in (2, 3, 5)}
        started = {factor: [owner.start(program, 1)] for factor, program in programs.items()}
        for number in range(2, 12):
            for factor, frames in started.items():
                frames.append(owner.start(programs[factor], number))
                await owner.end(frames[-2])
        for factor, frames in started.items():
            await owner.end(frames[-1])
            mine = [end for end in owner.landed if end.frame.program is programs[factor]]
            assert [end.frame for end in mine] == frames
            assert [end.outputs[0].tobytes() for end in mine] == [answer(factor, n) for n in range(1, 12)]


@WAYS
async def test_what_is_cancelled_unseen_costs_the_npu_nothing(
    anyio_backend: object, via: Via, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for a place, or staged: it ends as UNDONE, and its place is free again."""
    staged = _staged(monkeypatch)
    async with bench(via) as owner:
        program = await owner.load(2)
        for number in range(8):  # or places would run out
            first, second = owner.start(program, number), owner.start(program, 100)
            if number % 2:
                await anyio.sleep(JOB / 2)
            owner.cancel(second)
            assert await owner.right(first, 2, number)
            end = await owner.end(second)
            assert end.fate is Fate.UNDONE
            assert "not run" in str(end.error)
            copied = any(array is second.inputs[0] for array in staged)
            assert copied is (via == "cl" and number % 2 == 1)
        assert owner.source.board.core.unit.jobs == 8


@WAYS
async def test_what_is_cancelled_while_it_runs_keeps_its_place(anyio_backend: object, via: Via) -> None:
    async with bench(via) as owner:
        program = await owner.load(2)
        first, second = owner.start(program, 1), owner.start(program, 2)
        await anyio.sleep(JOB / 2)
        owner.cancel(first)
        await anyio.sleep(JOB / 4)
        assert owner.landed == []
        with pytest.raises(ContractError, match="window"):
            owner.start(program, 3)
        assert await owner.right(second, 2, 2)
        assert owner.fates(first, second) == [Fate.DONE, Fate.DONE]
        assert await owner.right(owner.start(program, 3), 2, 3)


@WAYS
async def test_a_load_and_an_unload_while_others_run(anyio_backend: object, via: Via) -> None:
    """The loop is away for the load: what has ended meanwhile is told after it, in time and order."""
    async with bench(via, load_ms=120.0) as owner:
        first, second = await owner.load(2), await owner.load(3)
        frames = [owner.start(first, 1), owner.start(first, 2)]
        await anyio.sleep(JOB / 4)
        with pytest.raises(ContractError, match="times2"):
            await owner.load(5, evict=[first])
        third = await owner.load(5, evict=[second])
        frames.append(owner.start(third, 4))
        assert await owner.right(frames[0], 2, 1)
        assert await owner.right(frames[1], 2, 2)
        assert await owner.right(frames[2], 5, 4)
        assert (await owner.device.probe()).well
        await owner.device.bind(None, evict=[first, second, third])  # one of them is not there
        assert owner.source.board.mmz.used <= 8192, "only what the runtime itself holds"


def _refusing(monkeypatch: pytest.MonkeyPatch, via: Via, owner: Owner, times: list[int]) -> None:
    """Let submits number `times` be refused."""
    count = iter(range(1000))
    if via == "cl":
        submit = SimulatedXmediaCl.xmedia_cl_graph_submit

        async def refuse(library: Any, graph: int) -> tuple[int, int]:
            return (
                (0, int(ClStatus.OUT_OF_HOST_MEMORY))
                if next(count) in times
                else await submit(library, graph)
            )

        monkeypatch.setattr(SimulatedXmediaCl, "xmedia_cl_graph_submit", refuse)
        return
    (kernel,) = owner.source.board._kernels  # pyright: ignore[reportPrivateUsage]
    kernel.trouble = lambda call: 12 if call == "SUBMIT_JOB" and next(count) in times else None


@WAYS
async def test_a_refused_job_fails_alone(
    anyio_backend: object, via: Via, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(via) as owner:
        program, other = await owner.load(2), await owner.load(3)
        _refusing(monkeypatch, via, owner, [1, 2])
        frames = [owner.start(program, 1), owner.start(other, 2), owner.start(program, 3)]
        assert [(await owner.end(frame)).fate for frame in frames] == [Fate.DONE, Fate.FAILED, Fate.FAILED]
        mine = [end.frame for end in owner.landed if end.frame.program is program]
        assert mine == [frames[0], frames[2]], "in their order, though the second was refused at once"
        refusal = (await owner.end(frames[1])).error
        assert isinstance(refusal, NpuRefusal)
        assert (refusal.call, refusal.stage) == (
            ("xmedia_cl_graph_submit", 7) if via == "cl" else ("SUBMIT_JOB", None)
        )
        for number in range(4):  # no place was lost
            assert await owner.right(owner.start(other, number), 3, number)
            assert await owner.right(owner.start(program, number), 2, number)
        assert owner.faults == []


@WAYS
async def test_behind_a_refused_job_the_next_one_runs(
    anyio_backend: object, via: Via, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(via) as owner:
        program = await owner.load(2)
        _refusing(monkeypatch, via, owner, [0])
        refused, second = owner.start(program, 1), owner.start(program, 2)
        assert await owner.right(second, 2, 2)
        assert owner.fates(refused, second) == [Fate.FAILED, Fate.DONE]


async def test_a_node_that_is_gone_at_a_submit_loses_the_device(anyio_backend: object) -> None:
    async with bench("ioctl") as owner:
        program = await owner.load(2)
        (kernel,) = owner.source.board._kernels  # pyright: ignore[reportPrivateUsage]
        kernel.trouble = lambda call: errno.ENODEV if call == "SUBMIT_JOB" else None
        frames = [owner.start(program, 1), owner.start(program, 2)]
        ends = [await owner.end(frame) for frame in frames]
        assert [(end.fate, type(end.error)) for end in ends] == [(Fate.UNDONE, DeviceLost)] * 2
        await anyio.sleep(0.01)
        assert [type(fault) for fault in owner.faults] == [DeviceLost]


async def test_the_npu_does_not_wait_for_copies(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins before the next frame is staged, and goes on before results are taken."""
    seen = list[str]()

    def staged(*_: object) -> None:
        seen.append("staged")

    def taken(*_: object) -> tuple[Array, ...]:
        seen.append("taken")
        return ()

    monkeypatch.setattr(seat, "stage", staged)
    monkeypatch.setattr(engine, "take", taken)
    async with bench("cl") as owner:
        owner.source.board.switches.on_job = lambda _: seen.append("begun")
        program = await owner.load(2)
        frames = [owner.start(program, 1), owner.start(program, 2)]
        for frame in frames:
            assert (await owner.end(frame)).fate is Fate.DONE
    assert seen == ["staged", "begun", "staged", "begun", "taken", "taken"]


async def test_a_library_that_does_not_call_back_is_asked(anyio_backend: object) -> None:
    async with bench("cl", without={"xmedia_cl_set_event_callback"}) as owner:
        program = await owner.load(2)
        began = anyio.current_time()
        assert await owner.right(owner.start(program, 1), 2, 1)
        assert anyio.current_time() - began == pytest.approx(JOB, abs=0.002)


@WAYS
async def test_what_was_staged_is_staged_anew_after_a_failure(
    anyio_backend: object, via: Via, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = _staged(monkeypatch)
    async with bench(via) as owner:
        program, other = await owner.load(2), await owner.load(3)
        owner.source.board.switches.on_job = scripted({0: Fault(Kind.ABORT)})
        frames = [owner.start(program, 1), owner.start(program, 2), owner.start(other, 3)]
        end = await owner.end(frames[0])
        assert (end.fate, type(end.error)) == (Fate.FAILED, NpuAborted)
        assert await owner.right(frames[1], 2, 2)
        seen = sum(array is frames[1].inputs[0] for array in staged)
        assert seen == (2 if via == "cl" else 1), "by the nodes it had no place before"
        taken = await owner.end(frames[2])
        assert taken.fate is (Fate.UNDONE if via == "ioctl" else Fate.DONE)
        for number in range(4):  # no place was lost
            owner.source.board.switches.on_job = lambda _: Fault(Kind.ABORT)
            bad, good = owner.start(program, 0), owner.start(program, number)
            assert isinstance((await owner.end(bad)).error, NpuAborted)
            owner.source.board.switches.on_job = None
            assert (await owner.end(good)).fate is not Fate.UNDONE
            assert await owner.right(owner.start(other, number), 3, number)
            first, second = owner.start(program, number), owner.start(program, 7)
            await anyio.sleep(JOB / 2)
            assert any(array is second.inputs[0] for array in staged) is (via == "cl")
            assert await owner.right(first, 2, number)
            assert await owner.right(second, 2, 7)


async def test_a_job_that_hangs_is_broken_off_by_the_nodes(anyio_backend: object) -> None:
    """Within the bound; what waited behind it in the driver may run again."""
    async with bench("ioctl", run_bound=0.3) as owner:
        program, other = await owner.load(2), await owner.load(3)
        owner.source.board.switches.on_job = scripted({0: Fault(Kind.HANG)})
        began = anyio.current_time()
        hung, waits, behind = owner.start(program, 1), owner.start(program, 2), owner.start(other, 3)
        end = await owner.end(hung)
        assert 0.3 <= anyio.current_time() - began <= 0.56, "the bound, and one slice of waiting"
        assert (end.fate, type(end.error)) == (Fate.FAILED, DeviceHung)
        assert "times2" in str(end.error)
        assert (await owner.end(behind)).fate is Fate.UNDONE
        assert await owner.right(waits, 2, 2)
        assert await owner.right(owner.start(other, 4), 3, 4)
        assert owner.faults == []


async def test_many_long_jobs_in_line_are_no_hang(anyio_backend: object) -> None:
    """The bound is of the job at the head: those behind it have waited longer."""
    async with bench("ioctl", latency_ms=900.0) as owner:
        programs = {factor: await owner.load(factor) for factor in (2, 3, 5, 7)}
        frames = {factor: owner.start(program, 1) for factor, program in programs.items()}
        await anyio.sleep(0.55)
        assert (await owner.device.probe()).well, "the loop looks at the time"
        for factor, frame in frames.items():
            assert await owner.right(frame, factor, 1)


async def test_a_job_that_hangs_in_the_library_loses_the_device(anyio_backend: object) -> None:
    """The head of the queue is to blame; all others may run elsewhere. Then the fault is told, once."""
    async with bench("cl") as owner:
        program, other = await owner.load(2), await owner.load(3)
        owner.source.board.switches.on_job = scripted({0: Fault(Kind.HANG)})
        frames = [owner.start(program, 1), owner.start(program, 2), owner.start(other, 3)]
        ends = [await owner.end(frame) for frame in frames]
        assert [end.fate for end in ends] == [Fate.FAILED, Fate.UNDONE, Fate.UNDONE]
        assert {type(end.error) for end in ends} == {DeviceHung}
        await anyio.sleep(0.01)
        assert [type(fault) for fault in owner.faults] == [DeviceHung]
        for call in (owner.device.probe, partial(owner.device.bind, None)):
            with pytest.raises(DeviceHung):
                await call()
        with pytest.raises(DeviceHung):
            owner.start(program, 4)
        assert owner.source.board.leaks() != [], "memory of a job that may still run is not given back"
        owner.source.board.end_processes()
        owner.source.board.mmz.leaked.clear()


async def test_an_npu_that_does_not_stop_is_hung_for_all_who_ask(anyio_backend: object) -> None:
    """RESET fails; a call that waited meanwhile is told why."""
    async with bench("ioctl") as owner:
        program, other = await owner.load(2), await owner.load(3)
        owner.source.board.switches.on_job = scripted({0: Fault(Kind.HANG)})
        owner.source.board.switches.stuck = True
        frames = [owner.start(program, 1), owner.start(other, 2), owner.start(program, 3)]
        await anyio.sleep(1.001)  # the loop breaks the job off
        with pytest.raises(DeviceHung, match="RESET"):
            await owner.device.probe()
        await anyio.sleep(0.01)
        assert owner.fates(*frames) == [Fate.FAILED, Fate.UNDONE, Fate.UNDONE]
        assert [type(fault) for fault in owner.faults] == [DeviceHung]
        owner.source.board.switches.stuck = False


@WAYS
async def test_a_frame_that_cannot_be_staged_costs_nobody_else(anyio_backend: object, via: Via) -> None:
    """A caller changes its array after it was checked: 12 bits hold 4095."""
    narrow = pack_xm_npu(
        "narrow",
        model([node("Identity", ["x"], ["y"])], [tensor("x", [1, 4])], [tensor("y", [1, 4])]),
        formats={"x": Format(NpuType.UINT12)},
    )
    async with bench(via) as owner:
        other, program = await owner.load(2), await owner.load_data(narrow)
        arrays = [np.full((1, 4), value, np.uint16) for value in (5000, 4095)]
        for number in range(4):  # no place was lost
            bad, good = (owner.start_array(program, array) for array in arrays)
            end = await owner.end(bad)
            assert (end.fate, type(end.error)) == (Fate.FAILED, DeviceError)
            assert "UINT12 holds 0 to 4095" in str(end.error)
            assert (await owner.end(good)).outputs[0].tolist() == [[4095.0] * 4]
            assert await owner.right(owner.start(other, number), 2, number)
        assert owner.faults == []


async def test_an_unload_that_the_library_refuses_is_no_fault_of_the_next_model(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unload = SimulatedXmediaCl.xmedia_cl_graph_unload

    async def refuse(library: Any, graph: int) -> int:
        await unload(library, graph)
        return LOST

    monkeypatch.setattr(SimulatedXmediaCl, "xmedia_cl_graph_unload", refuse)
    async with bench("cl") as owner:
        programs = [await owner.load(2), await owner.load(3)]
        third = await owner.load(5, evict=programs)
        assert await owner.right(owner.start(third, 1), 5, 1)
    assert sum("xmedia_cl_graph_unload" in record.message for record in caplog.records) >= len(programs)
