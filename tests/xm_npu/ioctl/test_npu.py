"""Models, runs, aborts and the end, over the driver's nodes."""

from __future__ import annotations

import dataclasses
import errno
import logging
from pathlib import Path
from pickle import PickleBuffer
from typing import Any

import pytest

from repertory.models.errors import (
    ArtifactError,
    ConfigError,
    DeviceBusy,
    DeviceError,
    DeviceHung,
    DeviceLost,
    NoRoom,
    RepertoryError,
)
from repertory.models.npu_code import MARK
from repertory.transports.frame import Fate
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World
from repertory.transports.xm_npu.errors import NpuAborted, NpuRefusal
from repertory.transports.xm_npu.ioctl.checks import check_model
from repertory.transports.xm_npu.ioctl.generation import MMZ_GK7206, JobState
from repertory.transports.xm_npu.ioctl.kernel import LinuxKernel
from repertory.transports.xm_npu.ioctl.npu import NodeNpu

from .rig import Bell, opened
from .scripted import MMZ, NPU, ScriptedKernel, made, word

pytestmark = pytest.mark.virtual

OPENING = ["open", "OPEN", "CREATE_QUEUE", "open"]
CLOSING = ["DESTROY_QUEUE", "CLOSE", "close", "UNMAP", "FREE", "close"]
WHY = DeviceHung("it does not end", family="xm-npu")


async def test_one_run() -> None:
    async with opened() as rig:
        graph = await rig.load()
        (place,) = graph.places
        assert [len(view) for view in (*place.inputs, *place.outputs)] == [10, 3, 5]
        place.inputs[0][:] = b"0123456789"
        place.inputs[1][:] = b"abc"
        run = await rig.submit(graph)
        (block,) = rig.kernel.blocks.values()
        assert bytes(block[:20]) == bytes(range(1, 21))
        assert bytes(block[32:72]) == bytes(range(21, 61))
        assert (bytes(block[128:138]), bytes(block[144:147])) == (b"0123456789", b"abc")
        block[160:165] = b"yield"
        rig.kernel.end(1)
        assert await rig.fates(run) == [Fate.DONE]
        assert bytes(place.outputs[0]) == b"yield"
        calls = rig.kernel.calls
    assert calls[:4] == OPENING
    assert calls[4:7] == ["ALLOC", "USER_REMAP", "SUBMIT_JOB"]
    assert calls[-6:] == CLOSING


async def test_what_the_driver_is_told() -> None:
    async with opened(zone="npu", layout=MMZ_GK7206) as rig:
        await rig.submit(await rig.load("a name that is too long", codes=(20, 8)))
        kernel = rig.kernel
        base = word(kernel.table("USER_REMAP"), 0)
        assert [word(kernel.table("OPEN"), 4 * each) for each in range(8)] == [
            0,
            0xFFFFFFFF,
            0,
            1,
            1,
            1,
            1,
            0,
        ]
        allocated = kernel.table("ALLOC")
        assert (word(allocated, 8), allocated[24:40]) == (192, b"a name that is \0")
        assert allocated[40:72].rstrip(b"\0") == b"npu"
        both = [
            table for call, table in zip(kernel.calls, kernel.tables, strict=True) if call == "SUBMIT_JOB"
        ]
        told = [[word(table, 4 * each) for each in range(8)] for table in both]
        keep = [0xFFFFFFFF] * 4
        assert told == [[0, 20, *keep, base, base + 192], [32, 8, *keep, base, base + 192]]


async def test_runs_of_several_programs_end_with_the_last() -> None:
    async with opened() as rig:
        run = await rig.submit(await rig.load(codes=(20, 8)))
        rig.kernel.end(1)
        assert await rig.bell.heard()
        assert await rig.npu.collect() == []
        rig.kernel.end(2)
        assert await rig.fates(run) == [Fate.DONE]


async def test_an_unloaded_model_leaves_nothing() -> None:
    async with opened() as rig:
        graph = await rig.load()
        told = {"graphs_count": 1.0, "jobs_count": 0.0, "mmz_held_bytes": 176.0}
        assert await rig.npu.health() == {**told, "performance_class": 7.0}
        await graph.unload()
        await graph.unload()
        assert rig.kernel.named("UNMAP", "FREE") == ["UNMAP", "FREE"]
        rig.kernel.fail["GET_CAPABILITY"] = [errno.EINVAL, errno.ENODEV]
        assert await rig.npu.health() == {"graphs_count": 0.0, "jobs_count": 0.0, "mmz_held_bytes": 0.0}
        with pytest.raises(DeviceLost, match="GET_CAPABILITY"):
            await rig.npu.health()
        with pytest.raises(ValueError, match="released"):
            graph.places[0].inputs[0][0] = 1


