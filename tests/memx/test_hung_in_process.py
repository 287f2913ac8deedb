"""A library that hangs in this process: an error at the bound, one thread left behind, all else goes on."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import numpy as np
import pytest

from repertory.models.errors import DeviceError
from repertory.models.sketch import sketch
from repertory.models.spec import TensorSpec
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime
from repertory.runtime.telemetry import Events

from .files import Net, dfp
from .stub import Stub

STREAMS = ("memx_stream_ifmap", "memx_stream_ofmap")
CALLS = (
    "memx_open",
    "memx_download_model",
    "memx_set_stream_enable",
    *STREAMS,
    "memx_set_stream_disable",
    "memx_close",
)
BOUND = 0.5
IN_TIME = 12.0  # seconds; the runtime's own bound for closing is 15
INPUT = np.zeros((1, 3, 4, 6), np.float32)


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    made = Stub(tmp_path)
    made.answer("memx_operation_get_device_count", 0, 1)
    made.answer("memx_get_total_chip_count", 0, 4)
    made.answer("memx_get_ifmap_size", 0, 4, 6, 1, 3, 5)
    made.answer("memx_get_ofmap_size", 0, 4, 6, 1, 2, 5)
    return made


def _address(folder: Path, stub: Stub) -> str:
    where = f"library={stub.path}&lock_dir={folder}&dev_dir={folder}&manager_dir={folder}"
    return f"memx://0?{where}&isolation=none&bind_bound={BOUND}&stall={BOUND}"


def _threads() -> int:
    return sum(thread.name.startswith("repertory: memx") for thread in threading.enumerate())


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_that_hangs(call: str, stub: Stub, tmp_path: Path, anyio_backend: object) -> None:
    address, before = _address(tmp_path, stub), _threads()
    spec = (TensorSpec("x", (1,), np.dtype("float32")),)
    with anyio.fail_after(IN_TIME):
        async with open_runtime([address, "sim://?service_ms=1"]) as rt, anyio.create_task_group() as tasks:
            one, other = [await rt.load(dfp(Net(name, outputs=1), twins=False)) for name in "ab"]
            well = await rt.load(sketch("well", spec, spec, service=0.001))
            await one.infer(INPUT)
            stub.hang(call)

            async def others() -> None:
                for _ in range(100):
                    await well.infer(np.zeros(1, np.float32), timeout=5)

            tasks.start_soon(others)
            events = rt.events()
            if call in STREAMS:
                tasks.start_soon(one.infer, INPUT)  # is answered by the group's next incarnation
                await _told(events, "failed")
                stub.answer(call, 0)
            else:
                with pytest.raises(DeviceError):
                    await _swap(rt, call, one, other)
                await _told(events, "dead")  # this process keeps off the group
                assert "has not returned" in str(rt.statistics().groups[address].error)
    assert _threads() - before == 1


async def _swap(rt: Runtime, call: str, one: Model, other: Model) -> None:
    """Ask for what makes the driver call it."""
    if call == "memx_close":
        await rt.unload(one.name)
    await other.infer(INPUT)


async def _told(events: Events, kind: str) -> None:
    async for event in events:
        if event.kind == kind:
            break
