"""Our own lock on a device group, taken before libmemx's.

libmemx 2.11.2 leaves its in-process mutex taken when another process made a trylock fail. Between
processes that both run this package, ours fails first and nothing is left behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

from repertory.transports.lock import FileLock

__all__ = ["GroupLock"]


@final
class GroupLock:
    """A `FileLock` of a device group.

    Args:
        folder: where the file lies; all users of the device must agree on it.
        group_id: which device group.
    """

    def __init__(self, folder: Path, group_id: int) -> None:
        path = folder / f"repertory-memx-group{group_id:02d}.lock"
        self._lock = FileLock(path, f"MX3 device group {group_id}", family="memx")

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            DeviceBusy: somebody holds it; the message names the process.
            DeviceLost: the file cannot be opened or written, or is a symbolic link.
        """
        self._lock.acquire()

    def release(self) -> None:
        """Give the lock back, if it is held."""
        self._lock.release()
