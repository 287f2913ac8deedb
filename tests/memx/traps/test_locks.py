"""Locks: one that fails half, one that is waited for, one that says nothing of its owner."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import anyio
import pytest

from repertory.models.errors import DeviceBusy, DeviceError
from repertory.transports.device import Device
from repertory.transports.memx.constants import Status
from repertory.transports.memx.device import MemxDevice
from repertory.transports.memx.lock import GroupLock
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.profile import Trap
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World
from tests.integration.support import Machine

from .rig import EVER, A, check, compat, meets, naked, trial

pytestmark = pytest.mark.virtual

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def no_folder(folder: Path) -> Generator[None]:
    """There is no place for the lock file."""
    yield
    folder.mkdir()


@contextmanager
def another_process(folder: Path) -> Generator[None]:
    """Another process holds the lock of group 0."""
    folder.mkdir()
    command = [sys.executable, "-c", HOLD, str(folder / "memx_group00_lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.communicate()


@meets(Trap.LEAKED_MUTEX)
@pytest.mark.parametrize("obstacle", [no_folder, another_process])
async def test_a_trylock_that_fails_leaves_no_mutex_taken(
    obstacle: Callable[[Path], AbstractContextManager[None]],
    machine: Machine,
    tmp_path: Path,
    anyio_backend: object,
) -> None:
    folder = tmp_path / "lock"
    machine.mx3 = dataclasses.replace(machine.mx3, lock_dir=str(folder))
    async with VirtualWorld() as world:
        library, refused, admitted = naked(machine, world), trial(machine, world), trial(machine, world)
        with obstacle(folder):
            assert await library.memx_trylock(0) != Status.OK
            with pytest.raises(DeviceError, match="lock") as caught:
                await refused.open()
            assert caught.value.call == "memx_trylock"
            await refused.close()
        assert await library.memx_trylock(0) == (Status.GROUP_IN_USE if compat(machine) else Status.OK)
        await library.memx_unlock(0)

        program, _ = await admitted.open_bound()
        await check(admitted, program, A)
        await admitted.close()
    assert machine.library.faults == []


@meets()
async def test_a_lock_that_is_held_is_not_waited_for(machine: Machine, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        library, refused, admitted = naked(machine, world), trial(machine, world), trial(machine, world)
        for held in (library, machine.library):
            assert await held.memx_trylock(0) == Status.OK
        with anyio.move_on_after(EVER) as scope:
            await library.memx_lock(0)
        assert scope.cancelled_caught

        began = world.now()
        with pytest.raises(DeviceBusy, match="group 0 is locked by another user"):
            await refused.open()
        await refused.close()
        assert world.now() - began < 1
        await machine.library.memx_unlock(0)
        program, _ = await admitted.open_bound()
        await check(admitted, program, A)
        await admitted.close()


@meets()
async def test_our_own_lock_comes_first_and_names_its_holder(
    machine: Machine, tmp_path: Path, anyio_backend: object
) -> None:
    def locked(world: World, library: SimulatedLibmemx, index: int) -> Device:
        return MemxDevice(
            world, lambda: library, index, simulated=True, window=8, lock=GroupLock(tmp_path, index)
        )

    machine.made = locked
    other = dataclasses.replace(machine)  # the library of another process; in memory its locks are free
    async with VirtualWorld() as world:
        holder, refused, admitted = trial(machine, world), trial(other, world), trial(other, world)
        await holder.open()
        with pytest.raises(DeviceBusy, match=f"in use by process {os.getpid()}"):
            await refused.open()
        await refused.close()
        assert other.calls == []
        await holder.close()
        await admitted.open()
        await admitted.close()
