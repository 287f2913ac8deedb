"""What crosses the lowest interface: encoded frame bytes, and the vendor's calls in the vendor's order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import anyio
import numpy as np
import pytest

from repertory.models.errors import DeviceBusy
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.transports.memx.constants import DownloadType, Status
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import drive
from tests.memx.files import Net, dfp

from .support import Floats, Machine, expected, image

A, B, C = Net("a", seed=1), Net("b", seed=2), Net("c", seed=3)
WHOLE = DownloadType.WEIGHTS_AND_MODEL | DownloadType.FROM_BUFFER
MODEL = DownloadType.MODEL | DownloadType.FROM_BUFFER
SWAP = (
    "memx_open",
    "memx_close",
    "memx_reconfigure",
    "memx_set_ifmap_queue_size",
    "memx_set_ofmap_queue_size",
    "memx_download_model",
    "memx_set_stream_enable",
    "memx_set_stream_disable",
)
pytestmark = pytest.mark.virtual


async def _answers(machine: Machine, requests: list[tuple[Net, int]]) -> list[list[Floats]]:
    """Ask all at once, each network in the order given."""
    answers: list[list[Floats]] = [[] for _ in requests]

    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        models = {net.name: await rt.load(dfp(net)) for net in dict.fromkeys(net for net, _ in requests)}

        async def ask(place: int, model: Model, number: int) -> None:
            answers[place] = list((await model.infer(image(number))).values())

        async with anyio.create_task_group() as tasks:
            for place, (net, number) in enumerate(requests):
                tasks.start_soon(ask, place, models[net.name], number)
    return answers


@pytest.mark.parametrize("flow", [0, 1])
@pytest.mark.parametrize("target", [0, 13, 39])
async def test_a_flipped_byte_changes_exactly_that_answer(
    target: int, flow: int, anyio_backend: object
) -> None:
    requests = [(net, number) for number in range(20) for net in (A, B)]
    wanted = [expected(net, image(number)) for net, number in requests]
    bytes_of = [answer[flow].tobytes() for answer in wanted]
    flipped: list[int] = []

    def tamper(model_id: int, flow_id: int, frame: memoryview) -> None:
        if flow_id == flow and frame.tobytes() == np.ascontiguousarray(_wire(wanted[target][flow])).tobytes():
            frame[5] ^= 1
            flipped.append(model_id)

    answers = await _answers(Machine(SimulatedMx3(), tamper=tamper), requests)
    assert len(flipped) == 1
    changed = [place for place, answer in enumerate(answers) if answer[flow].tobytes() != bytes_of[place]]
    assert changed == [target]
    difference = answers[target][flow].view(np.uint8) != wanted[target][flow].view(np.uint8)
    assert difference.sum() == 1
    for answer, want in zip(answers, wanted, strict=True):
        assert answer[1 - flow].tobytes() == want[1 - flow].tobytes()


def _wire(tensor: Floats) -> Floats:
    """NCHW to (h, w, z, c), as the file tells."""
    wire: Floats = tensor[0].transpose(1, 2, 0)[:, :, np.newaxis, :]
    return wire


async def test_inputs_cross_as_their_encoded_bytes(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    await _answers(machine, [(A, number) for number in range(30)])
    frames = [args[3] for args in machine.named("memx_stream_ifmap")]
    wanted = [np.ascontiguousarray(_wire(image(number))).tobytes() for number in range(30)]
    assert sorted(frames) == sorted(wanted)
    read = machine.named("memx_stream_ofmap")
    assert {len(args[3]) for args in read if args[2] == 0} == {4 * 4 * 6 * 2}
    assert {len(args[3]) for args in read if args[2] == 1} == {4 * 2}


async def _turns(machine: Machine, *turns: Model) -> list[list[tuple[Any, ...]]]:
    """Run models one after the other; return the calls of the swap before each."""
    swaps: list[list[tuple[Any, ...]]] = []
    for model in turns:
        machine.calls.clear()
        await model.infer(image(0))
        swaps.append([_short(call) for call in machine.named(*SWAP)])
    return swaps


def _short(call: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leave out a download's content."""
    return (*call[:2], *call[3:]) if call[0] == "memx_download_model" else call


@pytest.mark.parametrize("reconfigure", [True, False])
async def test_a_swap_is_the_vendors_calls_in_order(reconfigure: bool, anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3(reconfigure=reconfigure))
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        a, b = [await rt.load(dfp(net)) for net in (A, B)]
        first, second, back, again = await _turns(machine, a, b, a, b)
    one, two = first[0][1], second[1][1]
    assert one != two
    assert first == [
        ("memx_open", one, 0, 31.0),
        ("memx_set_ifmap_queue_size", one, 9),
        ("memx_set_ofmap_queue_size", one, 9),
        ("memx_download_model", one, 0, WHOLE),
        ("memx_set_stream_enable", one, 0),
    ]
    assert second == [
        ("memx_set_stream_disable", one, 1),
        ("memx_open", two, 0, 31.0),
        ("memx_set_ifmap_queue_size", two, 9),
        ("memx_set_ofmap_queue_size", two, 9),
        ("memx_download_model", two, 0, WHOLE),
        ("memx_set_stream_enable", two, 0),
    ]
    for swap, old, new in ((back, two, one), (again, one, two)):
        assert swap == [
            ("memx_set_stream_disable", old, 1),
            *([("memx_reconfigure", new, 0)] if reconfigure else []),
            ("memx_download_model", new, 0, WHOLE),
            ("memx_set_stream_enable", new, 0),
        ]


