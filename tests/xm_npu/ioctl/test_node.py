"""The calls of the NPU's node, and what they mean when they fail."""

from __future__ import annotations

import errno

import pytest

from repertory.models.errors import DeviceError, DeviceHung, DeviceLost
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World
from repertory.transports.xm_npu.errors import NpuRefusal
from repertory.transports.xm_npu.ioctl.generation import V500, Capability
from repertory.transports.xm_npu.ioctl.node import JobStatus, NpuNode, Step

from .rig import opened
from .scripted import NPU, ScriptedKernel, word

pytestmark = pytest.mark.virtual

STEP = Step(0, 20, 0x42000000, 0x42001000)


async def _queue(world: World) -> tuple[ScriptedKernel, NpuNode]:
    kernel = ScriptedKernel(world)
    node = NpuNode(kernel, NPU, V500, world.now)
    await node.start()
    await node.create_queue()
    return kernel, node


async def test_a_wait_ends_with_its_time_and_not_with_a_signal() -> None:
    async with VirtualWorld() as world:
        kernel, node = await _queue(world)
        assert [await node.submit(STEP), await node.submit(STEP)] == [1, 2]
        kernel.fail["WAIT_JOB"] = [errno.EAGAIN, errno.EINTR]
        began = world.now()
        assert await node.wait(1, 0.2505) is None
        assert world.now() - began == pytest.approx(0.2505, abs=0.001)
        assert kernel.calls.count("WAIT_JOB") == 3
        assert word(kernel.table("WAIT_JOB"), 16) == 251
        kernel.end(2, 5, 0x80)
        assert await node.wait(2, 0.0) == JobStatus(2, 5, 0x80)
        assert (await node.query(1)).pending


async def test_what_the_errnos_of_the_queue_mean() -> None:
    async with VirtualWorld() as world:
        kernel, node = await _queue(world)
        for call, number, kind, meaning in (
            ("SUBMIT_JOB", errno.EFAULT, NpuRefusal, "no queue, or the NPU is aborted"),
            ("SUBMIT_JOB", errno.EBUSY, NpuRefusal, "draining"),
            ("SUBMIT_JOB", errno.ENODEV, DeviceLost, "ENODEV"),
            ("WAIT_JOB", errno.EFAULT, NpuRefusal, "has no such job"),
            ("QUERY_JOB", errno.EFAULT, NpuRefusal, "has no such job"),
            ("GET_CAPABILITY", errno.EINVAL, NpuRefusal, "EINVAL"),
            ("CREATE_QUEUE", errno.ENOTTY, NpuRefusal, "another generation"),
            ("DESTROY_QUEUE", errno.EPERM, NpuRefusal, "left behind"),
            ("CLOSE", errno.EIO, NpuRefusal, "EIO"),
            ("RESET", errno.EIO, DeviceHung, "does not stop"),
        ):
            kernel.fail[call] = [number]
            with pytest.raises(DeviceError, match=meaning) as caught:
                await _make(node, call)
            error = caught.value
            assert type(error) is kind
            assert (error.call, error.status, error.family) == (call, number, "xm-npu")
            assert call in str(error)
            assert str(NPU) in str(error)
            assert isinstance(error.__cause__, OSError | NpuRefusal)


async def _make(node: NpuNode, call: str) -> None:
    match call:
        case "SUBMIT_JOB":
            await node.submit(STEP)
        case "WAIT_JOB":
            await node.wait(1, 1.0)
        case "QUERY_JOB":
            await node.query(1)
        case "GET_CAPABILITY":
            await node.capability(Capability.PERF)
        case "CREATE_QUEUE":
            await node.create_queue()
        case "DESTROY_QUEUE":
            await node.destroy_queue()
        case "CLOSE":
            await node.stop()
        case _:
            await node.reset()


async def test_code_of_no_bytes_is_refused_here() -> None:
    async with VirtualWorld() as world:
        kernel, node = await _queue(world)
        with pytest.raises(NpuRefusal, match="0 bytes"):
            await node.submit(Step(0, 0, 0x42000000, 0x42001000))
        assert "SUBMIT_JOB" not in kernel.calls


async def test_a_node_is_left_once() -> None:
    async with VirtualWorld() as world:
        kernel, node = await _queue(world)
        for _ in range(2):
            await node.destroy_queue()
            await node.stop()
            node.close()
        assert kernel.calls[-3:] == ["DESTROY_QUEUE", "CLOSE", "close"]
        with pytest.raises(DeviceLost, match="is closed"):
            await node.reset()


async def test_a_waiting_loop_that_dies_is_noticed() -> None:
    async with opened() as rig:
        graph = await rig.load()
        ends, rig.kernel.ends = rig.kernel.ends, None  # type: ignore[assignment]  # the double breaks
        await rig.submit(graph)
        assert await rig.bell.heard()
        with pytest.raises(DeviceLost, match="the loop that waits for jobs has ended"):
            await rig.npu.collect()
        rig.kernel.ends = ends
