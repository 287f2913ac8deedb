from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from repertory.transports.rpmsg.linux.dsp import LinuxDsp

from .machine import Machine
from .tree import Tree

__all__ = ["Clock", "MakeDsp"]

MakeDsp = Callable[..., LinuxDsp]


class Clock:
    """Time that passes by pauses only; each lets udev go on."""

    def __init__(self, tree: Tree) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []
        self._tree = tree

    def now(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds
        self._tree.udev()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def clock(tree: Tree) -> Clock:
    return Clock(tree)


@pytest.fixture
def machine(tree: Tree) -> Iterator[Machine]:
    """Give a kernel; at the end nothing of ours may be left in it."""
    made = Machine(tree)
    yield made
    if made.left[2]:
        gc.collect()  # a caught error may hold a view
    files, channels, buffers = made.left
    assert (files, [name for name in channels if name.startswith("repertory-")], buffers) == (0, [], 0)


@pytest.fixture
def make_dsp(tree: Tree, machine: Machine, clock: Clock) -> MakeDsp:
    def make(name: str = "7e000000.dsp", lock_dir: Path | None = None, heap: str | None = None) -> LinuxDsp:
        return LinuxDsp(
            name,
            now=clock.now,
            pause=clock.pause,
            sysfs=tree.sysfs,
            dev=tree.dev,
            heap=heap,
            lock_dir=lock_dir or tree.root,
            kernel=machine,
        )

    return make
