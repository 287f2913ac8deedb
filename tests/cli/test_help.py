from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from .conftest import Repertory

COMMANDS = ("demo", "run", "plan", "pack", "inspect", "devices", "ping")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_the_exit_codes(repertory: Repertory, command: str) -> None:
    done = repertory(command, "--help")
    assert done.code == 0
    assert "exit codes:" in done.out
    assert all(f"\n  {code}" in done.out for code in (0, 1, 2, 130))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_prints_json_on_demand(repertory: Repertory, command: str) -> None:
    assert "--json" in repertory(command, "--help").out


def test_the_list_of_commands(repertory: Repertory) -> None:
    done = repertory("--help")
    assert done.code == 0
    assert all(command in done.out for command in COMMANDS)


def test_pack_says_that_it_is_no_compiler(repertory: Repertory) -> None:
    assert "This is no compiler." in repertory("pack", "--help").out


def test_version(repertory: Repertory) -> None:
    assert repertory("--version").out.split() == ["repertory", version("repertory")]


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["run"], ["devices", "--nonsense"]])
def test_a_wrong_command_line_exits_with_2(repertory: Repertory, arguments: list[str]) -> None:
    done = repertory(*arguments)
    assert done.code == 2
    assert "usage: repertory" in done.err


def test_the_installed_script_passes_the_exit_code_on(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("repertory")
    done = subprocess.run(
        [script, "inspect", tmp_path / "none.dfp"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == f"repertory inspect: {tmp_path / 'none.dfp'}: No such file or directory\n"


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m repertory.runtime.cli devices --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr
