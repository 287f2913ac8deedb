"""Two processes make endpoints at the same time, interleaved at every step: none takes the other's."""

from __future__ import annotations

import select
import socket
from pathlib import Path

import pytest

from repertory.transports.rpmsg.endpoint import Endpoint
from repertory.transports.world import drive

from .conftest import MakeDsp
from .machine import Machine
from .tree import Tree

STEPS = 5  # system calls of one open: ctrl, CREATE, close, endpoint, and one that never comes


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Lock folders of two containers, which do not see each other's."""
    both = tmp_path / "a", tmp_path / "b"
    for folder in both:
        folder.mkdir()
    return both


def _talk(endpoint: Endpoint, machine: Machine, text: bytes) -> None:
    assert endpoint.send(text)
    heard = [each for each in machine.channels if each.peer is not None and _pending(each.peer)]
    assert [machine.consume(each) for each in heard] == [text]


def _pending(peer: socket.socket) -> bool:
    return bool(select.select([peer], [], [], 0)[0])


@pytest.mark.parametrize("gap", [(), (0,), (1, 2), (0, 2)])
@pytest.mark.parametrize("step", range(STEPS))
def test_another_process_opens_at_every_step(
    step: int,
    gap: tuple[int, ...],
    make_dsp: MakeDsp,
    machine: Machine,
    folders: tuple[Path, Path],
) -> None:
    control = machine.tree.dsp()
    for index in gap:
        machine.tree.endpoint(control, index, f"other-{index}")
    mine, theirs = (make_dsp(lock_dir=folder) for folder in folders)
    others: list[Endpoint] = []
    left = step

    def interfere() -> None:
        nonlocal left
        left -= 1
        if left < 0 and not others:
            machine.step = lambda: None
            others.append(drive(theirs.open_endpoint()))

    machine.step = interfere
    endpoint = drive(mine.open_endpoint())
    machine.step = lambda: None
    assert bool(others) is (step < STEPS - 1), "somebody opened in between"
    others = others or [drive(theirs.open_endpoint())]
    _talk(endpoint, machine, b"mine")
    _talk(others[0], machine, b"theirs")
    endpoint.close()
    _talk(others[0], machine, b"still theirs")
    others[0].close()


@pytest.mark.parametrize("step", range(STEPS))
def test_another_process_has_made_one_and_not_opened_it(
    step: int, make_dsp: MakeDsp, tree: Tree, machine: Machine
) -> None:
    """Its node is there and would open; the name alone tells."""
    tree.dsp()
    left = step

    def interfere() -> None:
        nonlocal left
        left -= 1
        if left == -1:
            machine.create("rpmsg_ctrl0", "somebody's")

    machine.step = interfere
    endpoint = drive(make_dsp().open_endpoint())
    assert (left < 0) is (step < STEPS - 1), "somebody made one in between"
    _talk(endpoint, machine, b"mine")
    assert [each.fd for each in machine.channels if each.name == "somebody's"] in ([-1], [])
    endpoint.close()
