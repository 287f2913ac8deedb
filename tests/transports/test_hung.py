"""A device that stands still is closed within the bound all the same."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from repertory.models.errors import DeviceError, DeviceHung
from repertory.models.onnx_model import OnnxExecutor
from repertory.transports.conformance import Subject
from repertory.transports.cpu.device import CpuDevice
from repertory.transports.frame import Fate
from repertory.transports.memx.device import MemxDevice
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.real import RealWorld
from repertory.transports.trial import Trial
from repertory.transports.virtual import VirtualWorld

from .subjects import FOREIGN, SUBJECTS

BOUND = 8.0


@pytest.mark.virtual
@pytest.mark.parametrize("started", [0, 4])
async def test_a_hung_mx3(started: int, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library = SimulatedLibmemx(world, SimulatedMx3(swap_ms=2))
        make = partial(MemxDevice, load=lambda: library, group_id=0, simulated=True, window=4, lock=None)
        trial = Trial(Subject(make=make, artifacts=SUBJECTS["sim+memx"]().artifacts, foreign=FOREIGN), world)
        program, _ = await trial.open_bound()
        frames = trial.frames(program, started)
        trial.start(*frames)
        library.hang(0)
        await anyio.sleep(1)
        began = anyio.current_time()
        await trial.device.close(bound=BOUND)
        assert anyio.current_time() - began <= BOUND
        assert library.faults == []
        assert {trial.landed[frame].fate for frame in frames} <= {Fate.UNDONE, Fate.DONE}
        trial.judge()


async def test_a_session_that_is_never_made(anyio_backend: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repertory.transports.cpu.device.BIND_BOUND", 0.05)
    subject = SUBJECTS["cpu"]()
    faults: list[DeviceError] = []

    def completed(completions: object) -> None:
        raise AssertionError(completions)

    async with RealWorld() as world:
        gate = world.channel()

        async def never(data: bytes) -> OnnxExecutor:
            await gate.get()
            raise AssertionError(data)

        device = CpuDevice(world, threads=1, window=1)
        monkeypatch.setattr(device, "_session", never)
        await device.open(completed, faults.append)
        program = device.prepare(subject.artifacts[0])
        with pytest.raises(DeviceHung, match="InferenceSession") as hung:
            await device.bind(program)
        assert faults == [hung.value]
        with pytest.raises(DeviceHung):
            await device.probe()
        await device.close(bound=BOUND)
        gate.close()
