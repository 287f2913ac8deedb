"""How frames cross: in the caller's memory, in the library's, and each flow in one way only."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from repertory.models.errors import DeviceError
from repertory.models.formats import PortFormat
from repertory.models.pack import pack_memx
from repertory.models.port import Port
from repertory.runtime.opening import open_runtime
from repertory.transports.device import Device
from repertory.transports.memx.binding import CtypesLibmemx
from repertory.transports.memx.constants import Status
from repertory.transports.memx.device import MemxDevice
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.memx.transfer import Transfer
from repertory.transports.pump import NativeTimeout
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World, drive
from tests.integration.support import Floats, Machine, expected, image

from .files import CHANNELS, HEIGHT, WIDTH, Net, onnx_net
from .stub import Stub

pytestmark = pytest.mark.virtual

NET = Net()
LENT = [f"memx_{step}_{side}_buf" for side in ("ifmap", "ofmap") for step in ("dequeue", "enqueue")]
COPIED = ["memx_stream_ifmap", "memx_stream_ofmap"]


def _copying(world: World, library: SimulatedLibmemx, index: int) -> Device:
    return MemxDevice(world, lambda: library, index, simulated=True, window=8, lock=None, zero_copy=False)


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
    assert machine.named(*COPIED) == []
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


WAYS = [(PortFormat.BF16, "memx_dequeue_ofmap_buf"), (PortFormat.FLOAT32, "memx_stream_ofmap")]


def _times_out(stub: Stub, form: PortFormat) -> bool:
    """Wait for a millisecond on flow 3 of model 2."""
    transfer = Transfer(CtypesLibmemx(stub.path), NativeTimeout(0.05), zero_copy=True)
    stub.calls()
    return drive(transfer.times_out(2, Port(3, format=form), 1))


@pytest.mark.parametrize(("form", "call"), WAYS)
def test_a_wait_on_an_empty_flow_is_made_in_the_ports_own_way(
    form: PortFormat, call: str, tmp_path: Path
) -> None:
    stub = Stub(tmp_path)
    for status in (Status.OUTPUT_TIMEOUT, Status.DEQUEUE_OUTPUT_TIMEOUT):
        stub.answer(call, status)
        assert _times_out(stub, form)
        assert [line.partition(" ")[0] for line in stub.calls()] == [call]


@pytest.mark.parametrize(("form", "call"), WAYS)
def test_a_wait_that_fails_names_the_call(form: PortFormat, call: str, tmp_path: Path) -> None:
    stub = Stub(tmp_path)
    stub.answer(call, Status.GENERIC_FAILURE)
    with pytest.raises(DeviceError, match=f"{call}: generic failure"):
        _times_out(stub, form)


def test_a_stray_buffer_is_given_back(tmp_path: Path) -> None:
    stub = Stub(tmp_path)
    stub.answer("memx_dequeue_ofmap_buf", 0, 4, 5)
    assert not _times_out(stub, PortFormat.BF16)
    assert [line.split()[:5] for line in stub.calls()] == [
        ["memx_dequeue_ofmap_buf", "2", "3", "1"],
        ["memx_enqueue_ofmap_buf", "2", "3", "4", "5"],
    ]
