"""What `repertory devices` tells of a library, in a process that the library may do anything to."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from repertory.models.errors import ConfigError, DeviceError, DeviceHung, DeviceLost
from repertory.transports.memx import survey as surveying
from repertory.transports.memx.constants import Status
from repertory.transports.memx.features import GetFeature
from repertory.transports.memx.survey import survey
from tests.isolation.support import hostile

from .stub import Stub


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    made = Stub(tmp_path)
    made.answer("memx_operation_get_device_count", 0, 2)
    made.answer("memx_get_total_chip_count", 0, 4)
    made.answer("memx_get_feature", 0, *b"1.3.4_1\0")
    return made


def _devices(stub: Stub, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "repertory.runtime.cli", "devices", "--library", stub.path, *options]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)


def test_json_parses_while_the_library_prints(stub: Stub) -> None:
    for call in ("loaded", "memx_get_feature"):
        stub.print(call)
    done = _devices(stub, "--json")
    found = json.loads(done.stdout)["memx"]
    assert found["available"] is True
    assert done.stderr.count("libmemx speaks") > 2


def test_what_is_told(stub: Stub) -> None:
    found = survey(stub.path)
    assert found["library"] == "2.11.2"
    assert {"memx_reconfigure", "memx_get_feature", "memx_dequeue_ifmap_buf"} <= set(found["optional"])
    assert [group["address"] for group in found["groups"]] == ["memx://0", "memx://1"]
    assert [group["chips"] for group in found["groups"]] == [4, 4]
    assert found["groups"][0]["driver"] == "1.3.4_1"
    assert f"memx_get_feature 1 0 {GetFeature.TEMPERATURE}" in " ".join(stub.calls())


def test_an_older_library(tmp_path: Path) -> None:
    stub = Stub(tmp_path, without=["memx_get_feature", "memx_reconfigure"])
    stub.answer("memx_operation_get_device_count", 0, 1)
    stub.answer("memx_get_total_chip_count", 0, 2)
    found = survey(stub.path)
    assert not {"memx_get_feature", "memx_reconfigure"} & set(found["optional"])
    assert found["groups"] == [{"address": "memx://0", "well": True, "chips": 2, "driver": None}]


def test_a_group_that_does_not_answer_is_not_well(stub: Stub) -> None:
    stub.answer("memx_get_feature", Status.ADMIN_TIMEOUT)
    assert [group["well"] for group in survey(stub.path)["groups"]] == [False, False]


def test_cards_that_the_daemon_serves_are_left_alone(stub: Stub, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(tmp_path / "10000.sock"))
        daemon.listen()
        found = survey(stub.path, manager_dir=str(tmp_path))
    assert found["manager"] == str(tmp_path)
    assert found["groups"] == []
    assert stub.calls() == ["loaded unset"]


def test_no_library(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no MemryX library"):
        survey(str(tmp_path / "libmemx.so"))


def test_a_call_that_fails(stub: Stub) -> None:
    stub.answer("memx_operation_get_device_count", Status.GENERIC_FAILURE)
    with pytest.raises(DeviceError, match="memx_operation_get_device_count: generic failure"):
        survey(stub.path)


@pytest.mark.parametrize("call", ["loaded", "memx_get_total_chip_count"])
def test_a_library_that_crashes(stub: Stub, call: str) -> None:
    stub.crash(call)
    with pytest.raises(DeviceLost, match="SIGSEGV"):
        survey(stub.path)
    found: dict[str, Any] = json.loads(_devices(stub, "--json").stdout)["memx"]
    assert found["available"] is False
    assert "SIGSEGV" in found["reason"]


@pytest.mark.parametrize("call", ["loaded", "memx_operation_get_device_count"])
def test_a_library_that_hangs(stub: Stub, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "BOUND", 2.0)
    stub.hang(call)
    with pytest.raises(DeviceHung, match="has not answered within 2 s"):
        survey(stub.path)


def test_a_library_that_ends_by_a_signal_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(*_: str) -> list[str]:
        return ["sh", "-c", "kill -35 $$"]

    monkeypatch.setattr(surveying, "command", command)
    with pytest.raises(DeviceLost, match="the process that asked libmemx was killed by signal 35"):
        survey()


def test_a_process_that_the_kernel_does_not_give_back(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a driver's uninterruptible sleep: it does not end when it is killed."""
    left: list[subprocess.Popen[bytes]] = []

    def kill(process: subprocess.Popen[bytes]) -> None:
        left.append(process)

    stub.hang("loaded")
    began = time.monotonic()
    with monkeypatch.context() as patched:
        patched.setattr(surveying, "BOUND", 0.5)
        patched.setattr(subprocess.Popen, "kill", kill)
        with pytest.raises(DeviceHung):
            survey(stub.path)
    assert time.monotonic() - began < 5
    (child,) = left
    child.kill()
    child.wait()


def test_modules_of_the_standard_library_are_the_real_ones(
    stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, hostile(tmp_path / "hostile"), tmp_path])
    assert len(survey(stub.path)["groups"]) == 2
