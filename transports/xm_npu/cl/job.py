"""Stage 7: a submitted run, and its event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from .library import EventStatus, Notify, XmediaCl
from .process import Process
from .statuses import check, misuse

__all__ = ["Job"]

_FINAL: Final = (EventStatus.FAILED, EventStatus.COMPLETED)  # a library may keep the last callback only
_CALLBACK: Final = "xmedia_cl_set_event_callback"


@final
class Job:
    """A run that was submitted; its event is released once, as soon as its end is seen.

    Args:
        library: which gave the event.
        event: of the run.
        ended: told, at the end, whether it failed.

    Attributes:
        final: whether its end was seen.
        status: as it was last seen.
    """

    def __init__(self, library: XmediaCl, event: int, ended: Callable[[bool], None]) -> None:
        self._library = library
        self._event = event
        self._ended = ended
        self._process = Process()
        self.final = False
        self.status = EventStatus.QUEUED

    async def listen(self, notify: Notify | None) -> None:
        """Let `notify` be called at the end, whichever it is, if the library can; nobody may rely on it."""
        if notify is None or _CALLBACK not in self._library.exports:
            return
        for status in _FINAL:
            await self._library.xmedia_cl_set_event_callback(self._event, status, notify)

    async def look(self) -> EventStatus:
        """Return how far it is; never waits.

        Raises:
            NpuRefusal: the library refuses to tell, or to release the event.
            DeviceLost: this is a forked child.
        """
        self._process.check()
        if self.final:
            return self.status
        state, status = await self._library.xmedia_cl_query_event_status(self._event)
        check("xmedia_cl_query_event_status", status, stage=7)
        if state not in list(EventStatus):
            raise misuse(7, "xmedia_cl_query_event_status", f"an event has the unknown status {state}")
        self.status = EventStatus(state)
        if self.status in _FINAL:
            self.final = True
            self._ended(self.status is EventStatus.FAILED)
            check(
                "xmedia_cl_release_event", await self._library.xmedia_cl_release_event(self._event), stage=7
            )
        return self.status
