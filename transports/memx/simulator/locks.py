"""The advisory locks of the simulated library: a mutex a group, and a lock file that other processes see."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import final

from repertory.transports.memx.constants import Status

from .parameters import SimulatedMx3
from .profile import Trap
from .rules import StatusError

__all__ = ["GroupLocks", "LockFile"]


@final
class LockFile:
    """A POSIX record lock: the kernel gives it back when its process dies.

    It keeps processes apart and nothing else: within one it is always free, and closing any descriptor of
    the file gives it back. So one library of a process uses a folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> bool:
        """Take the lock, unless another process holds it.

        Raises:
            OSError: the file cannot be opened.
        """
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # POSIX leaves open which of the two
            return False
        return True

    def release(self) -> None:
        """Give the lock back, if this process holds it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


@final
class GroupLocks:
    """What `memx_lock`, `memx_trylock` and `memx_unlock` stand on; in the steps that a waiting call takes.

    The mutex is not recursive, and knows no owner: whoever unlocks frees it.
    """

    def __init__(self, mx3: SimulatedMx3) -> None:
        self._leaky = Trap.LEAKED_MUTEX in mx3.traps
        self._taken = [False] * mx3.groups
        self._files: list[LockFile | None] = [None] * mx3.groups
        if mx3.lock_dir is not None:
            folder = Path(mx3.lock_dir)
            self._files = [LockFile(folder / f"memx_group{index:02d}_lock") for index in range(mx3.groups)]

    def take_mutex(self, group_id: int) -> bool:
        """Take the mutex; False where it is taken."""
        self._check(group_id)
        if self._taken[group_id]:
            return False
        self._taken[group_id] = True
        return True

    def take_file(self, group_id: int) -> bool:
        """Take the lock file, having the mutex; False where another process holds it."""
        file = self._files[group_id]
        try:
            return file is None or file.acquire()
        except OSError as error:
            self.give_up(group_id)
            raise StatusError(Status.LOCK_FILE_UNUSABLE) from error

    def trylock(self, group_id: int) -> None:
        """Take both at once, or neither; see `Trap.LEAKED_MUTEX`."""
        if not self.take_mutex(group_id):
            raise StatusError(Status.GROUP_IN_USE)
        if not self.take_file(group_id):
            self.give_up(group_id)
            raise StatusError(Status.GROUP_IN_USE)

    def give_up(self, group_id: int) -> None:
        """Fail with the mutex taken and not the file."""
        if (file := self._files[group_id]) is not None:
            file.release()
        self._taken[group_id] = self._leaky

    def leak(self, group_id: int) -> None:
        """Leave the mutex taken by nobody, as a failure in the trap does."""
        self._check(group_id)
        self._taken[group_id] = True

    def unlock(self, group_id: int) -> None:
        """Free the mutex, held by whomever, and the file if this process holds it."""
        self._check(group_id)
        if (file := self._files[group_id]) is not None:
            file.release()
        self._taken[group_id] = False

    def _check(self, group_id: int) -> None:
        if not 0 <= group_id < len(self._taken):
            raise StatusError(Status.BAD_GROUP_ID)