# -- aborts ---------------------------------------------------------------------------------------------


async def test_an_abort_blames_one_and_takes_the_others_along() -> None:
    async with opened() as rig:
        graphs = [await rig.load(name) for name in ("early", "culprit", "late", "later")]
        runs = [await rig.submit(graph) for graph in graphs]
        for block in rig.kernel.blocks.values():
            block[:20] = bytes(20)  # it went astray
        rig.kernel.end(1)
        rig.kernel.end(4, JobState.ABORT)
        rig.kernel.end(3, JobState.ABORT)
        rig.kernel.end(2, JobState.ABORT, 0x50000)
        ends = await rig.ends(4)
        assert [ends[run].fate for run in runs] == [Fate.DONE, Fate.FAILED, Fate.UNDONE, Fate.UNDONE]
        culprit = ends[runs[1]].error
        assert isinstance(culprit, NpuAborted)
        assert (culprit.report, culprit.names) == (0x50000, ("rwddr_out_of_bound", "dma_r_resp"))
        assert type(ends[runs[2]].error) is DeviceError
        assert "culprit" in str(ends[runs[2]].error)
        for block in rig.kernel.blocks.values():
            assert bytes(block[:20]) == bytes(range(1, 21)), "code and parameters are loaded anew"
        again = await rig.submit(graphs[2])
        assert rig.kernel.last == 1, "numbers begin again"
        rig.kernel.end(1)
        assert await rig.fates(again) == [Fate.DONE]


async def test_nobody_asks_for_an_old_job_after_a_reset() -> None:
    async with opened() as rig:
        graphs = [await rig.load(name) for name in "abc"]
        for graph in graphs:
            await rig.submit(graph)
        assert not await rig.bell.heard(0.1), "the loop is at its call now"
        ends = await rig.npu.break_off(WHY)
        assert [(end.run.graph, end.fate) for end in ends] == [
            (graphs[0], Fate.FAILED),
            (graphs[1], Fate.UNDONE),
            (graphs[2], Fate.UNDONE),
        ]
        assert ends[0].error is WHY
        runs = [await rig.submit(graph) for graph in reversed(graphs)]
        for job in (1, 2, 3):
            rig.kernel.end(job)
        assert await rig.fates(*runs) == [Fate.DONE] * 3


async def test_a_job_that_ends_while_it_is_broken_off_is_done() -> None:
    async with opened() as rig:
        first, second = [await rig.submit(await rig.load(name)) for name in "ab"]
        assert not await rig.bell.heard(0.3), "the loop is at its second call now"
        rig.kernel.end(1)
        assert [(end.run, end.fate) for end in await rig.npu.break_off(WHY)] == [(first, Fate.DONE)]
        assert "RESET" not in rig.kernel.calls
        rig.kernel.end(2)
        assert await rig.fates(second) == [Fate.DONE]


async def test_a_job_behind_those_of_another_program_is_spared_once() -> None:
    async with opened() as rig:
        runs = [await rig.submit(await rig.load(name)) for name in "ab"]
        rig.kernel.behind = {1, 2}
        assert await rig.npu.break_off(WHY) == []
        rig.kernel.behind = {2}
        rig.kernel.end(1)
        assert await rig.fates(runs[0]) == [Fate.DONE]
        assert await rig.npu.break_off(WHY) == [], "the next one is another job"
        assert "RESET" not in rig.kernel.calls
        ends = await rig.npu.break_off(WHY)
        assert [(end.run, end.fate) for end in ends] == [(runs[1], Fate.UNDONE)], "it never began"
        assert "jobs of another program" in str(rig.why(ends[0]))
        last = await rig.submit(runs[1].graph)
        rig.kernel.behind = {1}
        assert await rig.npu.break_off(WHY) == []
        rig.kernel.behind = set()
        assert [(end.run, end.error) for end in await rig.npu.break_off(WHY)] == [(last, WHY)]


