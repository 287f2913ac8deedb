"""The simulated library: libxmedia_common, _npu and _cl of one process."""

from __future__ import annotations

from typing import final

from .event_calls import EventCalls

__all__ = ["SimulatedXmediaCl"]


@final
class SimulatedXmediaCl(EventCalls):
    """Behaves as the state table of the library has it; what it would do to a careless caller it notes.

    Addresses that it returns are those of this very process.
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
