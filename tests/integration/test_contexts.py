"""Model contexts of the library: 32 a process, opened and closed in balance, whatever goes wrong."""

from __future__ import annotations

import pytest

from repertory.models.dfp import PACKED_BY, Dfp, Port, write
from repertory.models.errors import ArtifactError
from repertory.models.twin import VERSION, Twin, TwinNetwork
from repertory.runtime.opening import open_runtime
from repertory.transports.memx.constants import CONTEXTS, Status
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.virtual import VirtualWorld
from tests.memx.files import Net, dfp

from .support import Machine, expected, image

pytestmark = pytest.mark.virtual


def _most_open(machine: Machine) -> int:
    """Return how many contexts were open at once."""
    now = most = 0
    for call in machine.calls:
        now += (call.name == "memx_open") - (call.name == "memx_close")
        most = max(most, now)
    assert now == 0
    return most


async def test_more_files_than_contexts(anyio_backend: object) -> None:
    nets = [Net(f"net {seed}", seed=seed, outputs=1) for seed in range(CONTEXTS + 8)]
    machine = Machine(SimulatedMx3())
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        models = [await rt.load(dfp(net)) for net in nets]
        for _ in range(2):
            for number, (net, model) in enumerate(zip(nets, models, strict=True)):
                answer = await model.infer(image(number))
                assert answer.tobytes() == expected(net, image(number))[0].tobytes()
    assert _most_open(machine) == CONTEXTS
    assert machine.library.faults == []


async def test_groups_share_the_contexts_of_the_process(anyio_backend: object) -> None:
    nets = [Net(f"net {seed}", seed=seed, outputs=1) for seed in range(CONTEXTS - 1)]
    machine = Machine(SimulatedMx3(groups=2))
    async with open_runtime([machine.group(0), machine.group(1)], world=VirtualWorld()) as rt:
        for net in nets:
            await (await rt.load(dfp(net), groups=["group 0"])).infer(image(0))
        others = [Net("x", seed=100, outputs=1), Net("y", seed=101, outputs=1)]
        models = [await rt.load(dfp(net), groups=["group 1"]) for net in others]
        for net, model in zip(others, models, strict=True):
            answer = await model.infer(image(0))
            assert answer.tobytes() == expected(net, image(0))[0].tobytes()
    assert _most_open(machine) == CONTEXTS


def _graphless(name: str) -> bytes:
    """A file that reads well and that the library refuses: its twin is no graph."""
    twin = Twin(VERSION, [TwinNetwork(name, b"no graph", ["x"], ["y"])])
    ports = (Port(0, layer_name="x", shape=(1, 1, 1, 4)),), (Port(0, layer_name="y", shape=(1, 1, 1, 4)),)
    return write(Dfp((name,), *ports, chips=4, compiler_version=PACKED_BY, twin=twin))


async def test_a_file_that_the_library_refuses_leaves_no_context_open(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        good = await rt.load(dfp(Net(outputs=1)))
        for number in range(3):
            with pytest.raises(ArtifactError, match="libmemx refuses the file"):
                await rt.load(_graphless(f"bad {number}"), warm=True)
            await good.infer(image(0))
        opened = len(machine.named("memx_open")) - len(machine.named("memx_close"))
        assert opened == 1
        assert [model.name for model in rt.models()] == ["net"]
    assert _most_open(machine) == 2


async def test_an_unloaded_file_gives_its_context_back(anyio_backend: object) -> None:
    machine = Machine(SimulatedMx3())
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        for seed in range(CONTEXTS + 3):
            model = await rt.load(dfp(Net(seed=seed, outputs=1)))
            await model.infer(image(0))
            await rt.unload("net")
            assert len(machine.named("memx_open")) == len(machine.named("memx_close")) == seed + 1
    assert _most_open(machine) == 1


async def test_closing_goes_on_where_the_library_fails(
    monkeypatch: pytest.MonkeyPatch, anyio_backend: object
) -> None:
    async def failing(_model_id: int, _wait: int) -> int:
        return Status.GENERIC_FAILURE

    machine = Machine(SimulatedMx3())
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        for name in "abc":
            model = await rt.load(dfp(Net(name, outputs=1)), name=name)
            await model.infer(image(0))
        monkeypatch.setattr(machine.library, "memx_set_stream_disable", failing)
    assert _most_open(machine) == 3
    assert machine.calls[-1].name == "memx_unlock"
