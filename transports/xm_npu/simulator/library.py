"""The simulated library: libxmedia_common, _npu and _cl of one process."""

from __future__ import annotations

import threading
from typing import final

from repertory.transports.xm_npu.cl.library import EventStatus, Notify
from repertory.transports.xm_npu.errors import ClStatus

from .graph_calls import GraphCalls

__all__ = ["SimulatedXmediaCl"]


@final
class SimulatedXmediaCl(GraphCalls):
    """Behaves as the state table of the library has it; what it would do to a careless caller it notes.

    Addresses that it returns are those of this very process. An event lives until it is released; its graph
    keeps a hold of its own of the one submitted last.
    """

    @property
    def events(self) -> int:
        """How many events nobody has released."""
        return len(self._process.events)

    @property
    def held(self) -> list[str]:
        """What is not given back, in words."""
        process = self._process
        counts = {
            "uses of the library": process.uses,
            "uses of the context": process.context_refs,
            "graphs": len(process.graphs),
            "events": len(process.events),
            "shared models": len(process.shared),
            "open system modules": int(process.system),
            "queues": int(process.queue),
        }
        return [f"{count} {what}" for what, count in counts.items() if count]

    def die(self) -> None:
        """End the process, as a kill does: the kernel takes back what it had."""
        self._machine.call(lambda _now: self._process.die())

    # -- events ------------------------------------------------------------------------------------

    async def xmedia_cl_wait_for_events(self, events: list[int] | None) -> int:
        self.require("xmedia_cl_wait_for_events")
        if not events:
            return ClStatus.INVALID_VALUE
        found = [self._event(handle) for handle in events]
        known = [event for event in found if event is not None]
        if len(known) < len(found):
            return ClStatus.INVALID_EVENT_WAIT_LIST
        await self._wait(lambda _now: all(event.final for event in known))
        completed = all(event.status is EventStatus.COMPLETED for event in known)
        return ClStatus.SUCCESS if completed else ClStatus.WAIT_EVENT_FAILED

    async def xmedia_cl_query_event_status(self, event: int) -> tuple[int, int]:
        if (found := self._event(event)) is None:
            return 0, ClStatus.INVALID_EVENT
        return self._call(lambda _now: int(found.status)), ClStatus.SUCCESS

    async def xmedia_cl_set_event_callback(self, event: int, status: int, notify: Notify | None) -> int:
        self.require("xmedia_cl_set_event_callback")
        if (found := self._event(event)) is None:
            return ClStatus.INVALID_EVENT
        if notify is None or status not in {EventStatus.COMPLETED, EventStatus.FAILED}:
            return ClStatus.INVALID_VALUE

        def store(_now: float) -> bool:
            if not found.final:
                found.callbacks[status] = notify
            return found.status == status

        if self._call(store):
            self._notify(event, status, notify)
        return ClStatus.SUCCESS

    async def xmedia_cl_release_event(self, event: int) -> int:
        if (found := self._event(event)) is None:
            return ClStatus.INVALID_EVENT
        found.refs -= 1
        if not found.final:
            self._note(f"event {event:#x} is released before it is final")
        if not found.refs:
            del self._process.events[event]
        return ClStatus.SUCCESS

    def _notify(self, event: int, status: int, notify: Notify) -> None:
        """Call back at once, while the event is locked."""
        thread = threading.get_ident()
        self._locked[thread] = event
        try:
            notify(event, status)
        finally:
            del self._locked[thread]
