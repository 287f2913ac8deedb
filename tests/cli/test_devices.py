from __future__ import annotations

import ctypes.util
from functools import partial
from pathlib import Path

import pytest

from repertory.runtime.commands import devices
from repertory.transports.rpmsg.linux.survey import survey
from tests.rpmsg.linux.tree import Tree

from .conftest import Repertory


def test_devices_needs_no_device(repertory: Repertory) -> None:
    done = repertory("devices", "--json")
    assert done.code == 0
    assert done.json.keys() == {"cpu", "memx", "c7x", "xm-npu", "addresses"}
    assert done.json["cpu"]["available"] is True
    wanted = {"c7x", "cpu", "memx", "null", "sim", "sim+c7x", "sim+cpu", "sim+memx", "sim+xm-npu", "xm-npu"}
    assert {f"{scheme}://" for scheme in wanted} <= set(done.json["addresses"])


def test_a_library_that_is_not_there(repertory: Repertory, tmp_path: Path) -> None:
    path = tmp_path / "libmemx.so"
    done = repertory("devices", "--library", path, "--json")
    assert done.code == 0
    assert done.json["memx"]["available"] is False
    assert str(path) in done.json["memx"]["reason"]


def test_a_file_that_is_no_library(repertory: Repertory, tmp_path: Path) -> None:
    path = tmp_path / "libmemx.so"
    path.write_text("no library")
    done = repertory("devices", "--library", path)
    assert done.code == 0
    assert "memx: none: " in done.out


def test_a_library_of_somebody_else(repertory: Repertory) -> None:
    libc = ctypes.util.find_library("c")
    if libc is None:
        pytest.skip("no C library is found by name")
    reason = repertory("devices", "--library", libc, "--json").json["memx"]["reason"]
    assert "lacks memx_" in reason
    assert "not libmemx" in reason


def _none(_: str) -> None:
    pass


def test_what_reads_modules_is_missed(
    repertory: Repertory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(tmp_path)
    tree.dsp()
    here = partial(survey, str(tree.sysfs), str(tree.dev))
    monkeypatch.setattr(devices, "survey_dsps", here)
    assert "pyelftools" not in repertory("devices").out
    assert "modules" not in repertory("devices", "--json").json["c7x"]
    monkeypatch.setattr(devices, "find_spec", _none)
    assert '  modules cannot be read: pyelftools is missing: pip install "repertory[c7x]"\n' in (
        repertory("devices").out
    )
    assert "pyelftools is missing" in repertory("devices", "--json").json["c7x"]["modules"]


def test_a_person_reads_one_line_a_family(repertory: Repertory) -> None:
    cpu, *_, addresses = repertory("devices").out.splitlines()
    assert cpu.startswith("cpu: ")
    assert addresses.startswith("addresses begin with c7x://")
