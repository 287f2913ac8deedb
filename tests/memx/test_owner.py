"""Who may have a device group: the daemon, our lock file, and one table of contexts for one library."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import numpy as np
import pytest

from repertory.models.errors import ConfigError, DeviceBusy, DeviceHung, DeviceLost
from repertory.runtime.opening import open_runtime
from repertory.transports.memx import device
from repertory.transports.memx.lock import GroupLock
from repertory.transports.memx.manager import check_manager

from .files import CHANNELS, HEIGHT, WIDTH, Net, dfp
from .nobody import nobody
from .stub import Stub

IMAGE = np.zeros((1, CHANNELS, HEIGHT, WIDTH), np.float32)
IN_TIME = 20.0


@pytest.fixture
def stub(tmp_path: Path) -> Stub:
    made = Stub(tmp_path)
    made.answer("memx_operation_get_device_count", 0, 2)
    made.answer("memx_get_total_chip_count", 0, 4)
    made.answer("memx_get_ifmap_size", 0, 4, 6, 1, 3, 5)
    made.answer("memx_get_ofmap_size", 0, 4, 6, 1, 2, 5)
    return made


def _address(stub: Stub, group: int = 0, **options: object) -> str:
    folder = Path(stub.path).parent
    told = {"library": stub.path, "lock_dir": folder, "dev_dir": folder, "manager_dir": folder} | options
    return f"memx://{group}?isolation=none&" + "&".join(f"{name}={value}" for name, value in told.items())


# -- one table of contexts for one library


def _check_contexts(calls: list[str]) -> None:
    """Check that no two groups had the same context."""
    opened = [call.split()[1:3] for call in calls if call.startswith("memx_open ")]
    assert {group for _, group in opened} == {"0", "1"}
    assert len({model_id for model_id, _ in opened}) == len(opened) == 2


def _spelled_otherwise(stub: Stub) -> Path:
    path = Path(stub.path)
    (path.parent / "again").symlink_to(path.parent)
    return path.parent / "again" / path.name


@pytest.mark.parametrize("difference", ["log level", "spelling"])
async def test_groups_of_one_library_never_have_the_same_context(
    difference: str, stub: Stub, anyio_backend: object
) -> None:
    other = {"log_level": 1} if difference == "log level" else {"library": _spelled_otherwise(stub)}
    addresses = [_address(stub, 0), _address(stub, 1, **other)]
    async with open_runtime(addresses) as rt:
        for name, address in zip("ab", addresses, strict=True):
            model = await rt.load(dfp(Net(name, outputs=1), twins=False), groups=[address])
            await model.infer(IMAGE)
    _check_contexts(stub.calls())


def test_groups_of_two_event_loops_never_have_the_same_context(stub: Stub) -> None:
    addresses = [_address(stub, 0), _address(stub, 1, library=_spelled_otherwise(stub))]
    together = threading.Barrier(2)

    async def serve(address: str) -> None:
        async with open_runtime([address]) as rt:
            model = await rt.load(dfp(Net("net", outputs=1), twins=False))
            await model.infer(IMAGE)
            together.wait(IN_TIME)

    threads = [threading.Thread(target=anyio.run, args=(serve, address)) for address in addresses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _check_contexts(stub.calls())


# -- a library that takes long to load


PATIENCE = 5.0  # seconds until a load that blocks all of this process is let go on
RESCUE = """
import os, sys, time
time.sleep(float(sys.argv[2]))
os.open(sys.argv[1], os.O_RDONLY)
time.sleep(60)
"""


class _Gate:
    """Keeps a stub from being loaded: it notes its calls in a pipe that nobody reads yet."""

    def __init__(self, stub: Stub) -> None:
        self._path = f"{stub.path}.calls"
        os.mkfifo(self._path)
        self._reader: int | None = None
        self._late = time.monotonic() + PATIENCE
        self._rescue = subprocess.Popen([sys.executable, "-c", RESCUE, self._path, str(PATIENCE)])

    @property
    def shut(self) -> bool:
        """Whether the load has to wait still."""
        return self._reader is None and time.monotonic() < self._late

    def open(self) -> None:
        """Let the load go on."""
        if self._reader is None:
            self._reader = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)

    def calls(self) -> list[str]:
        """Return what was called since the gate was opened."""
        assert self._reader is not None
        return os.read(self._reader, 1 << 16).decode().splitlines()

    def close(self) -> None:
        self.open()  # else the thread that loads never ends, and holds the loader's lock
        assert self._reader is not None
        os.close(self._reader)
        self._rescue.kill()
        self._rescue.wait()


@pytest.fixture
def gate(stub: Stub) -> Iterator[_Gate]:
    made = _Gate(stub)
    yield made
    made.close()


async def test_the_event_loop_goes_on_while_a_library_loads(
    stub: Stub, gate: _Gate, anyio_backend: object
) -> None:
    serving, leave = anyio.Event(), anyio.Event()

    async def serve() -> None:
        async with open_runtime([_address(stub)]):
            serving.set()
            await leave.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        for _ in range(100):
            await anyio.sleep(0.001)
        assert gate.shut
        assert not serving.is_set()
        gate.open()
        with anyio.fail_after(IN_TIME):
            await serving.wait()
        leave.set()
    assert gate.calls()[0].startswith("loaded")


async def test_a_library_that_does_not_load_is_hung_and_may_be_tried_again(
    stub: Stub, gate: _Gate, monkeypatch: pytest.MonkeyPatch, anyio_backend: object
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(device, "OPEN_BOUND", 0.2)
        with pytest.raises(DeviceHung, match=r"loading libmemx has not returned within 0\.2 s"):
            async with open_runtime([_address(stub)]):
                pass
    assert gate.shut
    gate.open()
    async with open_runtime([_address(stub)]):
        pass
    calls = [call for call in gate.calls() if not call.startswith("memx_get_feature")]
    assert calls[0].startswith("loaded")
    assert calls[1:] == [
        "memx_operation_get_device_count",
        "memx_trylock 0",
        "memx_get_total_chip_count 0",
        "memx_unlock 0",
    ]


# -- the vendor's daemon


@contextmanager
def _daemon(folder: Path, *, backlog: int = 8) -> Generator[Path]:
    path = folder / "10000.sock"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(path))
        daemon.listen(backlog)
        yield path


def test_a_daemon_that_is_not_there(tmp_path: Path) -> None:
    check_manager(tmp_path / "nowhere")
    check_manager(tmp_path)
    (tmp_path / "file").touch()
    check_manager(tmp_path / "file")
    with _daemon(tmp_path):
        pass
    check_manager(tmp_path)  # a socket that a dead one left behind


def test_a_daemon_that_we_may_not_ask(tmp_path: Path) -> None:
    with _daemon(tmp_path) as path:
        path.chmod(0)
        with nobody(), pytest.raises(DeviceBusy, match="force=true") as caught:
            check_manager(tmp_path)
        assert str(path) in str(caught.value)


def test_a_daemon_that_is_too_busy_to_answer(tmp_path: Path) -> None:
    with _daemon(tmp_path, backlog=0) as path, socket.socket(socket.AF_UNIX) as first:
        first.connect(str(path))
        with pytest.raises(DeviceBusy):
            check_manager(tmp_path)


def test_a_daemon_whose_socket_has_too_long_a_name(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    with pytest.raises(ConfigError, match="longer than 107 bytes"):
        check_manager(folder)


# -- our own lock


@contextmanager
def _forked(job: Callable[[], None]) -> Generator[None]:
    """Run a job in a fork, which lives on to the end of the block."""
    done, stay = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        with suppress(BaseException):
            os.close(stay[1])
            job()
            os.write(done[1], b"!")
            os.read(stay[0], 1)
        os._exit(0)
    try:
        assert os.read(done[0], 1) == b"!"
        yield
    finally:
        for file in (*done, *stay):
            os.close(file)
        os.waitpid(child, 0)


def _is_free(folder: Path) -> bool:
    lock = GroupLock(folder, 0)
    try:
        lock.acquire()
    except DeviceBusy:
        return False
    lock.release()
    return True


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_lock_that_is_given_back_is_free_whatever_was_forked_meanwhile(tmp_path: Path) -> None:
    lock = GroupLock(tmp_path, 0)
    lock.acquire()
    with _forked(lambda: None):
        assert not _is_free(tmp_path)
        lock.release()
        assert _is_free(tmp_path)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_cannot_give_the_lock_back(tmp_path: Path) -> None:
    lock = GroupLock(tmp_path, 0)
    lock.acquire()
    with _forked(lock.release):
        assert not _is_free(tmp_path)
    assert not _is_free(tmp_path)
    lock.release()
    assert _is_free(tmp_path)


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_the_place_of_the_lock_is_not_followed(there: bool, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    if there:
        victim.write_text("precious")
    (tmp_path / "repertory-memx-group00.lock").symlink_to(victim)
    with pytest.raises(DeviceLost, match=r"group00\.lock: is a symbolic link; set lock_dir="):
        GroupLock(tmp_path, 0).acquire()
    assert victim.exists() is there
    assert not there or victim.read_text() == "precious"


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("call", ["ftruncate", "pwrite"])
def test_a_lock_that_cannot_be_written_leaves_nothing_behind(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    lock, before = GroupLock(tmp_path, 0), _open_files()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(DeviceLost, match="No space left on device; set lock_dir="):
            lock.acquire()
    assert _open_files() == before
    assert _is_free(tmp_path)
