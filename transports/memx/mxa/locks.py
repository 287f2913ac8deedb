"""The vendor's advisory locks as a script's threads use them: waits that end, and no mutex left behind."""

from __future__ import annotations

import threading
from typing import Final, final

from repertory.transports.memx.constants import Status
from repertory.transports.memx.library import Libmemx
from repertory.transports.world import drive

__all__ = ["POLL", "AdvisoryLocks"]

POLL: Final = 0.05
"""Seconds between two looks at a lock that another process holds."""

_LEAKS: Final = frozenset({Status.GROUP_IN_USE, Status.LOCK_FILE_UNUSABLE})


@final
class AdvisoryLocks:
    """The locks of one process, from any thread.

    libmemx 2.11.2 keeps an in-process mutex when a trylock fails because of another process, so each such
    failure is followed by an unlock. That unlock would free a lock which a thread of this process holds:
    who holds one here is known here, and libmemx is not asked.
    """

    def __init__(self, library: Libmemx) -> None:
        self._library = library
        self._changed = threading.Condition()
        self._held: set[int] = set()

    def lock(self, group_id: int) -> int:
        """Take the lock, waiting without a bound; a Ctrl-C ends the wait. Twice in one thread is for ever."""
        with self._changed:
            while (status := self._try(group_id)) == Status.GROUP_IN_USE:
                self._changed.wait(POLL)
            return status

    def trylock(self, group_id: int) -> int:
        """Take the lock, or return GROUP_IN_USE at once."""
        with self._changed:
            return self._try(group_id)

    def unlock(self, group_id: int) -> int:
        """Release the lock, whichever thread took it; OK too where nobody holds it."""
        with self._changed:
            status = drive(self._library.memx_unlock(group_id))
            self._held.discard(group_id)
            self._changed.notify_all()
            return status

    def _try(self, group_id: int) -> int:
        if group_id in self._held:
            return Status.GROUP_IN_USE
        status = drive(self._library.memx_trylock(group_id))
        if status == Status.OK:
            self._held.add(group_id)
        elif status in _LEAKS:
            drive(self._library.memx_unlock(group_id))
        return status
