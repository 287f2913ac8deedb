"""How a script waits in `mxa`: time-outs in short native waits, locks, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from repertory.transports.memx.constants import Status
from repertory.transports.memx.mxa.module import ADDRESS, SLICE_MS, Mxa
from repertory.transports.memx.simulator.libmemx import Call
from repertory.transports.memx.simulator.profile import ProfileName

from .files import Net
from .page import PROFILES, frame, loaded, outputs, simulator, write_model
from .stub import Stub

FRAME = np.zeros((2, 3, 4), np.float32)


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    made = Stub(tmp_path)
    for flow in ("ifmap", "ofmap"):
        made.answer(f"memx_get_{flow}_size", Status.OK, 2, 3, 1, 4, 5)
    return made


@pytest.fixture
def mxa(stub: Stub) -> Mxa:
    made = Mxa(f"memx://?library={stub.path}")
    made.open(0, 0, 3)
    return made


def waits(stub: Stub) -> list[int]:
    """Return the time-outs that libmemx was asked for."""
    return [int(call.rpartition(" ")[2]) for call in stub.calls() if "stream" in call]


def locking(stub: Stub) -> list[str]:
    """Return the calls about locks."""
    return [call for call in stub.calls() if "lock" in call]


@pytest.mark.parametrize(
    ("asked", "native"),
    [
        (1, [1]),
        (SLICE_MS, [SLICE_MS]),
        (2 * SLICE_MS + 5, [SLICE_MS, SLICE_MS, 5]),
        (-1, [-1]),
        (21_474_836, [-1]),
        (1 << 40, [-1]),
        (-(1 << 40), [-1]),
    ],
)
def test_a_timeout_is_asked_for_in_slices(mxa: Mxa, stub: Stub, asked: int, native: list[int]) -> None:
    for flow, call, status in (
        ("ifmap", mxa.stream_ifmap, Status.INPUT_TIMEOUT),
        ("ofmap", mxa.stream_ofmap, Status.OUTPUT_TIMEOUT),
    ):
        stub.answer(f"memx_stream_{flow}", status)
        assert call(0, 0, FRAME.copy(), asked) == status
        assert waits(stub) == native


@pytest.mark.parametrize("timeout", [0, 100])
def test_a_wait_ends_with_any_other_status(mxa: Mxa, stub: Stub, timeout: int) -> None:
    stub.answer("memx_stream_ofmap", Status.INPUT_TIMEOUT)  # not the time-out of this call
    assert mxa.stream_ofmap(0, 0, FRAME.copy(), timeout) == Status.INPUT_TIMEOUT
    stub.answer("memx_stream_ofmap", Status.OK)
    assert mxa.stream_ofmap(0, 0, FRAME.copy(), timeout) == Status.OK
    assert waits(stub) == [SLICE_MS, SLICE_MS]


def test_no_native_wait_is_for_ever(mxa: Mxa, stub: Stub) -> None:
    mxa.stream_ifmap(0, 0, FRAME)
    mxa.stream_ofmap(0, 0, FRAME.copy())
    mxa.stream_ifmap(9, 0, FRAME)
    assert 0 not in waits(stub)


@pytest.mark.parametrize("status", [Status.GROUP_IN_USE, Status.LOCK_FILE_UNUSABLE])
def test_a_failed_trylock_leaves_no_mutex_behind(mxa: Mxa, stub: Stub, status: Status) -> None:
    stub.answer("memx_trylock", status)
    assert mxa.trylock(1) == status
    assert locking(stub) == ["memx_trylock 1", "memx_unlock 1"]


def test_a_trylock_that_is_refused_otherwise_unlocks_nothing(mxa: Mxa, stub: Stub) -> None:
    stub.answer("memx_trylock", Status.BAD_GROUP_ID)
    assert mxa.trylock(9) == mxa.lock(9) == Status.BAD_GROUP_ID
    assert locking(stub) == ["memx_trylock 9", "memx_trylock 9"]


def test_a_lock_whose_file_cannot_be_opened_is_not_waited_for(mxa: Mxa, stub: Stub) -> None:
    stub.answer("memx_trylock", Status.LOCK_FILE_UNUSABLE)
    assert mxa.lock(0) == Status.LOCK_FILE_UNUSABLE


def test_a_lock_of_this_process_is_never_released_by_who_fails_to_get_it(mxa: Mxa, stub: Stub) -> None:
    assert mxa.trylock(0) == Status.OK
    for _ in range(3):
        assert mxa.trylock(0) == Status.GROUP_IN_USE
    assert mxa.trylock(1) == Status.OK
    assert locking(stub) == ["memx_trylock 0", "memx_trylock 1"]
    assert mxa.unlock(0) == Status.OK
    assert mxa.trylock(0) == Status.OK
    assert locking(stub) == ["memx_unlock 0", "memx_trylock 0"]


def test_threads_of_a_script_exclude_each_other(mxa: Mxa, stub: Stub) -> None:
    inside: list[str] = []
    crowded: list[str] = []

    def work(name: str) -> None:
        for _ in range(25):
            assert mxa.lock(0) == Status.OK
            inside.append(name)
            crowded.extend(inside[:-1])
            inside.remove(name)
            assert mxa.unlock(0) == Status.OK

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert crowded == []
    assert locking(stub) == ["memx_trylock 0", "memx_unlock 0"] * 100


SCRIPT = """
import numpy as np
from repertory import mxa
mxa.open(0, 0, 3)
frame = np.zeros((2, 3, 4), np.float32)
try:
    {call}
except KeyboardInterrupt:
    print("ended", flush=True)
"""


@pytest.mark.parametrize(
    ("call", "function", "status"),
    [
        ("mxa.stream_ifmap(0, 0, frame)", "memx_stream_ifmap", Status.INPUT_TIMEOUT),
        ("mxa.stream_ofmap(0, 0, frame, 0)", "memx_stream_ofmap", Status.OUTPUT_TIMEOUT),
        ("mxa.stream_ofmap(0, 0, frame, 20_000_000)", "memx_stream_ofmap", Status.OUTPUT_TIMEOUT),
        ("mxa.lock(0)", "memx_trylock", Status.GROUP_IN_USE),
    ],
    ids=["write", "read", "long read", "lock"],
)
def test_ctrl_c_ends_a_wait(stub: Stub, call: str, function: str, status: Status) -> None:
    stub.answer(function, status)
    stub.print(function)
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(call=call)],
        env={**os.environ, ADDRESS: f"memx://?library={stub.path}"},
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            for _ in range(3):
                assert child.stdout.readline() == "libmemx speaks\n"
            child.send_signal(signal.SIGINT)
            assert child.stdout.read().splitlines()[-1] == "ended"
            assert child.wait() == 0
        finally:
            child.kill()


@pytest.mark.parametrize("profile", PROFILES)
def test_a_wait_without_a_bound_ends_when_the_frame_is_there(profile: ProfileName, tmp_path: Path) -> None:
    library = simulator(profile)
    calls: list[Call] = []
    mxa = Mxa(library)
    loaded(mxa, write_model(tmp_path, Net(latency=0.4)))
    library.record = calls.append
    assert mxa.stream_ifmap(0, 0, frame()) == mxa.stream_ofmap(0, 0, outputs()[0]) == 0
    reads = [call.status for call in calls if call.name == "memx_stream_ofmap"]
    assert reads[:2] == [Status.OUTPUT_TIMEOUT] * 2
    assert reads[-1] == Status.OK


@pytest.mark.parametrize("profile", PROFILES)
def test_ctrl_c_ends_a_wait_for_a_hung_card(profile: ProfileName, tmp_path: Path) -> None:
    library = simulator(profile)
    mxa = Mxa(library)
    loaded(mxa, write_model(tmp_path))
    assert mxa.stream_ifmap(0, 0, frame()) == 0
    library.hang(0)
    seen: list[Call] = []

    def interrupt(call: Call) -> None:
        if call.name == "memx_stream_ofmap":
            seen.append(call)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    library.record = interrupt
    with pytest.raises(KeyboardInterrupt):
        mxa.stream_ofmap(0, 0, outputs()[0])
    assert [call.status for call in seen] == [Status.OUTPUT_TIMEOUT] * 3
    assert mxa.stream_ofmap(0, 0, outputs()[0], 1) == Status.OUTPUT_TIMEOUT


HOLDER = """
import sys
from repertory import mxa
print(mxa.lock(0), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("profile", PROFILES)
def test_a_lock_of_another_process_is_waited_for(profile: ProfileName, tmp_path: Path) -> None:
    address = f"sim+memx://0?profile={profile}&lock_dir={tmp_path}"
    mxa, got = Mxa(address), list[int]()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={**os.environ, ADDRESS: address},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "0\n"
        assert [mxa.trylock(0) for _ in range(3)] == [Status.GROUP_IN_USE] * 3
        waiting = threading.Thread(target=lambda: got.append(mxa.lock(0)))
        waiting.start()
        holder.kill()
    waiting.join(20)
    assert got == [Status.OK]
    assert mxa.trylock(0) == Status.GROUP_IN_USE
    assert mxa.unlock(0) == mxa.trylock(0) == mxa.unlock(0) == Status.OK
