"""How frames cross: in the caller's memory, in the library's, and each flow in one way only."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from repertory.models.formats import PortFormat
from repertory.models.pack import pack_memx
from repertory.runtime.runtime import open_runtime
from repertory.transports.device import Device
from repertory.transports.memx.device import MemxDevice
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World
from tests.integration.support import Floats, Machine, expected, image

from .files import CHANNELS, HEIGHT, WIDTH, Net, onnx_net

pytestmark = pytest.mark.virtual

NET = Net()
LENT = [f"memx_{step}_{side}_buf" for side in ("ifmap", "ofmap") for step in ("dequeue", "enqueue")]
COPIED = ["memx_stream_ifmap", "memx_stream_ofmap"]


def _copying(world: World, library: SimulatedLibmemx, index: int) -> Device:
    return MemxDevice(world, library, index, window=8, lock=None, zero_copy=False)


async def _answers(machine: Machine, form: PortFormat) -> list[dict[str, Floats]]:
    content = pack_memx([("net", onnx_net(NET))], port_format=form, latency=0.001)
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(content)
        return [await model.infer(image(number)) for number in range(20)]


async def test_converted_ports_use_the_librarys_buffers(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3(profile="compat-2.11"))
    await _answers(machine, PortFormat.GBF80)
    used = Counter(call.name for call in machine.calls if call.status == 0)
    assert [used[name] for name in LENT] == [20, 20, 40, 40]
    assert not used["memx_stream_ifmap"]
    for side in ("ifmap", "ofmap"):
        taken = [
            call for call in machine.calls if call.name == f"memx_dequeue_{side}_buf" and not call.status
        ]
        given = [call for call in machine.calls if call.name == f"memx_enqueue_{side}_buf"]
        assert [call.args[:2] for call in taken] == [call.args[:2] for call in given]
    assert machine.library.faults == []


async def test_plain_ports_are_copied_once(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3(profile="compat-2.11"))
    for number, answer in enumerate(await _answers(machine, PortFormat.FLOAT32)):
        assert [a.tobytes() for a in answer.values()] == [a.tobytes() for a in expected(NET, image(number))]
    assert machine.named(*LENT) == []
    assert len(machine.named("memx_stream_ifmap")) == 20


@pytest.mark.parametrize("form", [PortFormat.GBF80, PortFormat.GBF80_ROW, PortFormat.BF16])
async def test_all_ways_give_the_same_answers(form: PortFormat, anyio_backend: object) -> None:
    lent, copied, unexported = (
        Machine(SimulatedMx3()),
        Machine(SimulatedMx3(), made=_copying),
        Machine(SimulatedMx3(zero_copy=False)),
    )
    first, *others = [await _answers(machine, form) for machine in (lent, copied, unexported)]
    assert lent.named(*LENT)
    assert copied.named(*LENT) == unexported.named(*LENT) == []
    for answers in others:
        for one, other in zip(first, answers, strict=True):
            assert [a.tobytes() for a in one.values()] == [a.tobytes() for a in other.values()]


async def test_answers_stay_when_the_buffers_are_used_again(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    answers = await _answers(machine, PortFormat.BF16)
    for number, answer in enumerate(answers):
        for got, want in zip(answer.values(), expected(NET, image(number)), strict=True):
            np.testing.assert_allclose(got, want, rtol=0.05, atol=0.05)


async def test_a_callers_array_is_only_read(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    content = pack_memx([("net", onnx_net(NET))], port_format=PortFormat.GBF80, latency=0.001)
    array = image(3)
    array.flags.writeable = False
    backwards = np.ascontiguousarray(array[:, :, ::-1, ::-1])[:, :, ::-1, ::-1]  # the same numbers
    assert backwards.shape == (1, CHANNELS, HEIGHT, WIDTH)
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(content)
        one, other = await model.infer(array), await model.infer(backwards)
    assert array.tobytes() == image(3).tobytes()
    assert [a.tobytes() for a in one.values()] == [a.tobytes() for a in other.values()]
