"""A module that another Python runs finds what this process would find, and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from repertory.transports.isolation.interpreter import command

from .support import hostile

HERE = Path.cwd()
PROBE = """\
import enum, json, sys, types
flags = [sys.flags.ignore_environment, sys.flags.no_user_site, sys.flags.no_site]
files = [enum.__file__, types.__file__]
print(json.dumps({"path": sys.path, "argv": sys.argv[1:], "files": files, "name": __name__, "flags": flags}))
"""
GONE = """\
import os, subprocess, sys
os.rmdir(os.getcwd())
from repertory.transports.isolation.interpreter import command
sys.path[:] = ["", "relative", *filter(None, sys.path), sys.argv[1]]
subprocess.run(command("probe"), check=True)
"""


@pytest.fixture
def probe(tmp_path: Path) -> str:
    """Return a folder with a module that tells where it finds itself."""
    folder = tmp_path / "with: colon"
    folder.mkdir()
    (folder / "probe.py").write_text(PROBE)
    return str(folder)


def _run(*program: str) -> dict[str, Any]:
    done = subprocess.run(program, check=True, stdout=subprocess.PIPE, timeout=30)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_looks_where_this_process_looks(
    probe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that holds names of the standard library, too, but only where this process would."""
    path = [*sys.path, probe, hostile(tmp_path / "hostile"), "/nowhere"]
    monkeypatch.setattr(sys, "path", [*path, Path("/no/text"), b"/no/text"])
    found = _run(*command("probe", "--one", "zwei ö"))
    assert found["path"] == [entry or str(HERE) for entry in path]
    assert found["argv"] == ["--one", "zwei ö"]
    assert found["name"] == "__main__"
    assert not any(file.startswith(str(tmp_path)) for file in found["files"])


def test_what_the_interpreter_needs_to_start_is_its_own(
    probe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where such a folder comes first: this process did not look there when it started."""
    monkeypatch.setattr(sys, "path", [hostile(tmp_path / "hostile"), probe, *sys.path])
    assert not any(file.startswith(str(tmp_path)) for file in _run(*command("probe"))["files"])


def test_relative_entries_mean_what_they_meant(
    probe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", "there", probe, *sys.path])
    monkeypatch.chdir(tmp_path)
    assert _run(*command("probe"))["path"][:3] == [str(HERE), str(HERE / "there"), probe]


def test_a_folder_that_was_deleted(probe: str, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    program = [sys.executable, "-c", GONE, probe]
    done = subprocess.run(program, cwd=folder, check=True, stdout=subprocess.PIPE, timeout=30)
    found = json.loads(done.stdout)["path"]
    assert probe in found
    assert not {"", "relative"} & set(found)


@pytest.mark.parametrize("name", ["ignore_environment", "no_user_site", "no_site"])
def test_flags_that_say_what_is_found_are_handed_on(
    name: str, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = dict.fromkeys(("ignore_environment", "no_user_site", "no_site"), 0) | {name: 1}
    monkeypatch.setattr(sys, "path", [probe, *sys.path])
    monkeypatch.setattr(sys, "flags", SimpleNamespace(**flags))
    assert _run(*command("probe"))["flags"] == list(flags.values())
