"""Processes that contend for the lock of a device group, each on orders of its own.

This script is their parent. It loads the library once, and forks one for each line

    REQUESTS ANSWERS FOLDER PROFILE KIND

on its standard input. The first two are named pipes. KIND is `library` (the simulated libmemx) or `group`
(our own GroupLock). Orders, one a line: `lock`, `trylock`, `unlock`, `enter`, `leave`, `rounds COUNT SEED`.
Each is answered by a line. To enter is to make a file that is not there: it proves who has the lock.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from repertory.models.errors import DeviceBusy
from repertory.transports.memx.constants import Status
from repertory.transports.memx.lock import GroupLock
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.real import RealWorld
from repertory.transports.world import drive


class ByLibrary:
    """The simulated libmemx; a trylock that fails is followed by an unlock, as its users must."""

    def __init__(self, folder: Path, profile: str) -> None:
        mx3 = SimulatedMx3(profile=profile, lock_dir=str(folder))  # type: ignore[arg-type]
        self._library = SimulatedLibmemx(RealWorld(), mx3)

    def lock(self) -> bool:
        return drive(self._library.memx_lock(0)) == Status.OK

    def trylock(self) -> bool:
        if drive(self._library.memx_trylock(0)) == Status.OK:
            return True
        self.unlock()
        return False

    def unlock(self) -> bool:
        return drive(self._library.memx_unlock(0)) == Status.OK


class ByGroupLock:
    """Our own lock, with the library's under it, as a device takes them."""

    def __init__(self, folder: Path, profile: str) -> None:
        self._lock = GroupLock(folder, 0)
        self._library = ByLibrary(folder, profile)

    def lock(self) -> bool:
        while not self.trylock():
            time.sleep(0.0002)
        return True

    def trylock(self) -> bool:
        try:
            self._lock.acquire()
        except DeviceBusy:
            return False
        assert self._library.trylock(), "whoever has our lock finds the library's free"
        return True

    def unlock(self) -> bool:
        self._library.unlock()
        self._lock.release()
        return True


class Inside:
    """The file that only one may make."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "inside"

    def enter(self) -> bool:
        os.close(os.open(self._path, os.O_CREAT | os.O_EXCL))
        return True

    def leave(self) -> bool:
        self._path.unlink()
        return True


def rounds(lock: ByLibrary | ByGroupLock, inside: Inside, count: int, seed: int) -> int:
    """Take the lock `count` times, in either way; return how often a trylock failed on the way."""
    draw, busy = random.Random(seed), 0
    for _ in range(count):
        if draw.random() < 0.5:
            lock.lock()
        else:
            while not lock.trylock():
                busy += 1
                time.sleep(0.0001)
        inside.enter()
        if draw.random() < 0.2:
            time.sleep(0.0002)
        inside.leave()
        lock.unlock()
    return busy


def contend(requests: Path, answers: Path, folder: Path, profile: str, kind: str) -> None:
    """Do what is ordered, until nobody orders any more."""
    with requests.open() as orders, answers.open("w", buffering=1) as done:
        lock = ByLibrary(folder, profile) if kind == "library" else ByGroupLock(folder, profile)
        inside = Inside(folder)
        deeds: dict[str, Callable[[], bool]] = {
            "lock": lock.lock,
            "trylock": lock.trylock,
            "unlock": lock.unlock,
            "enter": inside.enter,
            "leave": inside.leave,
        }
        done.write(f"{os.getpid()}\n")
        for line in orders:
            order, *numbers = line.split()
            result = rounds(lock, inside, *map(int, numbers)) if order == "rounds" else deeds[order]()
            done.write(f"{int(result)}\n")


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    while line := sys.stdin.readline():
        requests, answers, folder, profile, kind = line.split()
        if not os.fork():
            contend(Path(requests), Path(answers), Path(folder), profile, kind)
            os._exit(0)


if __name__ == "__main__":
    main()
