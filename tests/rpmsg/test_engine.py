"""The driver loop: how many jobs are out, what a cancelled one costs, and answers that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import numpy as np
import pytest

from repertory.models.errors import DeviceError, DeviceHung, DeviceLost
from repertory.models.program import Network, Program
from repertory.models.spec import Array, TensorSpec
from repertory.transports.frame import Fate, Frame
from repertory.transports.rpmsg.errors import DspRefusal
from repertory.transports.rpmsg.program import loadable
from repertory.transports.rpmsg.session import Session
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.faults import Fault, Kind
from repertory.transports.rpmsg.simulator.module import CallFailed, Module
from repertory.transports.rpmsg.simulator.protocol import Code, Outcome
from tests.rpmsg.dsps import answer
from tests.rpmsg.owner import Owner, bench, forget_modules

pytestmark = pytest.mark.virtual
WIRES = pytest.mark.parametrize("wire", [2, 3])
OUT = {2: 1, 3: 2}
"""Jobs that may be outstanding, by version."""


def right(owner: Owner, frame: Any, number: int) -> bool:
    landed = owner.landed[frame]
    return landed.fate is Fate.DONE and landed.outputs[0].tobytes() == answer(number)


def outstanding(dsp: SimulatedDsp) -> int:
    return dsp.firmware.waiting + dsp.firmware.running


@WIRES
async def test_jobs_are_out_as_far_as_results_have_a_place(anyio_backend: object, wire: int) -> None:
    """And the next input lies ready meanwhile."""
    async with bench(wire) as (owner, dsp):
        window = owner.device.capabilities.window
        assert window == OUT[wire] + 1
        numbers = range(1, 13)
        frames = [owner.start(number) for number in numbers[:window]]
        seen: list[int] = []
        for number in numbers[window:]:
            await anyio.sleep(0.025)
            seen.append(outstanding(dsp))
            slots = sum(buffer.flushes for buffer in dsp.leaks) - 1
            assert slots == len(frames)
            await owner.end(frames[-window])
            frames.append(owner.start(number))
        for frame in frames:
            await owner.end(frame)
        assert set(seen) == {OUT[wire]}
        assert all(right(owner, frame, number) for frame, number in zip(frames, numbers, strict=True))
        assert dsp.firmware.jobs_completed == len(numbers)


@WIRES
async def test_the_dsp_is_never_idle_on_version_3(anyio_backend: object, wire: int) -> None:
    async with bench(wire) as (owner, _):
        began = anyio.current_time()
        frames = [owner.start(number) for number in range(owner.device.capabilities.window)]
        for number in range(20):
            await owner.end(frames[number])
            frames.append(owner.start(number))
        if wire == 3:
            assert anyio.current_time() - began == pytest.approx(20 * 0.05, abs=0.001)


@WIRES
async def test_what_is_cancelled_before_it_is_sent_costs_the_dsp_nothing(
    anyio_backend: object, wire: int
) -> None:
    async with bench(wire) as (owner, dsp):
        for _ in range(3):  # or slots would run out
            frames = [owner.start(number) for number in range(owner.device.capabilities.window)]
            await anyio.sleep(0.01)
            owner.cancel(frames[-1])
            landed = await owner.end(frames[-1])
            assert landed.fate is Fate.UNDONE
            for frame in frames[:-1]:
                await owner.end(frame)
        staged = sum(buffer.flushes for buffer in dsp.leaks)
        frames = [owner.start(number) for number in range(owner.device.capabilities.window)]
        await anyio.sleep(0.01)
        assert sum(buffer.flushes for buffer in dsp.leaks) - staged == len(frames)
        for number, frame in enumerate(frames):
            await owner.end(frame)
            assert right(owner, frame, number)
        assert dsp.firmware.jobs_completed == 3 * OUT[wire] + len(frames)


@WIRES
async def test_what_is_cancelled_at_once_is_not_even_staged(anyio_backend: object, wire: int) -> None:
    async with bench(wire) as (owner, dsp):
        frame = owner.start(1)
        owner.cancel(frame)
        assert (await owner.end(frame)).fate is Fate.UNDONE
        assert (dsp.firmware.jobs_completed, outstanding(dsp)) == (0, 0)
        assert sum(buffer.flushes for buffer in dsp.leaks) == 1


@WIRES
async def test_what_is_cancelled_later_keeps_its_slot_until_the_answer(
    anyio_backend: object, wire: int
) -> None:
    async with bench(wire) as (owner, dsp):
        frames = [owner.start(number) for number in range(owner.device.capabilities.window)]
        await anyio.sleep(0.01)
        owner.cancel(frames[0])
        await anyio.sleep(0.03)
        assert frames[0] not in owner.landed
        landed = await owner.end(frames[0])
        assert landed.fate is Fate.DONE
        for number, frame in enumerate(frames):
            await owner.end(frame)
            assert right(owner, frame, number)
        assert dsp.firmware.faults == []


@WIRES
async def test_answers_do_not_change_with_the_next_result(anyio_backend: object, wire: int) -> None:
    async with bench(wire, latency_ms=1.0) as (owner, _):
        frames: list[Frame] = []
        for number in range(6):
            frames.append(owner.start(number))
            await owner.end(frames[-1])
        assert all(right(owner, frame, number) for number, frame in enumerate(frames))


@WIRES
async def test_time_is_told_by_the_dsps_counter(anyio_backend: object, wire: int) -> None:
    async with bench(wire) as (owner, _):
        landed = await owner.end(owner.start(1))
        assert landed.busy == pytest.approx(0.05)


FLOAT = np.dtype("float32")
OTHERS = {
    "shape": ((TensorSpec("y", (4, 1), FLOAT),), r"gave y as float32\[1, 4\], .*specified as"),
    "dtype": ((TensorSpec("y", (1, 4), np.dtype("int32")),), r"gave y as float32\[1, 4\]"),
    "count": (
        (TensorSpec("y", (1, 2), FLOAT), TensorSpec("z", (1, 2), FLOAT)),
        r"gave 1 outputs, it is specified as 2",
    ),
}


def described(program: Program, **sides: Sequence[TensorSpec]) -> Program:
    """Return a program whose sidecar says something else."""
    (told,) = program.networks
    network = Network(
        told.name, tuple(sides.get("inputs", told.inputs)), tuple(sides.get("outputs", told.outputs))
    )
    image = replace(loadable(program), network=network)
    return replace(program, key=str(network), networks=(network,), image=image)


@WIRES
@pytest.mark.parametrize("what", OTHERS)
async def test_a_module_that_answers_otherwise_than_it_is_described(
    anyio_backend: object, wire: int, what: str
) -> None:
    outputs, text = OTHERS[what]
    async with bench(wire) as (owner, dsp):
        good = owner.program
        await owner.bind(described(good, outputs=outputs))
        for number in range(3):
            landed = await owner.end(owner.start(number))
            assert landed.fate is Fate.FAILED
            assert type(landed.error) is DeviceError
            with pytest.raises(DeviceError, match=text):
                raise landed.error
        await owner.bind(good)
        after = owner.start(5)
        await owner.end(after)
        assert right(owner, after, 5)
        assert (owner.faults, len(dsp.firmware.loaded)) == ([], 1)


@WIRES
async def test_an_entry_that_returns_something_fails_its_frame_alone(
    anyio_backend: object, wire: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Module.call

    def moody(module: Module, inputs: Sequence[Array]) -> Sequence[Array]:
        if inputs[0][0, 0] == 1:
            raise CallFailed(-5)
        return call(module, inputs)

    monkeypatch.setattr(Module, "call", moody)
    async with bench(wire) as (owner, dsp):
        frames = [owner.start(number) for number in range(OUT[wire] + 1)]
        for frame in frames:
            await owner.end(frame)
        failed = owner.landed[frames[1]]
        assert failed.fate is Fate.FAILED
        assert isinstance(failed.error, DspRefusal)
        assert (failed.error.status, failed.error.call) == (-11, "INFER")
        assert all(right(owner, frames[at], at) for at in range(len(frames)) if at != 1)
        assert dsp.firmware.jobs_failed == 1


@WIRES
async def test_no_memory_at_a_run(anyio_backend: object, wire: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_job: object) -> Outcome:
        return Outcome(Code.OUT_OF_MEMORY, oom=(70, 20, 100))

    async with bench(wire) as (owner, _):
        with monkeypatch.context() as patch:
            patch.setattr("repertory.transports.rpmsg.simulator.inference._Job._outcome", refuse)
            landed = await owner.end(owner.start(1))
        assert isinstance(landed.error, DspRefusal)
        assert "70 bytes wanted, 20 of 100 free" in str(landed.error)
        after = owner.start(2)
        await owner.end(after)
        assert right(owner, after, 2)


@WIRES
async def test_a_module_that_is_gone_is_a_fault_and_no_frame_is_lost(
    anyio_backend: object, wire: int
) -> None:
    """The endpoint lives on, and the handle does not: the frames may run again elsewhere."""
    async with bench(wire) as (owner, dsp):
        forget_modules(dsp)
        frames = [owner.start(number) for number in range(OUT[wire] + 1)]
        for frame in frames:
            landed = await owner.end(frame)
            assert landed.fate is Fate.UNDONE
        (fault,) = owner.faults
        assert isinstance(fault, DeviceLost)
        assert "does not know the module" in str(fault)
        with pytest.raises(DeviceLost):
            owner.start(9)


@WIRES
@pytest.mark.parametrize("how", ["stop", "restart", "hang"])
async def test_frames_come_back_together_with_the_fault(
    anyio_backend: object, wire: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever got one earlier would start it again on what is going down, and waste its second chance."""
    told: list[int] = []
    async with bench(wire) as (owner, dsp):
        close = Session.close

        def slow(session: Session) -> None:
            told.append(len(owner.landed))
            close(session)

        with monkeypatch.context() as patch:
            patch.setattr(Session, "close", slow)
            frames = [owner.start(number) for number in range(OUT[wire] + 1)]
            await anyio.sleep(0.01)
            getattr(dsp, how)()
            for frame in frames:
                await owner.end(frame)
        assert told == [0]
        assert len(owner.faults) == 1
        dsp.restart()