@pytest.mark.parametrize(
    ("state", "fate"), [(JobState.SUCCESS, Fate.DONE), (JobState.ABORT, Fate.FAILED), (None, Fate.UNDONE)]
)
async def test_a_job_that_ends_as_it_is_looked_at(state: int | None, fate: Fate) -> None:
    """Between the last call that waits and the one that looks; where the queue is gone nobody is blamed."""
    async with opened() as rig:
        graph = await rig.load()
        run = await rig.submit(graph)
        rig.kernel.fail["QUERY_JOB"] = [0 if state is not None else errno.EFAULT]
        rig.kernel.unheard = None if state is None else (1, state, 0x80 if state == JobState.ABORT else 0)
        ends = await rig.npu.break_off(WHY)
        assert [(end.run, end.fate) for end in ends] == [(run, fate)]
        assert ("RESET" in rig.kernel.calls) == (fate is not Fate.DONE)
        assert fate is not Fate.FAILED or isinstance(ends[0].error, NpuAborted)
        again = await rig.submit(graph)
        rig.kernel.end(rig.kernel.last)
        assert await rig.fates(again) == [Fate.DONE]


async def test_an_npu_that_does_not_stop_is_hung() -> None:
    async with opened() as rig:
        done, culprit = [await rig.submit(await rig.load(name)) for name in "ab"]
        rig.kernel.fail["RESET"] = [errno.EIO, errno.EIO]
        rig.kernel.end(1)
        rig.kernel.end(2, JobState.ABORT, 0x80)
        assert await rig.fates(done) == [Fate.DONE], "what is done is not lost"
        with pytest.raises(DeviceHung, match="does not stop"):
            await rig.npu.collect()
        with pytest.raises(DeviceHung, match="does not stop"):
            await rig.submit(culprit.graph)


@pytest.mark.parametrize(
    ("state", "report", "fate"),
    [
        (JobState.ABORT, 0, Fate.UNDONE),
        (JobState.UNKNOWN, 0, Fate.UNDONE),
        (JobState.SYNC, 0, Fate.FAILED),
        (9, 0, Fate.FAILED),
    ],
)
async def test_ends_of_other_kinds(state: int, report: int, fate: Fate) -> None:
    async with opened() as rig:
        graph = await rig.load()
        run = await rig.submit(graph)
        rig.kernel.end(1, state, report)
        assert await rig.fates(run) == [fate]
        again = await rig.submit(graph)
        rig.kernel.end(1)
        assert await rig.fates(again) == [Fate.DONE]


async def test_somebody_else_resets_the_npu() -> None:
    async with opened() as rig:
        graphs = [await rig.load(name) for name in "ab"]
        first = await rig.submit(graphs[0])
        rig.kernel.queue = False
        second = await rig.submit(graphs[1])
        assert rig.kernel.calls[-1] == "SUBMIT_JOB"
        ends = await rig.ends(2)
        assert [ends[run].fate for run in (first, second)] == [Fate.UNDONE] * 2
        assert "no queue" in str(ends[second].error)
        third = await rig.submit(graphs[1])
        rig.kernel.end(1)
        assert await rig.fates(third) == [Fate.DONE]


async def test_somebody_else_makes_the_queue_anew() -> None:
    """Then a job of theirs may have the number of one of ours: nobody may ask for it."""
    async with opened() as rig:
        graphs = [await rig.load(name) for name in "abc"]
        runs = [await rig.submit(graph) for graph in graphs[:2]]
        assert not await rig.bell.heard(0.1), "somebody is asking for the first one now"
        rig.kernel.last = 0
        runs.append(await rig.submit(graphs[2]))
        ends = await rig.ends(3)
        assert {ends[run].fate for run in runs} == {Fate.UNDONE}
        assert "somebody else" in str(ends[runs[0]].error)
        assert "QUERY_JOB" not in rig.kernel.calls


async def test_results_of_somebody_else_are_not_ours() -> None:
    """Job 1 of ours is unknown, so the job 2 that has ended is not ours either."""
    async with opened() as rig:
        runs = [await rig.submit(await rig.load(name)) for name in "ab"]
        rig.kernel.end(2)
        rig.kernel.end(1, JobState.UNKNOWN)
        assert await rig.fates(*runs) == [Fate.UNDONE] * 2


