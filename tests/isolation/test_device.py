"""What the parent makes of its child: deaths, callers that have gone, signals, logging, and no child."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import numpy as np
import pytest

from repertory.models.errors import ConfigError, DeviceError, DeviceLost
from repertory.models.program import Artifact, Program
from repertory.models.sketch import sketch
from repertory.models.spec import TensorSpec
from repertory.runtime.opening import open_runtime
from repertory.transports.answers import hash_answer
from repertory.transports.device import Completion
from repertory.transports.frame import Fate, Frame, Outcome
from repertory.transports.isolation.connect import isolated
from repertory.transports.isolation.device import IsolatedDevice
from repertory.transports.real import RealWorld
from repertory.transports.sketched import prepare_sketch
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World

from .support import Stub, echo, hostile, left, processes, tensor

FLOAT = np.dtype(np.float32)


def _prepare(artifact: Artifact, readings: Mapping[str, float]) -> Program:
    return prepare_sketch(artifact)


def _model(*, service: float, extent: int | str = 8) -> Artifact:
    spec = TensorSpec("x", (extent, 16), FLOAT)
    return Artifact("net", sketch("net", [spec], [TensorSpec("y", (4,), FLOAT)], service=service))


class Owner:
    """Whoever uses the device, and what it was told."""

    def __init__(self) -> None:
        self.landed: dict[Frame, Completion] = {}
        self.faults: list[DeviceError] = []
        self.news = anyio.Event()

    def completed(self, completions: Sequence[Completion]) -> None:
        assert not self.faults, "a completion came after the fault"
        self.landed |= {completion.frame: completion for completion in completions}
        self.news.set()

    def fault(self, error: DeviceError) -> None:
        self.faults.append(error)
        self.news.set()

    async def until(self, *frames: Frame) -> None:
        while not all(frame in self.landed for frame in frames):
            self.news = anyio.Event()
            await self.news.wait()

    def settled(self, frame: Frame, /) -> None: ...

    def expire(self, frame: Frame, /) -> None: ...


def _nothing(process: subprocess.Popen[bytes]) -> None:
    """A kill that has no effect."""


def _inherited(process: int) -> set[int]:
    """Return the descriptors that programs which a process starts get from it."""
    flags = {int(e.name): e.read_text().split()[3] for e in Path(f"/proc/{process}/fdinfo").iterdir()}
    return {number for number, flag in flags.items() if not int(flag, 8) & os.O_CLOEXEC}


def _address(unique: object) -> str:
    """Return an address of a device with room for some frames, like no other in any command line."""
    return f"sim://{os.getpid()}.{id(unique)}?window=6&swap_ms=0"


async def _opened(world: World, owner: Owner, artifact: Artifact) -> tuple[IsolatedDevice, Program]:
    device = isolated(_address(owner), world, prepare=_prepare)()
    assert isinstance(device, IsolatedDevice)
    await device.open(owner.completed, owner.fault)
    program = device.prepare(artifact)
    await device.bind(program)
    return device, program


def _frame(owner: Owner, program: Program, *extents: int) -> Frame:
    array = np.random.default_rng(3).standard_normal(extents or (8, 16)).astype(np.float32)
    return Frame(owner, program.networks[0], (array,), program=program)


async def test_a_child_that_is_killed_at_work(anyio_backend: object) -> None:
    owner, before = Owner(), left()
    async with RealWorld() as world:
        device, program = await _opened(world, owner, _model(service=60.0))
        frames = [_frame(owner, program) for _ in range(4)]
        for frame in frames:
            device.start(frame)
        (child,) = processes(_address(owner))
        os.kill(child, signal.SIGKILL)
        await owner.until(*frames)
        (fault,) = owner.faults
        assert isinstance(fault, DeviceLost)
        assert str(fault) == f"the process of sim://{os.getpid()}.{id(owner)} was killed by SIGKILL"
        assert {(owner.landed[frame].fate, owner.landed[frame].error) for frame in frames} == {
            (Fate.FAILED, fault)
        }
        for call in (lambda: device.bind(program), device.probe):
            with pytest.raises(DeviceLost, match="SIGKILL"):
                await call()
        with pytest.raises(DeviceLost, match="SIGKILL"):
            device.start(_frame(owner, program))
        await device.close(bound=5.0)
    assert len(owner.faults) == 1
    assert left() == before


async def test_frames_whose_callers_have_gone(anyio_backend: object) -> None:
    """Before it is sent it is not sent; later the device is told; the order of completions stands."""
    owner = Owner()
    async with RealWorld() as world:
        device, program = await _opened(world, owner, _model(service=0.2))
        frames = [_frame(owner, program) for _ in range(4)]
        frames[1].settle(Outcome.CANCELLED)
        for frame in frames:
            device.start(frame)
        await owner.until(frames[0])
        frames[3].settle(Outcome.CANCELLED)
        device.abandon(frames[3])
        await owner.until(*frames)
        assert list(owner.landed) == frames
        fates = [owner.landed[frame].fate for frame in frames]
        assert fates == [Fate.DONE, Fate.UNDONE, Fate.DONE, Fate.UNDONE]
        await device.close(bound=5.0)


async def test_tensors_of_any_size_cross(anyio_backend: object) -> None:
    """Extents that are open go through the socket, and are more than it holds."""
    owner = Owner()
    async with RealWorld() as world:
        device, program = await _opened(world, owner, _model(service=0.0, extent="N"))
        frames = [_frame(owner, program, extent, 16) for extent in (0, 1, 50_000, 3)]
        for frame in frames:
            device.start(frame)
        await owner.until(*frames)
        for frame in frames:
            (found,) = owner.landed[frame].outputs
            assert np.array_equal(found, hash_answer(program.networks[0], frame.inputs)[0])
            found[:] = 0  # it is the caller's own
        await device.close(bound=5.0)


async def test_a_close_that_the_child_does_not_answer(anyio_backend: object) -> None:
    owner, before = Owner(), left()
    async with RealWorld() as world:
        device, program = await _opened(world, owner, _model(service=60.0))
        frame = _frame(owner, program)
        device.start(frame)
        (child,) = processes(_address(owner))
        os.kill(child, signal.SIGSTOP)
        began = anyio.current_time()
        await device.close(bound=1.0)
        assert anyio.current_time() - began < 1.5
        assert owner.landed[frame].fate is Fate.FAILED
        with pytest.raises(DeviceError):
            await device.probe()
    assert processes(_address(owner)) == []
    assert left() == before


async def test_a_child_that_the_kernel_does_not_give_back(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a driver's uninterruptible sleep: it does not end when it is killed."""
    owner = Owner()
    async with RealWorld() as world:
        device, _ = await _opened(world, owner, _model(service=0.0))
        (child,) = processes(_address(owner))
        os.kill(child, signal.SIGSTOP)
        watch = os.pidfd_open(child)
        with monkeypatch.context() as patched:
            patched.setattr(subprocess.Popen, "kill", _nothing)
            began = anyio.current_time()
            await device.close(bound=1.0)
            assert anyio.current_time() - began < 1.5
            assert f"({child}) was killed and does not end" in caplog.text
        os.kill(child, signal.SIGKILL)
        await anyio.wait_readable(watch)
        os.close(watch)


