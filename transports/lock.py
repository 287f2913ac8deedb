"""An advisory lock between processes that use one device: a file, and the kernel's flock on it."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import final

from repertory.models.errors import DeviceBusy, DeviceLost

__all__ = ["FileLock"]


@final
class FileLock:
    """A lock file; the kernel releases it when its holder dies, however it dies.

    A fork shares the lock. It cannot give it back, and where the holder dies without doing so, the lock
    lives on until the fork ends too, or executes another program.

    Args:
        path: where the file lies; all users of the device must agree on it.
        what: the device, as a message begins: `MX3 device group 0`.
        family: of the errors.
    """

    def __init__(self, path: Path, what: str, *, family: str) -> None:
        self._path = path
        self._what = what
        self._family = family
        self._file: int | None = None
        self._holder = 0

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            DeviceBusy: somebody holds it; the message names the process.
            DeviceLost: the file cannot be opened or written, or is a symbolic link.
        """
        with ExitStack() as failed:
            try:
                file = self._open()
                failed.callback(os.close, file)
                self._take(file)
            except OSError as error:
                reason = "is a symbolic link" if error.errno == errno.ELOOP else error.strerror
                raise DeviceLost(f"{self._path}: {reason}; set lock_dir=", family=self._family) from error
            failed.pop_all()
        self._file, self._holder = file, os.getpid()

    def _take(self, file: int) -> None:
        """Lock an open file and write our name into it."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 20, 0).decode(errors="replace").strip() or "unknown"
            raise DeviceBusy(
                f"{self._what} is in use by process {holder} ({self._path})", family=self._family
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)

    def _open(self) -> int:
        """Open the file, made where it is not there.

        In a sticky folder the kernel refuses O_CREAT on another user's file, so that comes second; and all
        users of the device may take the lock, whatever the umask of the first one was. A link is not
        followed: in a folder that all can write to it may lead to any file.
        """
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self._path, flags)
        except FileNotFoundError:
            file = os.open(self._path, flags | os.O_CREAT, 0o666)
            with suppress(PermissionError):  # another user was quicker to make it
                os.fchmod(file, 0o666)
            return file

    def release(self) -> None:
        """Give the lock back, if it is held."""
        if self._file is None:
            return
        if self._holder == os.getpid():
            fcntl.flock(self._file, fcntl.LOCK_UN)  # closing alone leaves it to forks that have the file open
        os.close(self._file)
        self._file = None
