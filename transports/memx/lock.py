"""Our own lock on a device group, taken before libmemx's.

libmemx 2.11.2 leaves its in-process mutex taken when another process made a trylock fail. Between
processes that both run this package, ours fails first and nothing is left behind.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import final

from repertory.models.errors import DeviceBusy, DeviceLost

__all__ = ["GroupLock"]


@final
class GroupLock:
    """A lock file; the kernel releases it when its holder dies, however it dies.

    Args:
        folder: where the file lies; all users of the device must agree on it.
        group_id: which device group.
    """

    def __init__(self, folder: Path, group_id: int) -> None:
        self._path = folder / f"repertory-memx-group{group_id:02d}.lock"
        self._group = group_id
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            DeviceBusy: somebody holds it; the message names the process.
            DeviceLost: the file cannot be opened.
        """
        try:
            file = self._open()
        except OSError as error:
            raise DeviceLost(f"{self._path}: {error.strerror}; set lock_dir=", family="memx") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise DeviceBusy(
                f"MX3 device group {self._group} is in use by process {holder} ({self._path})", family="memx"
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def _open(self) -> int:
        """Open the file, made where it is not there.

        In a sticky folder the kernel refuses O_CREAT on another user's file, so that comes second; and all
        users of the card may take the lock, whatever the umask of the first one was.
        """
        try:
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.fchmod(file, 0o666)
            return file

    def release(self) -> None:
        """Give the lock back, if it is held."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
