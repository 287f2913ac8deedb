"""An endpoint of a DSP: made, found, opened, and taken away again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from repertory.models.errors import DeviceBusy, DeviceLost
from repertory.transports.rpmsg.dsp import Dsp
from repertory.transports.rpmsg.endpoint import CREDITS, Endpoint
from repertory.transports.rpmsg.linux.nodes import LEFT_AFTER, MOST_SWEPT, MOST_WAITING
from repertory.transports.world import drive

from .conftest import Clock, MakeDsp
from .machine import Channel, Machine
from .tree import SERVICE, Layout, Tree

DSP = "7e000000.dsp"


def _open(dsp: Dsp) -> Endpoint:
    return drive(dsp.open_endpoint())


def _refused(dsp: Dsp) -> str:
    with pytest.raises(DeviceLost) as caught:
        _open(dsp)
    assert caught.value.family == "c7x"
    return str(caught.value)


def _only(machine: Machine) -> Channel:
    (channel,) = machine.channels
    return channel


@pytest.mark.parametrize("layout", ["new", "old", "apart"])
def test_messages_go_both_ways(layout: Layout, make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp(layout=layout)
    dsp = make_dsp()
    endpoint = _open(dsp)
    channel = _only(machine)
    assert (channel.source, channel.destination) == (0xFFFFFFFF, 20)
    assert channel.name.startswith(f"repertory-{os.getpid()}-")
    assert len(channel.name) <= 31
    assert endpoint.send(b"question")
    assert machine.consume(channel) == b"question"
    assert channel.peer is not None
    channel.peer.send(b"answer")
    assert drive(endpoint.receive(1.0)) == b"answer"
    endpoint.close()
    endpoint.close()
    dsp.close()
    assert machine.calls[-2:] == ["ioctl 0xb502", "close"]


def test_no_two_endpoints_are_called_alike(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp()
    dsp = make_dsp()
    endpoints = [_open(dsp) for _ in range(3)]
    assert len({channel.name for channel in machine.channels}) == 3
    for endpoint in endpoints:
        endpoint.close()


def test_gaps_of_indices_are_filled(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    """The kernel hands out the lowest free index, which may be below all that are there."""
    control = tree.dsp()
    for index in (0, 1, 3):
        tree.endpoint(control, index, f"other-{index}")
    endpoint = _open(make_dsp())
    assert _only(machine).directory.name == "rpmsg2"
    endpoint.close()


def test_the_default_node_of_the_channel_is_left_alone(
    make_dsp: MakeDsp, tree: Tree, machine: Machine
) -> None:
    bus = tree.dsp().parents[2]
    tree.endpoint(bus / f"virtio0.{SERVICE}" / "rpmsg", 0, "rpmsg_chrdev")
    endpoint = _open(make_dsp())
    assert _only(machine).directory.name == "rpmsg1"
    assert "open rpmsg0" not in machine.calls
    endpoint.close()


def test_of_two_dsps_the_one_that_is_named(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp("7e000000.dsp", 0, control=0)
    tree.dsp("7e200000.dsp", 1, control=1)
    first, second = _open(make_dsp("7e200000.dsp")), _open(make_dsp("7e000000.dsp"))
    assert ["7e200000.dsp" in channel.directory.parts for channel in machine.channels] == [True, False]
    first.close()
    second.close()


def test_a_node_that_udev_makes_late(make_dsp: MakeDsp, tree: Tree, machine: Machine, clock: Clock) -> None:
    tree.dsp()
    tree.late["rpmsg0"] = 7
    endpoint = _open(make_dsp())
    assert len(clock.pauses) == 7
    endpoint.close()


def test_a_node_that_may_be_used_late(make_dsp: MakeDsp, tree: Tree, machine: Machine, clock: Clock) -> None:
    tree.dsp()
    machine.failures["open rpmsg0"] = [errno.EACCES, errno.EPERM, errno.EACCES]
    endpoint = _open(make_dsp())
    assert len(clock.pauses) == 3
    endpoint.close()


def test_a_node_that_never_appears(make_dsp: MakeDsp, tree: Tree, machine: Machine, clock: Clock) -> None:
    tree.dsp()
    tree.late["rpmsg0"] = 100_000
    reason = _refused(make_dsp())
    assert f"{tree.dev}/rpmsg0: open: No such file or directory" in reason
    assert 2.0 <= clock.seconds < 2.1
    assert machine.left[0] == 0
    tree.late["rpmsg0"] = tree.late["rpmsg1"] = 1
    tree.udev()
    _open(make_dsp()).close()  # the one that waited, once it is there


def test_an_endpoint_that_sysfs_never_shows(
    make_dsp: MakeDsp, tree: Tree, machine: Machine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = tree.dsp()

    def without_a_trace(*_: object) -> None:
        pass

    monkeypatch.setattr(machine, "_create", without_a_trace)
    reason = _refused(make_dsp())
    assert str(control) in reason
    assert "modprobe rpmsg_char" in reason
    assert 2.0 <= clock.seconds < 2.1


def test_a_node_that_may_never_be_used(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp()
    machine.denied.add("rpmsg0")
    reason = _refused(make_dsp())
    assert f"{tree.dev}/rpmsg0: no permission" in reason
    assert "repertory devices --udev" in reason
    machine.denied.clear()
    _open(make_dsp()).close()


def test_a_node_that_somebody_else_has_opened(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp()
    machine.failures["open rpmsg0"] = [errno.EBUSY]
    with pytest.raises(DeviceBusy, match="rpmsg0: another process has it open"):
        _open(make_dsp())
    _open(make_dsp()).close()


@pytest.mark.parametrize("call", ["open rpmsg_ctrl0", "ioctl 0x4028b501", "open rpmsg0"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENODEV, errno.EMFILE])
def test_what_fails_is_named_and_leaves_nothing_open(
    call: str, number: int, make_dsp: MakeDsp, tree: Tree, machine: Machine
) -> None:
    tree.dsp()
    machine.failures[call] = [number]
    dsp = make_dsp()
    with pytest.raises(DeviceLost, match=os.strerror(number)) as caught:
        _open(dsp)
    assert isinstance(caught.value.__cause__, OSError)
    assert len(machine.channels) <= 1
    _open(make_dsp()).close()  # the lock is free again, too
    assert machine.left == (0, [], 0)


def test_retries_leave_few_endpoints_and_the_next_open_none(
    make_dsp: MakeDsp, tree: Tree, machine: Machine
) -> None:
    tree.dsp()
    machine.denied.update(f"rpmsg{index}" for index in range(40))
    for _ in range(MOST_WAITING + 2):
        _refused(make_dsp())
    assert len(machine.channels) == MOST_WAITING
    machine.denied.remove("rpmsg2")  # any of them will do
    dsp = make_dsp()
    endpoint = _open(dsp)
    assert [channel.fd >= 0 for channel in machine.channels].count(True) == 1
    endpoint.close()
    assert len(machine.channels) == MOST_WAITING - 1
    machine.denied.clear()
    _open(dsp).close()
    assert machine.left == (0, [], 0)


def test_an_endpoint_that_is_broken_for_good_is_in_nobodys_way(
    make_dsp: MakeDsp, tree: Tree, machine: Machine
) -> None:
    tree.dsp()
    machine.failures["open rpmsg0"] = [errno.EIO] * 4
    assert "Input/output error" in _refused(make_dsp())
    dsp = make_dsp()
    _open(dsp).close()  # another one; the first is still broken when it is looked for, and to be taken away
    assert len(machine.channels) == 1
    _open(dsp).close()  # it is well again
    assert machine.left == (0, [], 0)


def test_what_a_killed_process_left_is_taken_away(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp("7e200000.dsp", 1, control=1)
    tree.dsp()
    names = ["somebody's", "repertory-1-old", "repertory-1-open", "repertory-1-new"]
    for name in names:
        machine.create("rpmsg_ctrl0", name)
    machine.create("rpmsg_ctrl1", "repertory-1-elsewhere")
    machine.ages.update({f"rpmsg{index}": LEFT_AFTER + 1 for index in (0, 1, 2, 4)})
    in_use = machine.open(tree.dev / "rpmsg2")
    endpoint = _open(make_dsp())
    assert {channel.name for channel in machine.channels} - {"repertory-1-elsewhere"} == {
        "somebody's",
        "repertory-1-open",
        "repertory-1-new",
        machine.channels[-1].name,
    }
    assert len(machine.channels) == 5
    endpoint.close()
    machine.close(in_use)
    for channel in list(machine.channels):
        machine.drop(channel)


def test_one_sweep_is_bounded(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp()
    for index in range(MOST_SWEPT + 3):
        machine.create("rpmsg_ctrl0", f"repertory-1-{index}")
        machine.ages[f"rpmsg{index}"] = LEFT_AFTER + 1
    for left in (3, 0):
        dsp = make_dsp()
        _open(dsp).close()
        dsp.close()
        assert len(machine.channels) == left


def test_an_endpoint_that_cannot_be_watched_is_destroyed(
    make_dsp: MakeDsp, tree: Tree, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    tree.dsp()
    with monkeypatch.context() as patch:
        patch.setattr(os, "eventfd", none_left)
        assert "Too many open files" in _refused(make_dsp())
    assert machine.left == (0, [], 0)


def test_a_dsp_that_is_not_there(make_dsp: MakeDsp, tree: Tree) -> None:
    tree.dsp("7e200000.dsp")
    assert _refused(make_dsp()) == "7e000000.dsp: no such DSP; remote processors here: 7e200000.dsp"


@pytest.mark.parametrize("state", ["offline", "crashed", "suspended", "detached", "invalid"])
def test_a_dsp_that_does_not_run(state: str, make_dsp: MakeDsp, tree: Tree) -> None:
    tree.processor(DSP, 2, state=state, firmware="c7x.out")
    reason = _refused(make_dsp())
    assert f"{DSP}: it is {state}, with firmware c7x.out" in reason
    assert "remoteproc2/state" in reason


def test_a_dsp_that_the_boot_loader_started(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    (tree.dsp().parents[4] / "state").write_text("attached\n")
    _open(make_dsp()).close()


def test_a_dsp_without_rpmsg(make_dsp: MakeDsp, tree: Tree) -> None:
    tree.processor(DSP, 0)
    assert f"{DSP}: no rpmsg_ctrl device" in _refused(make_dsp())


def test_a_firmware_of_somebody_else(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp(channels=("rpmsg_chrdev.-1.21", "ti.ipc4.ping-pong.-1.13", "rpmsg_chrdev.-1.120"))
    reason = _refused(make_dsp())
    assert "is not c7x_compute" in reason
    assert "rpmsg_chrdev.-1.21, rpmsg_chrdev.-1.120, ti.ipc4.ping-pong.-1.13" in reason
    assert machine.calls == []


def test_a_control_node_without_permission(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp()
    machine.denied.add("rpmsg_ctrl0")
    assert f"{tree.dev}/rpmsg_ctrl0: no permission" in _refused(make_dsp())
    assert machine.calls == []


def test_a_control_node_that_is_not_there(make_dsp: MakeDsp, tree: Tree) -> None:
    tree.dsp()
    (tree.dev / "rpmsg_ctrl0").unlink()
    assert f"{tree.dev}/rpmsg_ctrl0: open: No such file" in _refused(make_dsp())


def test_only_one_client_at_a_time(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp()
    first, second = make_dsp(), make_dsp()
    endpoint = _open(first)
    calls = len(machine.calls)
    with pytest.raises(DeviceBusy, match=f"DSP {DSP} is in use by process {os.getpid()} "):
        _open(second)
    assert len(machine.calls) == calls
    endpoint.close()
    first.close()
    first.close()
    _open(second).close()


def test_a_lock_folder_that_is_not_there(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp()
    assert "set lock_dir=" in _refused(make_dsp(lock_dir=Path("/nowhere")))
    assert machine.calls == []


def test_an_orderly_stop_and_a_restart(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp()
    dsp = make_dsp()
    endpoint = _open(dsp)
    machine.stop(DSP)
    with pytest.raises(DeviceLost, match="endpoint lost: read: Broken pipe"):
        drive(endpoint.receive(None))
    with pytest.raises(DeviceLost, match="endpoint lost"):
        endpoint.send(b"x")
    assert "it is offline" in _refused(dsp)
    endpoint.close()
    tree.endpoint(tree.bus(DSP, 3, control=7), 0, "somebody's")
    state = next((tree.platform(DSP) / "remoteproc").iterdir()) / "state"
    state.write_text("running\n")
    again = _open(dsp)
    assert _only(machine).directory.name == "rpmsg1"
    assert _only(machine).directory.parent.name == "rpmsg_ctrl7"
    again.close()
    dsp.close()


def test_credits_run_out_and_come_back(make_dsp: MakeDsp, tree: Tree, machine: Machine) -> None:
    tree.dsp()
    endpoint = _open(make_dsp())
    sent = [endpoint.send(number.to_bytes(16, "little")) for number in range(CREDITS)]
    assert sent == [True] * CREDITS
    assert not endpoint.send(b"one too many")
    assert machine.consume(_only(machine)) == bytes(16)
    assert endpoint.send(b"one")
    assert not endpoint.send(b"one too many")
    endpoint.close()
