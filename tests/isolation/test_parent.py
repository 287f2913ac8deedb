"""The parent's end, and what it prints: seen from outside, on a program of its own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from .holder import FOR_EVER
from .support import ENVIRONMENT, address, processes

ROOT = Path(__file__).parents[2]
SOON = 10.0  # seconds for what the kernel does at once, on a machine with other work


def _start(folder: Path, *options: str, program: str = "holder") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"tests.isolation.{program}", str(folder), *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **ENVIRONMENT}, stdout=pipe, stderr=pipe, text=True
    )


def _read_until(stream: IO[str] | None, text: str) -> None:
    assert stream is not None
    lines: list[str] = []
    for line in stream:
        lines.append(line)
        if text in line:
            return
    raise AssertionError(lines)


@pytest.mark.parametrize("state", ["idle", "load", "writing"])
def test_a_child_does_not_outlive_its_killed_parent(state: str, tmp_path: Path) -> None:
    """In `load` the child holds its GIL: nothing in it can notice."""
    folder = tmp_path / "stub"
    with _start(folder, state) as parent:
        if state == "idle":
            _read_until(parent.stdout, "answered True")
        else:
            _read_until(parent.stderr, "goodbye")
        (child,) = processes(address(folder, bind_bound=FOR_EVER))
        watch = os.pidfd_open(child)
        parent.kill()
        parent.wait()
    try:
        assert select.select([watch], [], [], SOON)[0], f"process {child} lives on"
    finally:
        os.close(watch)


def test_what_a_library_prints_does_not_reach_standard_output(tmp_path: Path) -> None:
    with _start(tmp_path / "stub") as program:
        out, err = program.communicate(timeout=60)
    assert out == "answered True\nclosed\n"
    assert {"libmemx says hello", "libmemx says download"} <= set(err.splitlines())
    assert program.returncode == 0


def test_a_fork_that_unwinds_takes_nothing_with_it(tmp_path: Path) -> None:
    """On asyncio: after such a fork trio itself is not woken by threads any more."""
    with _start(tmp_path / "stub", program="forker") as program:
        try:
            out, err = program.communicate(timeout=30)
        finally:
            program.kill()
    assert out == "answered True by incarnation 1\n", err
    assert program.returncode == 0
