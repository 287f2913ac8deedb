"""The whole path to a board, but for the board: runtime, driver, Linux binding, kernel calls, firmware."""

from __future__ import annotations

import errno
import gc
from collections.abc import Callable
from functools import cache
from typing import Any

import anyio
import numpy as np
import pytest
import sniffio

import repertory
from repertory.models.dynmod import Dynmod
from repertory.models.errors import ArtifactError, DeviceBusy, DeviceLost
from repertory.models.pack_c7x import attach_twin_c7x, pack_c7x
from repertory.models.program import Artifact
from repertory.transports.answers import hash_answer
from repertory.transports.conformance import CHECKS, Check, Subject
from repertory.transports.device import Device
from repertory.transports.real import RealWorld
from repertory.transports.rpmsg.device import C7xDevice
from repertory.transports.rpmsg.linux.dsp import LinuxDsp
from repertory.transports.rpmsg.session import Ledger
from repertory.transports.world import World
from tests.models.graphs import model, node, tensor
from tests.models.modules import SIDECAR, linked_v2
from tests.models.modules import module as compiled

from .core import running
from .machine import Channel, Machine
from .tree import Tree

WIRES = pytest.mark.parametrize("wire", [2, 3])
NAME = "7e000000.dsp"
GRAPH = model(
    [node("Constant", [], ["s"], value_ints=[16]), node("Reshape", ["x", "s"], ["y"])],
    [tensor("x", [4, 4])],
    [tensor("y", [16])],
)


@cache
def network(name: str) -> bytes:
    """Return a compiled module: to a DSP it is code, and the firmware's stand-in knows what it answers."""
    sidecar = SIDECAR.replace(b'"net"', b'"%s"' % name.encode())
    return attach_twin_c7x(compiled(), GRAPH, sidecar=sidecar, latency=0.0005)


def given(number: int) -> Any:
    return np.full((4, 4), number, np.float32)


def answer(number: int, name: str = "one") -> bytes:
    told = Dynmod.read(network(name)).network
    assert told is not None
    return hash_answer(told, [given(number)])[0].tobytes()


@pytest.fixture
def board(tree: Tree, machine: Machine) -> Callable[[World], Device]:
    """Give a source of devices over the fake kernel."""
    tree.dsp()
    tree.heap()
    ledger = Ledger()

    def make(world: World) -> C7xDevice:
        def connect() -> LinuxDsp:
            return LinuxDsp(
                NAME,
                now=world.now,
                pause=lambda _: tree.udev(),
                sysfs=tree.sysfs,
                dev=tree.dev,
                lock_dir=tree.root,
                kernel=machine,
            )

        return C7xDevice(world, connect, name=NAME, simulated=False, ledger=ledger, run_bound=5.0)

    make.__name__ = f"c7x://{NAME}"
    return make


@pytest.mark.realtime
@WIRES
async def test_a_hundred_inferences(
    anyio_backend: object, machine: Machine, board: Callable[[World], Device], wire: int
) -> None:
    found: list[bool] = []
    with running(machine, wire) as core:
        async with repertory.open_runtime([board]) as rt:
            nets = [await rt.load(network(name), name=name) for name in ("one", "two")]

            async def ask(number: int) -> None:
                net = nets[number >= 50]
                found.append((await net.infer(given(number))).tobytes() == answer(number, net.name))

            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(ask, number)
            statistics = rt.statistics()
        assert (core.firmware.loaded, core.firmware.jobs_completed, core.notes) == ([], 100, [])
    assert found == [True] * 100
    assert [group.incarnations for group in statistics.groups.values()] == [1]
    assert [group.simulated for group in statistics.groups.values()] == [False]
    gc.collect()
    assert machine.left == (0, [], 0)
    assert machine.credits == 256
    syncs = {call for call in machine.calls if call.startswith("ioctl")}
    assert syncs == {
        f"ioctl {number:#x}" for number in (0x4028B501, 0xB502, 0xC0184800, 0xC010B700, 0x40086200)
    }