async def test_an_open_that_is_cancelled(anyio_backend: object) -> None:
    owner, before = Owner(), left()
    async with RealWorld() as world:
        device = isolated(_address(owner), world, prepare=_prepare)()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await device.open(owner.completed, owner.fault)
        assert scope.cancelled_caught
        await device.close(bound=5.0)
    assert processes(_address(owner)) == []
    assert owner.faults == []
    assert left() == before


async def test_signals_for_the_parent_leave_the_child_alone(anyio_backend: object) -> None:
    """A terminal's Ctrl-C reaches a whole process group, and a service manager's SIGTERM every process."""
    owner = Owner()
    async with RealWorld() as world:
        device, program = await _opened(world, owner, _model(service=0.0))
        (child,) = processes(_address(owner))
        assert os.getpgid(child) != os.getpgid(0)
        os.kill(child, signal.SIGINT)
        os.kill(child, signal.SIGTERM)
        frame = _frame(owner, program)
        device.start(frame)
        await owner.until(frame)
        assert owner.landed[frame].fate is Fate.DONE
        await device.close(bound=5.0)


async def test_what_the_child_logs_is_logged_here(
    anyio_backend: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stub = Stub(tmp_path / "stub")
    with caplog.at_level(logging.WARNING, "repertory"):
        async with open_runtime([stub]) as runtime:
            model = await runtime.load(echo("one"))
            await model.infer(tensor(1))
            stub.fail("close", "hang")
    told = [record.getMessage() for record in caplog.records if record.name == "repertory.memx"]
    assert any("was not closed in order: memx_close" in message for message in told), told


async def test_a_child_that_may_open_no_more_files(
    anyio_backend: object, caplog: pytest.LogCaptureFixture
) -> None:
    """It gets the message without its file, and must not take another's for it."""
    owner = Owner()
    async with RealWorld() as world:
        device, _ = await _opened(world, owner, _model(service=0.0))
        (child,) = processes(_address(owner))
        resource.prlimit(child, resource.RLIMIT_NOFILE, (3, 3))
        with pytest.raises(DeviceLost, match="the process of sim://"):
            await device.bind(device.prepare(_model(service=1.0)))
        assert "is there a limit of open files?" in caplog.text
        await device.close(bound=5.0)
    assert len(owner.faults) == 1


async def test_a_library_that_forked(anyio_backend: object, tmp_path: Path) -> None:
    """The fork holds all that the child held, and lives on when that is killed."""
    owner, stub = Owner(), Stub(tmp_path / "stub")
    async with RealWorld() as world:
        device = stub(world)
        await device.open(owner.completed, owner.fault)
        (child,) = processes(stub.address)
        stub.fail("open", "fork")
        await device.bind(device.prepare(Artifact("one", echo("one"))))
        (fork,) = {*processes(stub.address)} - {child}
        try:
            os.kill(child, signal.SIGKILL)
            with anyio.fail_after(5):
                await owner.news.wait()
        finally:
            os.kill(fork, signal.SIGKILL)
        await device.close(bound=5.0)
    (fault,) = owner.faults
    assert str(fault) == "the process of memx://0 was killed by SIGKILL"


async def test_programs_that_the_child_starts_inherit_nothing(anyio_backend: object) -> None:
    owner = Owner()
    async with RealWorld() as world:
        device, _ = await _opened(world, owner, _model(service=0.0))
        (child,) = processes(_address(owner))
        assert _inherited(child) == {0, 1, 2}
        await device.close(bound=5.0)


async def test_where_the_child_looks_for_modules(
    anyio_backend: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in folders that this process has looked into last, when it starts; nor where nobody can."""
    owner = Owner()
    colon = tmp_path / "a:b"
    colon.mkdir()
    monkeypatch.setattr(sys, "path", [hostile(tmp_path / "hostile"), str(colon), tmp_path, *sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    async with RealWorld() as world:
        device, _ = await _opened(world, owner, _model(service=0.0))
        await device.close(bound=5.0)
    assert owner.faults == []


@pytest.mark.parametrize("address", ["nothing://", "sim://?window=0", "cpu://?threads=many"])
async def test_an_address_that_the_child_refuses(address: str, anyio_backend: object) -> None:
    owner = Owner()
    async with RealWorld() as world:
        device = isolated(address, world, prepare=_prepare)()
        with pytest.raises(ConfigError, match=address.partition("?")[0]):
            await device.open(owner.completed, owner.fault)
        await device.close(bound=5.0)
    assert owner.faults == []


async def test_an_interpreter_that_ends_at_once(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, before = Owner(), left()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    async with RealWorld() as world:
        device = isolated("sim://", world, prepare=_prepare)()
        with pytest.raises(DeviceLost, match="the process of sim:// ended with status 1"):
            await device.open(owner.completed, owner.fault)
        await device.close(bound=5.0)
    assert left() == before


async def test_a_process_that_cannot_be_started(anyio_backend: object) -> None:
    """For whatever reason: it is told at once."""
    owner = Owner()
    async with RealWorld() as world:
        device = isolated("sim://", world, prepare=_prepare, environment={"NAME": "\0"})()
        with pytest.raises(
            DeviceLost, match="the process of sim:// could not be started: embedded null byte"
        ):
            await device.open(owner.completed, owner.fault)
        await device.close(bound=5.0)


@pytest.mark.parametrize("executable", ["", None, "/nowhere/python"])
async def test_no_interpreter(
    executable: str | None, anyio_backend: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    async with RealWorld() as world:
        with pytest.raises(ConfigError, match="needs a Python interpreter"):
            isolated("sim://", world, prepare=_prepare)


@pytest.mark.virtual
async def test_no_process_runs_on_virtual_time(anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        with pytest.raises(ConfigError, match="virtual time"):
            isolated("sim://", world, prepare=_prepare)


async def test_what_is_known_before_the_child_runs(anyio_backend: object) -> None:
    async with RealWorld() as world:
        for address, family, simulated in (("sim+memx://0", "memx", True), ("memx://0", "memx", False)):
            capabilities = isolated(address, world, prepare=_prepare)().capabilities
            assert (capabilities.family, capabilities.simulated) == (family, simulated)