@WIRES
async def test_a_dsp_that_hangs_is_given_up_after_its_bound(anyio_backend: object, wire: int) -> None:
    async with bench(wire) as (owner, dsp):
        began = anyio.current_time()
        dsp.hang()
        frames = [owner.start(number) for number in range(OUT[wire] + 1)]
        fates = [(await owner.end(frame)).fate for frame in frames]
        assert fates == [Fate.FAILED, *[Fate.UNDONE] * OUT[wire]]
        assert anyio.current_time() - began == pytest.approx(1 + 2, abs=0.01), "run bound and two PINGs"
        (fault,) = owner.faults
        assert isinstance(fault, DeviceHung)
        dsp.restart()


@WIRES
async def test_a_job_may_take_longer_than_the_bound(anyio_backend: object, wire: int) -> None:
    """A PING waits behind it, and its answer comes with the job's."""
    async with bench(wire, latency_ms=2500.0) as (owner, _):
        frames = [owner.start(number) for number in range(OUT[wire] + 1)]
        for number, frame in enumerate(frames):
            await owner.end(frame)
            assert right(owner, frame, number)
        assert owner.faults == []


@WIRES
async def test_after_a_long_job_a_lost_answer_is_told_from_a_hang(anyio_backend: object, wire: int) -> None:
    """Each job has PINGs of its own."""
    async with bench(wire, latency_ms=2500.0) as (owner, dsp):
        await owner.end(owner.start(1))
        dsp.faults.on_reply = lambda seen: Fault(Kind.DROP) if seen.opcode == 0x1021 else None
        landed = await owner.end(owner.start(2))
        assert "the reply to INFER was lost" in str(landed.error)
        dsp.faults.on_reply = None
        assert owner.faults == []