@WIRES
async def test_a_stop_and_a_start_under_way(
    anyio_backend: object, tree: Tree, machine: Machine, board: Callable[[World], Device], wire: int
) -> None:
    """Indices change, everything is opened anew, and the caller notices a delay."""
    with running(machine, wire, uptime_ms=60_000) as core:
        async with repertory.open_runtime([board]) as rt:
            net = await rt.load(network("one"), name="one")
            assert (await net.infer(given(1))).tobytes() == answer(1)
            served = machine.served

            def restart(channel: Channel) -> None:
                machine.served = served
                machine.consume(channel)
                machine.stop(NAME)
                core.boot()
                tree.bus(NAME, 7, control=3)
                (directory / "state").write_text("running\n")

            directory = next((tree.platform(NAME) / "remoteproc").iterdir())
            machine.served = restart
            assert (await net.infer(given(2))).tobytes() == answer(2)
            (group,) = rt.statistics().groups.values()
            assert group.incarnations == 2
        assert (core.firmware.loaded, core.notes) == ([], [])
    gc.collect()
    assert machine.left == (0, [], 0)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_the_device_contract(
    anyio_backend: object, machine: Machine, board: Callable[[World], Device], check: Check
) -> None:
    """The backends take turns at the wire versions."""
    wire = 2 if sniffio.current_async_library() == "trio" else 3
    artifacts = [Artifact(f"{name}.out", network(name)) for name in ("one", "two")]
    subject = Subject(make=board, artifacts=(artifacts[0], artifacts[1]), foreign=Artifact("a", b"PNG"))
    with running(machine, wire) as core:
        async with RealWorld() as world:
            await check(subject, world)
        assert (core.firmware.loaded, core.notes) == ([], [])


async def opened(board: Callable[[World], Device]) -> None:
    async with repertory.open_runtime([board]):
        pass


async def test_no_firmware(anyio_backend: object, tree: Tree, board: Callable[[World], Device]) -> None:
    tree.stop(NAME)
    with pytest.raises(DeviceLost, match=r"7e000000\.dsp: it is offline, .*start it"):
        await opened(board)


async def test_a_firmware_without_rpmsg(
    anyio_backend: object, tree: Tree, board: Callable[[World], Device]
) -> None:
    tree.stop(NAME, state="running")
    with pytest.raises(DeviceLost, match="no rpmsg_ctrl device"):
        await opened(board)


@pytest.mark.parametrize("version", [0x010000, 0x040000])
async def test_a_firmware_of_another_version(
    anyio_backend: object, machine: Machine, board: Callable[[World], Device], version: int
) -> None:
    with (
        running(machine, 2, version=version),
        pytest.raises(DeviceLost, match=f"speaks version {version >> 16}.0.0"),
    ):
        await opened(board)
    assert machine.left == (0, [], 0)


@WIRES
async def test_a_second_client_of_ours(
    anyio_backend: object, machine: Machine, board: Callable[[World], Device], wire: int
) -> None:
    with running(machine, wire) as core:
        async with repertory.open_runtime([board]) as rt:
            net = await rt.load(network("one"), name="one")
            with pytest.raises(DeviceBusy, match=NAME):
                await opened(board)
            assert (await net.infer(given(1))).tobytes() == answer(1)
        assert core.notes == []


@WIRES
async def test_a_client_of_another_kind_has_the_memory(
    anyio_backend: object, tree: Tree, machine: Machine, board: Callable[[World], Device], wire: int
) -> None:
    """It knows nothing of our lock; version 2 takes its memory with the first model."""
    machine.failures["ioctl 0xc0184800"] = [errno.ENOMEM] * 100
    with running(machine, wire) as core:
        text = "another client of the DSP may be running"
        with pytest.raises((DeviceBusy, DeviceLost), match=text):
            async with repertory.open_runtime([board]) as rt:
                await rt.load(network("one"), name="one", warm=True)
        assert core.firmware.loaded == []
    gc.collect()
    assert machine.left == (0, [], 0)


async def test_a_twin_is_for_simulators(
    anyio_backend: object, machine: Machine, board: Callable[[World], Device]
) -> None:
    with running(machine, 2):
        async with repertory.open_runtime([board]) as rt:
            with pytest.raises(ArtifactError, match=r"simulation twin: .*only sim\+c7x:// runs it"):
                await rt.load(pack_c7x("net", GRAPH), name="net")
            with pytest.raises(ArtifactError, match="give sidecar="):
                await rt.load(linked_v2(), name="bare")
