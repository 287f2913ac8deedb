"""Makes every call of both nodes, in a process of its own, and prints what it was told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from repertory.models.errors import DeviceError
from repertory.transports.world import drive
from repertory.transports.xm_npu.ioctl.generation import MMZ_GK7206, V500, Capability
from repertory.transports.xm_npu.ioctl.kernel import LinuxKernel
from repertory.transports.xm_npu.ioctl.mmz import Mmz
from repertory.transports.xm_npu.ioctl.node import NpuNode, Step

__all__ = ["calls"]


async def calls() -> list[object]:
    """Make them."""
    kernel, told = LinuxKernel(), list[object]()
    node = NpuNode(kernel, Path("/dev/npu.0"), V500, iter(range(1000)).__next__)
    await node.start()
    await node.create_queue()
    mmz = Mmz(kernel, Path("/dev/mmz_userdev"), MMZ_GK7206, zone="npu")
    block = await mmz.alloc("block", 4096, cached=False)
    block.view(0, 5)[:] = b"bytes"
    job = await node.submit(Step(16, 32, block.address, block.address + 4096))
    status = await node.wait(job, 5.0)
    assert status is not None
    told += [block.address, job, status.state, status.report, await node.capability(Capability.PIX)]
    for step in (block.close, node.destroy_queue):
        try:
            await step()
        except DeviceError as error:
            told.append(error.status)
    await node.reset()
    await node.stop()
    node.close()
    await mmz.close()
    return told


if __name__ == "__main__":
    sys.stdout.write(json.dumps(drive(calls())))