@pytest.mark.parametrize("reconfigure", [True, False])
async def test_networks_of_one_file_swap_by_the_model_alone(reconfigure: bool, anyio_backend: object) -> None:
    nets = [Net(name, seed=seed, configuration=seed) for seed, name in enumerate("xyz")]
    content = dfp(*nets)
    machine = Machine(SimulatedMx3(reconfigure=reconfigure))
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        x, y, z = [await rt.load(content, network=net.name) for net in nets]
        first, second, third, *others = await _turns(machine, x, y, z, x, z, y)
        for net, model in zip(nets, (x, y, z), strict=True):
            answers = (await model.infer(image(7))).values()
            assert [a.tobytes() for a in answers] == [a.tobytes() for a in expected(net, image(7))]
    ids = [swap[-1][1] for swap in (first, second, third)]
    assert len(set(ids)) == 3
    assert first[3] == ("memx_download_model", ids[0], 0, WHOLE)
    assert [swap[-2] for swap in (second, third)] == [
        ("memx_download_model", ids[index], index, MODEL) for index in (1, 2)
    ]
    for swap, old, index in zip(others, (2, 0, 2), (0, 2, 1), strict=True):
        assert swap == [
            ("memx_set_stream_disable", ids[old], 1),
            ("memx_download_model", ids[index], index, MODEL),
            ("memx_set_stream_enable", ids[index], 0),
        ]


@pytest.mark.parametrize("reconfigure", [True, False])
async def test_weights_come_again_after_another_file(reconfigure: bool, anyio_backend: object) -> None:
    nets = [Net(name, seed=seed, configuration=seed) for seed, name in enumerate("xy")]
    machine = Machine(SimulatedMx3(reconfigure=reconfigure))
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        x, y = [await rt.load(dfp(*nets), network=net.name) for net in nets]
        other = await rt.load(dfp(A))
        *_, swap = await _turns(machine, x, y, other, y)
    bind = ["memx_reconfigure"] if reconfigure else []
    assert [call[0] for call in swap][1:] == [*bind, "memx_download_model", "memx_set_stream_enable"]
    assert swap[-2][2:] == (1, WHOLE)


@pytest.mark.parametrize("reconfigure", [True, False])
async def test_rules_that_hold_over_every_call(reconfigure: bool, anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3(reconfigure=reconfigure))
    requests = [((A, B, C)[number % 3], number) for number in range(240)]
    answers = await _answers(machine, requests)
    for (net, number), answer in zip(requests, answers, strict=True):
        assert [a.tobytes() for a in answer] == [a.tobytes() for a in expected(net, image(number))]
    calls = machine.named()
    for before, call in pairwise(calls):
        if before[0] == "memx_reconfigure":
            assert call[0] == "memx_download_model"
    assert {call[-1] for call in machine.named("memx_set_stream_enable")} == {0}
    assert {call[-1] for call in machine.named("memx_set_stream_disable")} == {1}
    assert min(call[-1] for call in machine.named("memx_stream_ifmap", "memx_stream_ofmap")) > 0
    assert len(machine.named("memx_open")) == len(machine.named("memx_close")) == 3
    assert len(machine.named("memx_trylock")) == len(machine.named("memx_unlock")) == 1
    assert bool(machine.named("memx_reconfigure")) is reconfigure
    assert machine.library.faults == []
    assert {call.status for call in machine.calls} <= {Status.OK, Status.OUTPUT_TIMEOUT}
    names = [call[0] for call in calls]
    assert names.index("memx_set_ifmap_queue_size") < names.index("memx_download_model")
    assert names[-1] == "memx_unlock"


async def test_a_failed_trylock_is_unlocked_and_told(anyio_backend: object) -> None:
    def lock(library: SimulatedLibmemx) -> None:
        assert drive(library.memx_trylock(0)) == Status.OK

    machine = Machine(SimulatedMx3(), prepare=lock)
    with pytest.raises(DeviceBusy, match="group 0 is locked by another user") as caught:
        async with open_runtime([machine.group()], world=VirtualWorld()):
            pass
    assert (caught.value.call, caught.value.status) == ("memx_trylock", Status.GROUP_IN_USE)
    refused = [call.status for call in machine.calls if call.name == "memx_trylock"][1]
    assert refused == Status.GROUP_IN_USE
    names = [call[0] for call in machine.named("memx_trylock", "memx_unlock", "memx_open")]
    assert names[:3] == ["memx_trylock", "memx_trylock", "memx_unlock"]
    assert "memx_open" not in names
