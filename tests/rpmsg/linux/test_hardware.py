"""`c7x://` and `repertory ping`: addresses, their parameters, and what is in the way of opening them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, NoReturn

import pytest

from repertory.models.errors import ConfigError, DeviceBusy, DeviceLost
from repertory.runtime.cli import main
from repertory.transports.address import Address
from repertory.transports.families import connect
from repertory.transports.real import RealWorld
from repertory.transports.rpmsg import simulated
from repertory.transports.rpmsg.hardware import C7xOptions, hardware_dsp
from repertory.transports.rpmsg.linux.dsp import LinuxDsp
from repertory.transports.rpmsg.ping import dsp_at, ping
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import drive

from .conftest import Clock, MakeDsp
from .machine import Channel, Machine
from .tree import Tree


def _address(tree: Tree, target: str = "", **more: str) -> str:
    parameters = {"sysfs": str(tree.sysfs), "dev": str(tree.dev), "lock_dir": str(tree.root), **more}
    return f"c7x://{target}?" + "&".join(f"{name}={value}" for name, value in parameters.items())


def _ignored(*_: object) -> None:
    pass


async def _refused(address: str) -> DeviceLost:
    async with RealWorld() as world:
        device = connect(address, world)()
        with pytest.raises(DeviceLost) as caught:
            await device.open(_ignored, _ignored)
        await device.close(bound=5.0)
    return caught.value


@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_a_machine_without_dsps(isolation: str, tree: Tree, anyio_backend: object) -> None:
    error = await _refused(_address(tree, isolation=isolation))
    assert "7e000000.dsp: no such DSP; remote processors here: none" in str(error)
    assert error.family == "c7x"


async def test_nodes_that_are_no_device(tree: Tree, anyio_backend: object) -> None:
    """The real kernel refuses the ioctl, and that is told with node and call."""
    tree.dsp("7e200000.dsp")
    error = await _refused(_address(tree, "7e200000.dsp"))
    assert f"{tree.dev}/rpmsg_ctrl0: RPMSG_CREATE_EPT_IOCTL: Inappropriate ioctl" in str(error)


@pytest.mark.parametrize(
    ("target", "name"),
    [("", "7e000000.dsp"), ("0", "7e000000.dsp"), ("1", "7e200000.dsp"), ("64800000.dsp", "64800000.dsp")],
)
def test_targets(target: str, name: str) -> None:
    dsp = hardware_dsp(Address.parse(f"c7x://{target}"), RealWorld())
    assert isinstance(dsp, LinuxDsp)
    assert (dsp.name, dsp.simulated) == (name, False)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("c7x://a/b", "'a/b' is no DSP's name"),
        ("c7x://?window=3", "window"),
        ("c7x://?run_bound=0", "run_bound"),
        ("c7x://?load_bound=3601", "load_bound"),
        ("c7x://?tsc_mhz=0", "tsc_mhz"),
        ("c7x://?tsc_mhz=1e-300", "tsc_mhz"),
        ("c7x://?any_machine=perhaps", "any_machine"),
        ("c7x://?isolation=thread", "isolation"),
    ],
)
def test_addresses_that_are_wrong(address: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        connect(address, RealWorld())
    with pytest.raises(ConfigError, match=reason):
        dsp_at(address, RealWorld())


def test_parameters() -> None:
    address = Address.parse("c7x://?heap=carveout_x&run_bound=2.5&any_machine=true&tsc_mhz=800")
    options = address.options(C7xOptions)
    assert (options.heap, options.run_bound, options.any_machine, options.tsc_mhz) == (
        "carveout_x",
        2.5,
        True,
        800.0,
    )


@pytest.mark.virtual
async def test_hardware_does_not_run_on_virtual_time(anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        with pytest.raises(ConfigError, match="use sim\\+c7x://"):
            connect("c7x://", world)


@pytest.mark.parametrize("scheme", ["c7x", "sim+c7x"])
def test_a_ping_is_from_this_process(scheme: str) -> None:
    with pytest.raises(ConfigError, match="leave isolation=process away"):
        dsp_at(f"{scheme}://?isolation=process", RealWorld())
    assert dsp_at(f"{scheme}://?isolation=none", RealWorld()).name == "7e000000.dsp"


def test_a_simulated_dsp_is_pinged_without_what_computes_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> NoReturn:
        raise ConfigError("onnxruntime is missing")

    monkeypatch.setattr(simulated, "load_onnxruntime", missing)
    dsp = dsp_at("sim+c7x://", RealWorld())
    assert isinstance(dsp, SimulatedDsp)
    with pytest.raises(ConfigError, match="onnxruntime is missing"):
        simulated.simulated_dsp(Address.parse("sim+c7x://"), RealWorld())
    for isolation in ("none", "process"):
        with pytest.raises(ConfigError, match="onnxruntime is missing"):
            connect(f"sim+c7x://?isolation={isolation}", RealWorld())


@pytest.mark.parametrize("query", ["load_mbs=1e-300", "load_mbs=0.09", "tsc_mhz=1e-300", "load_ms=3600001"])
def test_a_simulated_dsp_has_numbers_that_can_be_reckoned_with(query: str) -> None:
    with pytest.raises(ConfigError, match=query.partition("=")[0]):
        connect(f"sim+c7x://?{query}", RealWorld())


def _firmware(machine: Machine, version: int = 0x020103, jobs: int = 7) -> None:
    """Let every endpoint be answered as the protocol says: header of 16 bytes, opcode with 0x1000."""

    def served(channel: Channel) -> None:
        opcode, seq, size, _ = struct.unpack("<IIIi", machine.consume(channel))
        assert size == 16
        body = struct.pack("<II", version, 61_500)
        if opcode == 0x0003:
            body += struct.pack("<II", jobs, 2)
        assert channel.peer is not None
        channel.peer.send(struct.pack("<IIIi", opcode | 0x1000, seq, 16 + len(body), 0) + body)

    machine.served = served


def test_a_ping_all_the_way_down(make_dsp: MakeDsp, machine: Machine, clock: Clock) -> None:
    machine.tree.dsp()
    _firmware(machine)
    answer = drive(ping(make_dsp(), now=clock.now, bound=1.0))
    assert (answer.dsp, answer.simulated, answer.firmware) == ("7e000000.dsp", False, "2.1.3")
    assert (answer.uptime, answer.jobs_completed, answer.jobs_failed) == (61.5, 7, 2)
    assert answer.round_trip == 0.0
    make_dsp().close()


def test_a_ping_to_a_firmware_of_the_future(make_dsp: MakeDsp, machine: Machine, clock: Clock) -> None:
    machine.tree.dsp()
    _firmware(machine, version=0x040000)
    with pytest.raises(DeviceLost):
        drive(ping(make_dsp(), now=clock.now, bound=1.0))


def test_a_ping_to_a_dsp_in_use(make_dsp: MakeDsp, machine: Machine, clock: Clock) -> None:
    machine.tree.dsp()
    user = make_dsp()
    endpoint = drive(user.open_endpoint())
    with pytest.raises(DeviceBusy, match="in use by process"):
        drive(ping(make_dsp(), now=clock.now, bound=1.0))
    endpoint.close()
    user.close()


@pytest.mark.parametrize("wire", [2, 3])
def test_the_command_asks_a_simulated_dsp(wire: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ping", f"sim+c7x://?wire={wire}&answers=hash", "--json"]) == 0
    facts: Any = json.loads(capsys.readouterr().out)
    assert facts["firmware"] == f"{wire}.0.0"
    assert facts["simulated"] is True
    assert (facts["jobs_completed"], facts["jobs_failed"]) == (0, 0)
    assert 0 < facts["round_trip"] < 10


def test_the_command_tells_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ping", "sim+c7x://1?answers=hash"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("simulated 7e200000.dsp: firmware 2.0.0, up ")
    assert second == "jobs: 0 completed, 0 failed"
    assert third.endswith(" ms")


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["c7x://?sysfs=/nowhere"], 1, "no such DSP"),
        (["memx://0"], 2, "no DSP's address; one begins with c7x:// or sim+c7x://"),
        (["c7x"], 2, "no device address"),
        (["sim+c7x://", "--timeout", "0"], 2, "--timeout 0.0: more than 0 seconds"),
    ],
)
def test_the_command_fails(
    arguments: list[str], code: int, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ping", *arguments]) == code
    assert reason in capsys.readouterr().err


def test_a_bug_in_the_driver_is_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def broken(_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(LinuxDsp, "open_endpoint", broken)
    assert main(["ping", f"c7x://?sysfs={tmp_path}"]) == 1
    assert "RuntimeError('a bug')" in capsys.readouterr().err
