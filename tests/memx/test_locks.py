"""The advisory lock between threads and between processes: exclusion, the trap, and the death of an owner."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeAlias

import pytest

from repertory.transports.memx.constants import Status
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.real import RealWorld
from repertory.transports.world import drive

from .hand import Forever, HandWorld

ROOT = Path(__file__).parents[2]
PROFILES: tuple[Any, ...] = ("strict", "compat-2.11")
KINDS = ("library", "group")
BOUND = 30.0


@pytest.fixture(scope="module")
def parent() -> Iterator[IO[bytes]]:
    """Start the process that all contenders are forked from, and give the way to tell it so."""
    script = Path(__file__).with_name("contender.py")
    with subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdin is not None
        yield process.stdin


class Contender:
    """A process that takes orders; see `contender.py`."""

    def __init__(self, parent: IO[bytes], folder: Path, profile: str, kind: str) -> None:
        number = sum(1 for _ in folder.glob("*.requests"))
        pipes = [folder / f"{number}.{way}" for way in ("requests", "answers")]
        for pipe in pipes:
            os.mkfifo(pipe)
        parent.write(f"{pipes[0]} {pipes[1]} {folder} {profile} {kind}\n".encode())
        parent.flush()
        self.orders = pipes[0].open("w", buffering=1)
        self.answers = pipes[1].open("rb", buffering=0)
        self.pid = int(self.answer())

    def order(self, text: str) -> None:
        self.orders.write(f"{text}\n")

    def waits(self, seconds: float) -> bool:
        return not select.select([self.answers], [], [], seconds)[0]

    def answer(self) -> str:
        assert not self.waits(BOUND), "a deadlock"
        return self.answers.readline().decode().strip()

    def ask(self, text: str) -> str:
        self.order(text)
        return self.answer()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert self.answers.read() == b"", "it is dead"

    def close(self) -> None:
        self.orders.close()
        self.answers.close()


Make: TypeAlias = Callable[..., list[Contender]]


@pytest.fixture
def contenders(parent: IO[bytes], tmp_path: Path) -> Iterator[Make]:
    found: list[Contender] = []

    def make(count: int, profile: str, kind: str = "library") -> list[Contender]:
        found.extend(made := [Contender(parent, tmp_path, profile, kind) for _ in range(count)])
        return made

    yield make
    for each in found:
        each.close()


def library(folder: Path | str, profile: Any) -> tuple[SimulatedLibmemx, HandWorld]:
    world = HandWorld()
    return SimulatedLibmemx(world, SimulatedMx3(profile=profile, lock_dir=str(folder))), world


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_contend_for_a_thousand_rounds(
    kind: str, profile: str, tmp_path: Path, contenders: Make
) -> None:
    both = contenders(2, profile, kind)
    for seed, each in enumerate(both):
        each.order(f"rounds 500 {seed}")
    for each in both:
        each.answer()  # a broken exclusion would have ended a process
    assert [each.ask("trylock") for each in both] == ["1", "0"]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_death_of_an_owner_frees_the_lock(
    kind: str, profile: str, tmp_path: Path, contenders: Make
) -> None:
    *mortal, last = contenders(4, profile, kind)
    for each in mortal:
        assert last.ask("trylock") == "1"
        assert last.ask("unlock") == "1"
        assert each.ask("lock") == "1"
        assert each.ask("enter") == "1"
        last.order("lock")
        assert last.waits(0.02)
        (tmp_path / "inside").unlink()
        each.kill()
        assert last.answer() == "1"
        assert last.ask("enter") == "1"
        assert last.ask("leave") == "1"
        assert last.ask("unlock") == "1"


@pytest.mark.parametrize(("profile", "still"), [("strict", Status.OK), ("compat-2.11", Status.GROUP_IN_USE)])
def test_after_a_failed_trylock(profile: str, still: Status, tmp_path: Path, contenders: Make) -> None:
    ours, _ = library(tmp_path, profile)
    (other,) = contenders(1, "strict")
    assert other.ask("trylock") == "1"
    assert drive(ours.memx_trylock(0)) == Status.GROUP_IN_USE
    assert other.ask("unlock") == "1"
    assert drive(ours.memx_trylock(0)) == still
    assert drive(ours.memx_unlock(0)) == Status.OK
    assert drive(ours.memx_trylock(0)) == Status.OK


@pytest.mark.parametrize("profile", PROFILES)
def test_an_unlock_frees_only_the_own_processs_lock(profile: str, tmp_path: Path, contenders: Make) -> None:
    ours, _ = library(tmp_path, profile)
    (other,) = contenders(1, profile)
    assert other.ask("trylock") == "1"
    assert drive(ours.memx_unlock(0)) == Status.OK
    assert drive(ours.memx_trylock(0)) == Status.GROUP_IN_USE


@pytest.mark.parametrize("profile", PROFILES)
def test_everything_else_goes_past_another_processs_lock(
    profile: str, tmp_path: Path, contenders: Make
) -> None:
    ours, _ = library(tmp_path, profile)
    (other,) = contenders(1, profile)
    assert other.ask("trylock") == "1"
    assert drive(ours.memx_open(0, 0, 31.0)) == Status.OK
    assert drive(ours.memx_config_mpu_group(0, 0)) == Status.OK


@pytest.mark.parametrize("profile", PROFILES)
def test_a_lock_waits_for_another_process(profile: str, tmp_path: Path, contenders: Make) -> None:
    ours, world = library(tmp_path, profile)
    looks = 0

    def give_up_after_some() -> bool:
        nonlocal looks
        looks += 1
        if looks == 5:
            assert other.ask("unlock") == "1"
        return looks > 10

    (other,) = contenders(1, profile)
    assert other.ask("trylock") == "1"
    world.outside = give_up_after_some
    assert drive(ours.memx_lock(0)) == Status.OK
    assert looks == 5
    assert other.ask("trylock") == "0"


@pytest.mark.parametrize("profile", PROFILES)
def test_who_gives_up_waiting_leaves_nothing_behind(profile: str, tmp_path: Path, contenders: Make) -> None:
    ours, world = library(tmp_path, profile)
    (other,) = contenders(1, profile)
    assert other.ask("trylock") == "1"
    world.outside = lambda: True
    with pytest.raises(Forever):
        drive(ours.memx_lock(0))
    assert other.ask("unlock") == "1"
    assert drive(ours.memx_trylock(0)) == Status.OK


@pytest.mark.parametrize("call", ["memx_lock", "memx_trylock"])
@pytest.mark.parametrize(("profile", "still"), [("strict", Status.OK), ("compat-2.11", Status.GROUP_IN_USE)])
def test_a_lock_file_that_cannot_be_opened(call: str, profile: str, still: Status, tmp_path: Path) -> None:
    folder = tmp_path / "later"
    ours, _ = library(folder, profile)
    assert drive(getattr(ours, call)(0)) == Status.LOCK_FILE_UNUSABLE
    folder.mkdir()
    assert drive(ours.memx_trylock(0)) == still
    assert drive(ours.memx_unlock(0)) == Status.OK
    assert drive(ours.memx_trylock(0)) == Status.OK


@pytest.mark.parametrize("profile", PROFILES)
async def test_threads_wait_for_each_other(profile: Any, tmp_path: Path, anyio_backend: object) -> None:
    inside, most = 0, 0

    async def loop() -> None:
        nonlocal inside, most
        for _ in range(50):
            assert await shared.memx_lock(0) == Status.OK
            inside += 1
            most = max(most, inside)
            os.sched_yield()
            inside -= 1
            assert await shared.memx_unlock(0) == Status.OK

    async with RealWorld() as world:
        shared = SimulatedLibmemx(world, SimulatedMx3(profile=profile, lock_dir=str(tmp_path)))
        drivers = [world.spawn(loop, name=f"thread {number}") for number in range(3)]
        for driver in drivers:
            assert await driver.join(BOUND)
            assert driver.error is None
    assert most == 1