async def test_jobs_of_somebody_else_that_have_our_numbers() -> None:
    """WAIT said that our queue is gone: what ends under those numbers in the next one is not ours."""
    async with opened() as rig:
        runs = [await rig.submit(await rig.load(name)) for name in "ab"]
        rig.kernel.last, rig.kernel.ends = 0, {}
        assert await rig.bell.heard(1)
        rig.kernel.last = 2
        rig.kernel.end(1)
        rig.kernel.end(2)
        assert {end.run: end.fate for end in await rig.npu.collect()} == dict.fromkeys(runs, Fate.UNDONE)
        assert "QUERY_JOB" not in rig.kernel.calls


async def test_a_refused_submit_proves_no_success() -> None:
    """An NPU that has aborted refuses it, and one whose queue is another's: blame alone is believed."""
    async with opened() as rig:
        runs = [await rig.submit(await rig.load(name)) for name in "abc"]
        rig.kernel.end(2)
        rig.kernel.end(3, JobState.ABORT, 0x400)
        rig.kernel.fail["SUBMIT_JOB"] = [errno.EFAULT]
        late = await rig.submit(await rig.load("d"))
        ends = await rig.ends(4)
        fates = [ends[run].fate for run in (*runs, late)]
        assert fates == [Fate.UNDONE, Fate.UNDONE, Fate.FAILED, Fate.UNDONE]


async def test_a_queue_that_is_lost_in_the_middle_of_a_run() -> None:
    async with opened() as rig:
        graph = await rig.load(codes=(20, 8))
        rig.kernel.end(1)
        rig.kernel.fail["SUBMIT_JOB"] = [0, errno.EBUSY]
        run = await rig.submit(graph)
        assert await rig.fates(run) == [Fate.UNDONE]


async def test_a_refused_job_leaves_nothing_in_flight() -> None:
    async with opened() as rig:
        graph = await rig.load()
        rig.kernel.fail["SUBMIT_JOB"] = [errno.EINVAL]
        with pytest.raises(NpuRefusal, match="another generation than V500"):
            await rig.submit(graph)
        run = await rig.submit(graph)
        rig.kernel.end(1)
        assert await rig.fates(run) == [Fate.DONE]


# -- memory ---------------------------------------------------------------------------------------------


async def test_no_room() -> None:
    async with opened() as rig:
        rig.kernel.fail["ALLOC"] = [errno.ENOMEM]
        with pytest.raises(NoRoom, match="176 bytes") as caught:
            await rig.load()
        assert (caught.value.wanted, caught.value.free) == (176, None)
        await rig.load()


async def test_a_model_that_is_shorter_than_it_says_leaves_nothing() -> None:
    async with opened() as rig:
        with pytest.raises(ValueError, match="different structures"):
            await rig.npu.load(dataclasses.replace(made(), data=b"short"))
        assert rig.kernel.blocks == {}