@WIRES
async def test_a_lost_answer_costs_its_frame_alone(anyio_backend: object, wire: int) -> None:
    async with bench(wire) as (owner, dsp):
        lost = [True]

        def drop(seen: Any) -> Fault | None:
            if seen.opcode == 0x1021 and lost:
                lost.clear()
                return Fault(Kind.DROP)
            return None

        dsp.faults.on_reply = drop
        frames = [owner.start(number) for number in range(OUT[wire] + 1)]
        for frame in frames:
            await owner.end(frame)
        assert [owner.landed[frame].fate for frame in frames] == [Fate.FAILED, *[Fate.DONE] * OUT[wire]]
        assert "the reply to INFER was lost" in str(owner.landed[frames[0]].error)
        assert owner.faults == []


@WIRES
async def test_a_link_that_takes_nothing_while_a_job_runs(anyio_backend: object, wire: int) -> None:
    """The PING behind the job is refused too: it is offered again after pauses, and not for ever."""
    async with bench(wire, latency_ms=60_000.0) as (owner, dsp):
        frame = owner.start(1)
        await anyio.sleep(0.5)
        dsp.faults.refused_sends = 1 << 30
        landed = await owner.end(frame)
        assert landed.fate is Fate.FAILED
        assert isinstance(landed.error, DeviceHung)
        assert "has taken no message" in str(landed.error)
        assert anyio.current_time() < 3
        assert (1 << 30) - dsp.faults.refused_sends < 200, "pauses between"
        dsp.faults.refused_sends = 0
        dsp.restart()


@WIRES
async def test_a_link_that_takes_nothing_at_all(anyio_backend: object, wire: int) -> None:
    async with bench(wire) as (owner, dsp):
        dsp.faults.refused_sends = 1 << 30
        began = anyio.current_time()
        landed = await owner.end(owner.start(1))
        assert (landed.fate, type(landed.error)) == (Fate.UNDONE, DeviceHung)
        assert anyio.current_time() - began == pytest.approx(1, abs=0.05)
        dsp.faults.refused_sends = 0


@WIRES
async def test_a_link_that_was_full_once_is_not_held_against_it_later(
    anyio_backend: object, wire: int
) -> None:
    async with bench(wire) as (owner, dsp):
        dsp.faults.refused_sends = 1
        refused = owner.start(1)
        await anyio.sleep(0.0005)
        owner.cancel(refused)
        assert (await owner.end(refused)).fate is Fate.UNDONE
        await anyio.sleep(100)
        cancelled = owner.start(2)
        owner.cancel(cancelled)
        await owner.end(cancelled)
        dsp.faults.refused_sends = 1
        after = owner.start(3)
        await owner.end(after)
        assert right(owner, after, 3)
        assert owner.faults == []


@WIRES
async def test_an_input_that_fits_nowhere_is_no_answer(anyio_backend: object, wire: int) -> None:
    """The floors above check inputs; a bug there must not write beyond a slot."""
    async with bench(wire) as (owner, dsp):
        landed = await owner.end(owner.start(1, inputs=[np.zeros(4096 * 4, np.uint8)]))
        assert landed.fate is Fate.UNDONE
        (fault,) = owner.faults
        assert "do not fit into" in str(fault)
        assert dsp.firmware.jobs_completed == 0
