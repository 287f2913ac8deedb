"""What `repertory devices` tells of DSPs, and that nothing is opened for it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from repertory.models.errors import ConfigError
from repertory.runtime.cli import main
from repertory.runtime.commands import devices
from repertory.transports.rpmsg.linux.permission import UDEV_RULES
from repertory.transports.rpmsg.linux.survey import DspFacts, survey

from .machine import Machine
from .tree import HEAP, Tree

DSP = "7e000000.dsp"
ROOT = Path(__file__).parents[3]


def _survey(machine: Machine) -> list[DspFacts]:
    tree = machine.tree
    found = survey(str(tree.sysfs), str(tree.dev), kernel=machine)
    assert machine.calls == []
    return found


def _reason(machine: Machine) -> str:
    (facts,) = _survey(machine)
    assert facts.reason is not None
    return facts.reason


def test_a_dsp_that_can_be_used(machine: Machine) -> None:
    tree = machine.tree
    tree.processor("5c00000.r5f", 0)
    tree.dsp(DSP, 1, control=3)
    tree.heap()
    assert _survey(machine) == [
        DspFacts(
            address="c7x://7e000000.dsp",
            state="running",
            firmware="j722s-c71_0-fw",
            control=f"{tree.dev}/rpmsg_ctrl3",
            processor=f"{tree.dev}/remoteproc1",
            heap=f"{tree.dev}/dma_heap/{HEAP}",
            reason=None,
        )
    ]


def test_no_dsp_at_all(machine: Machine) -> None:
    machine.tree.processor("5c00000.r5f", 0)
    assert _survey(machine) == []


def test_a_dsp_that_is_offline(machine: Machine) -> None:
    machine.tree.processor(DSP, 1, state="offline")
    assert "it is offline" in _reason(machine)


def test_a_firmware_of_somebody_else(machine: Machine) -> None:
    machine.tree.dsp(channels=("rpmsg_chrdev.-1.21",))
    assert "is not c7x_compute" in _reason(machine)


@pytest.mark.parametrize("node", ["rpmsg_ctrl0", "remoteproc0", HEAP])
def test_a_node_without_permission(node: str, machine: Machine) -> None:
    machine.tree.dsp()
    machine.tree.heap()
    machine.denied.add(node)
    assert f"{node}: no permission to read and write" in _reason(machine)


def test_no_node_of_the_remote_processor(machine: Machine) -> None:
    machine.tree.dsp()
    machine.tree.heap()
    (machine.tree.dev / "remoteproc0").unlink()
    assert "remoteproc0: not there" in _reason(machine)


def test_no_heap(machine: Machine) -> None:
    machine.tree.dsp()
    assert "no carveout_* heap" in _reason(machine)


def _no_library(_: str | None) -> NoReturn:
    raise ConfigError("not looked for")


@pytest.fixture
def board(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Let the command look at the tree."""
    tree = machine.tree
    look = partial(survey, str(tree.sysfs), str(tree.dev), kernel=machine)
    monkeypatch.setattr(devices, "survey_dsps", look)
    monkeypatch.setattr(devices, "survey", _no_library)
    return tree


def _devices(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["devices", *arguments]) == 0
    return capsys.readouterr().out


def test_a_person_reads_one_line_a_dsp(board: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    board.dsp()
    board.processor("7e200000.dsp", 1, state="offline")
    board.heap()
    lines = [line.replace(str(board.dev), "/dev") for line in _devices(capsys).splitlines()]
    start = lines.index("c7x: 2 DSPs")
    assert lines[start + 1] == (
        f"  c7x://{DSP}: running, firmware j722s-c71_0-fw, memory of /dev/dma_heap/{HEAP}"
    )
    assert lines[start + 2].startswith("  c7x://7e200000.dsp: 7e200000.dsp: it is offline, with firmware ")


@pytest.mark.parametrize("heap", [True, False])
def test_a_program_reads_facts(heap: bool, board: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    board.dsp()
    if heap:
        board.heap()
    facts: Any = json.loads(_devices(capsys, "--json"))["c7x"]
    assert facts["available"] is heap
    assert facts["dsps"][0]["address"] == f"c7x://{DSP}"


def test_a_machine_without_dsps(board: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    assert "c7x: none: no remote processor of this machine is a DSP" in _devices(capsys)


def test_the_udev_rules_are_printed_as_they_are_shipped(capsys: pytest.CaptureFixture[str]) -> None:
    assert _devices(capsys, "--udev") == UDEV_RULES
    assert (ROOT / "docs" / "60-repertory-c7x.rules").read_text() == UDEV_RULES


def test_the_udev_rules_match_every_node_that_is_used() -> None:
    rules = [line for line in UDEV_RULES.splitlines() if not line.startswith("#")]
    for subsystem, kernel in (("rpmsg", "rpmsg*"), ("remoteproc", "remoteproc*"), ("dma_heap", "carveout_*")):
        assert f'SUBSYSTEM=="{subsystem}", KERNEL=="{kernel}", GROUP="video", MODE="0660"' in rules
    assert len(rules) == 3
