"""DSPs, buses and endpoints are found by name, whatever their indices are."""

from __future__ import annotations

from pathlib import Path

import pytest

from repertory.transports.rpmsg.linux.discovery import Control, Processor, Sysfs

from .tree import Layout, Tree

LAYOUTS: tuple[Layout, ...] = ("new", "old", "apart")
DSP = "7e000000.dsp"


@pytest.fixture
def sysfs(tree: Tree) -> Sysfs:
    return Sysfs(tree.sysfs)


def _processor(sysfs: Sysfs, name: str = DSP) -> Processor:
    found = sysfs.processor(name)
    assert found is not None
    return found


def _control(sysfs: Sysfs, name: str = DSP) -> Control:
    found = sysfs.control(_processor(sysfs, name))
    assert found is not None
    return found


def test_a_machine_without_remote_processors(tmp_path: Path) -> None:
    sysfs = Sysfs(tmp_path / "nowhere")
    assert sysfs.processors() == []
    assert sysfs.processor(DSP) is None


def test_a_processor_tells_state_and_firmware(sysfs: Sysfs, tree: Tree) -> None:
    directory = tree.processor(DSP, 3, state="crashed", firmware="vx_app.out")
    assert sysfs.processors() == [Processor(DSP, directory, "crashed", "vx_app.out")]


def test_attributes_that_cannot_be_read_are_empty(sysfs: Sysfs, tree: Tree) -> None:
    directory = tree.processor(DSP, 3)
    (directory / "state").unlink()
    (directory / "firmware").write_bytes(b"\xff")
    assert sysfs.processors() == [Processor(DSP, directory, "", "")]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_dsp_has_its_own_control_device(layout: Layout, sysfs: Sysfs, tree: Tree) -> None:
    tree.dsp("7e200000.dsp", 0, control=0, layout=layout)
    mine = tree.dsp(DSP, 1, control=1, layout=layout)
    tree.dsp("78000000.r5f", 2, control=2, layout=layout)
    assert _control(sysfs).directory == mine
    assert _control(sysfs).bus.name == "virtio1"
    assert "rpmsg_chrdev.-1.20" in sysfs.channels(_control(sysfs))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bus_without_a_control_device(layout: Layout, sysfs: Sysfs, tree: Tree) -> None:
    tree.dsp("7e200000.dsp", 0, control=0, layout=layout)
    tree.dsp(DSP, 1, control=None, layout=layout)
    assert sysfs.control(_processor(sysfs)) is None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_endpoint_is_found_by_its_name(layout: Layout, sysfs: Sysfs, tree: Tree) -> None:
    other = tree.dsp("7e200000.dsp", 1, control=4, layout=layout)
    mine = tree.dsp(DSP, 0, control=2, layout=layout)
    tree.endpoint(mine, 0, "ours-1")
    tree.endpoint(mine, 10, "ours")
    tree.endpoint(other, 3, "ours")
    tree.endpoint(other, 4, "theirs")
    assert sysfs.endpoints(_control(sysfs)).get("ours") == "rpmsg10"
    assert sysfs.endpoints(_control(sysfs, "7e200000.dsp")).get("ours") == "rpmsg3"
    assert sysfs.endpoints(_control(sysfs)).get("theirs") is None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_default_node_of_the_channel_is_not_ours(layout: Layout, sysfs: Sysfs, tree: Tree) -> None:
    mine = tree.dsp(layout=layout)
    tree.endpoint(_control(sysfs).bus / "virtio0.rpmsg_chrdev.-1.20" / "rpmsg", 0, "rpmsg_chrdev")
    tree.endpoint(mine, 1, "ours")
    assert sysfs.endpoints(_control(sysfs)).get("ours") == "rpmsg1"
    assert _control(sysfs).directory == mine


def test_an_endpoint_that_hangs_elsewhere_on_the_bus_is_found(sysfs: Sysfs, tree: Tree) -> None:
    tree.dsp()
    tree.endpoint(_control(sysfs).bus / "virtio0.rpmsg_ctrl.0.0" / "rpmsg", 5, "ours")
    assert sysfs.endpoints(_control(sysfs)).get("ours") == "rpmsg5"


def test_the_lowest_of_several_control_devices(sysfs: Sysfs, tree: Tree) -> None:
    tree.dsp(control=10, layout="old", channels=("rpmsg_chrdev.-1.13",))
    lowest = _control(sysfs).bus / "virtio0.rpmsg_chrdev.-1.13" / "rpmsg" / "rpmsg_ctrl9"
    tree.entry(lowest)
    assert _control(sysfs).directory.name == "rpmsg_ctrl9"


def test_a_restart_changes_every_index(sysfs: Sysfs, tree: Tree) -> None:
    tree.dsp()
    before = _control(sysfs)
    tree.stop(DSP)
    assert sysfs.control(_processor(sysfs)) is None
    assert sysfs.channels(before) == []
    assert sysfs.endpoints(before).get("ours") is None
    after = tree.bus(DSP, 6, control=3)
    assert _control(sysfs).directory == after