async def test_memory_that_is_mapped_elsewhere(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as rig:
        graph = await rig.load()
        rig.kernel.fail["FREE"] = [errno.EBUSY]
        with caplog.at_level(logging.WARNING):
            await graph.unload()
        assert "freed at the last unmap" in caplog.text
        rig.kernel.blocks.clear()  # as the kernel does, then


async def test_memory_that_somebody_still_looks_at(caplog: pytest.LogCaptureFixture) -> None:
    """It stays mapped until the node is closed: whoever reads it then would take the process down."""
    async with opened() as rig:
        graph = await rig.load()
        looked = PickleBuffer(graph.places[0].inputs[0])
        with caplog.at_level(logging.WARNING):
            await graph.unload()
        assert "block net is still looked at here" in caplog.text
        assert rig.kernel.named("UNMAP", "FREE") == []
        looked.release()


# -- opening and closing --------------------------------------------------------------------------------


async def _refused(kernel: ScriptedKernel, world: World, **options: Any) -> RepertoryError:
    npu = NodeNpu(world, kernel, **options)
    with pytest.raises(RepertoryError) as caught:
        await npu.open(Bell(world).ring)
    assert kernel.fds == {}
    await npu.close()
    return caught.value


async def test_nodes_that_cannot_be_opened(tmp_path: Path) -> None:
    async with VirtualWorld() as world:
        kernel = ScriptedKernel(world)
        kernel.fail["open"] = [0, errno.EPERM, errno.EACCES]
        assert "CAP_SYS_RAWIO" in str(await _refused(kernel, world))
        assert "be root" in str(await _refused(kernel, world, lock_dir=tmp_path))
        kernel.paths = {MMZ, Path("/dev/npu.1")}
        missing = await _refused(kernel, world, lock_dir=tmp_path)
        assert isinstance(missing, DeviceLost)
        for told in ("/dev/npu.0", "./load xm7206v11a -i", "insmod xm_npu.ko", "/dev has npu.1"):
            assert told in str(missing)
        kernel.paths = {NPU, MMZ}
        kernel.fail["OPEN"] = [errno.ENOTTY]
        assert "another generation than V500" in str(await _refused(kernel, world))


async def test_a_process_of_64_bits_opens_nothing() -> None:
    async with VirtualWorld() as world:
        kernel = ScriptedKernel(world)
        kernel.bits = 64
        refused = await _refused(kernel, world)
        assert isinstance(refused, ConfigError)
        assert "32-bit" in str(refused)
        assert kernel.calls == []


async def test_one_user_among_our_processes(tmp_path: Path) -> None:
    async with opened(lock_dir=tmp_path) as rig:
        assert (tmp_path / "repertory-npu.0.lock").exists(), "the library's users take the same"
        assert isinstance(await _refused(ScriptedKernel(rig.world), rig.world, lock_dir=tmp_path), DeviceBusy)
    async with opened(lock_dir=tmp_path):
        pass


async def test_a_fork_is_refused_before_the_call_and_leaves_all_to_its_parent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened() as rig:
        graph = await rig.load()
        before, rig.kernel.pid = len(rig.kernel.calls), 1001
        with pytest.raises(DeviceLost, match="opened by process 1000, this is 1001; open the device in"):
            await rig.submit(graph)
        with pytest.raises(DeviceLost, match="opened by process 1000"):
            await rig.load()
        assert len(rig.kernel.calls) == before
        await rig.npu.close()
        assert rig.kernel.calls[before:] == ["close", "close"]
        assert caplog.text == "", "nothing went wrong"
        rig.kernel.mapped.clear()


async def test_a_job_that_runs_at_the_end_is_stopped_first() -> None:
    async with opened() as rig:
        await rig.submit(await rig.load())
        await rig.npu.close()
        assert rig.kernel.calls[-6:] == ["RESET", "CLOSE", "close", "UNMAP", "FREE", "close"]
        with pytest.raises(DeviceLost, match="closed"):
            await rig.load()


async def test_what_goes_wrong_at_the_end_is_told_by_name(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as rig:
        rig.kernel.fail["DESTROY_QUEUE"] = [errno.EPERM]
        with caplog.at_level(logging.WARNING):
            await rig.npu.close()
        assert "DESTROY_QUEUE: /dev/npu.0: EPERM" in caplog.text
        assert "draining" in caplog.text


async def test_models_that_only_the_library_can_run() -> None:
    async with opened() as rig:
        for unfit in (
            dataclasses.replace(made(), batch=2),
            dataclasses.replace(made(), reuse=1),
            dataclasses.replace(made(), codes=()),
        ):
            with pytest.raises(NpuRefusal):
                await rig.npu.load(unfit)
        assert rig.kernel.blocks == {}


async def test_a_model_for_simulators_is_refused_by_a_real_kernel() -> None:
    twin = dataclasses.replace(made(), data=MARK + bytes(60))
    with pytest.raises(ArtifactError, match="packed for simulated NPUs"):
        check_model(twin, LinuxKernel())
    check_model(made(), LinuxKernel())
    async with opened() as rig:
        await rig.npu.load(twin)


async def test_nothing_is_left_whichever_call_fails() -> None:
    """The nth call fails, for every n: open, load, run, abort, run again, unload, close."""
    failed = 0
    for nth in range(1, 40):
        async with VirtualWorld() as world:
            kernel, bell = ScriptedKernel(world), Bell(world)
            kernel.nth = nth
            npu = NodeNpu(world, kernel)
            try:
                await _whole_life(npu, kernel, bell)
            except RepertoryError:
                failed += 1
            finally:
                await npu.close()
            assert kernel.fds == {}
            assert kernel.blocks == {}
            if len(kernel.calls) < nth:
                break
    assert failed > 10


async def _whole_life(npu: NodeNpu, kernel: ScriptedKernel, bell: Bell) -> None:
    await npu.open(bell.ring)
    graph = await npu.load(made())
    for state, report in ((2, 0), (5, 0x80), (2, 0)):
        await graph.submit(graph.places[0])
        kernel.end(1 if kernel.last == 1 else 2, state, report)
        ends = list(await npu.collect())
        while not ends:
            await bell.heard(1.0)
            ends += await npu.collect()
    await graph.unload()
