"""What groups do, as it is remembered: sums, the last decisions, events, and spans for pictures."""

from __future__ import annotations

import logging
import weakref
from collections import deque
from typing import Self, TypeAlias, final

import anyio

from repertory.actors.group import DeviceGroup
from repertory.actors.observer import GroupObserver
from repertory.actors.policy import Bind, Decision, Grant
from repertory.models.program import Program
from repertory.transports.device import Completion
from repertory.transports.loop import Loop

from .statistics import Decided, Event
from .timeline import Span

__all__ = ["DECISIONS", "EVENTS", "Events", "Telemetry"]

DECISIONS = 256
"""Decisions that `explain` tells of: the last ones."""

EVENTS = 1024
"""Events that a subscriber may fall behind; older ones are dropped and counted."""

_log = logging.getLogger("repertory.runtime")


_Told: TypeAlias = tuple[float, tuple[str, str, str, int, str, tuple[object, ...]]]


@final
class Events:
    """A subscription: an async iterator over events from its making on; ends when the runtime closes.

    Attributes:
        dropped: events that were lost because nobody took them in time.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._events: deque[Event] = deque()
        self._closed = False
        self._arrival = anyio.Event()

    def put(self, event: Event) -> None:
        """Add an event; the oldest one makes room."""
        if len(self._events) >= EVENTS:
            self._events.popleft()
            self.dropped += 1
        self._events.append(event)
        self._arrival.set()

    def close(self) -> None:
        """End the iteration after what is there."""
        self._closed = True
        self._arrival.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        await anyio.lowlevel.checkpoint()
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._arrival = anyio.Event()
            await self._arrival.wait()
        return self._events.popleft()


@final
class Telemetry(GroupObserver):
    """Observes every group of a runtime.

    Attributes:
        incarnations: how often each group's device was opened.
        resident_since: when each program became resident, by group and by the programs' keys; those that
            are gone may be among them until the next swap.
        spans: what each group did, the last ones.

    Args:
        loop: for the clock.
        spans: how many spans to keep for a timeline; 0 keeps none.
    """

    def __init__(self, loop: Loop, *, spans: int = 0) -> None:
        self.resident_since: dict[str, dict[str, float]] = {}
        self.incarnations: dict[str, int] = {}
        self.spans: dict[str, deque[Span]] = {}
        self._keep = spans
        self.wants_frames = spans > 0
        self._closed = False
        self._loop = loop
        self._decisions: deque[_Told] = deque(maxlen=DECISIONS)
        self._subscribers: weakref.WeakSet[Events] = weakref.WeakSet()

    def subscribe(self) -> Events:
        """Return a new subscription; it lasts while somebody holds it."""
        events = Events()
        self._subscribers.add(events)
        if self._closed:
            events.close()
        return events

    def close(self) -> None:
        """End every subscription, and those to come."""
        self._closed = True
        for events in list(self._subscribers):
            events.close()

    def emit(self, kind: str, *, group: str = "", model: str = "", detail: str = "") -> None:
        """Tell every subscriber."""
        event = Event(kind, self._loop.now(), group, model, detail)
        for events in list(self._subscribers):
            events.put(event)

    def explain(self) -> list[Decided]:
        """Return the last decisions, oldest first."""
        return [
            Decided(time, group, kind, model, frames, reason.format(*figures) if figures else reason)
            for time, (group, kind, model, frames, reason, figures) in self._decisions
        ]

    def decided(self, group: DeviceGroup, decision: Decision, now: float) -> None:
        told = _told(group.name, decision)
        if told[1] == "bind" and self._decisions and self._decisions[-1][1][:3] == told[:3]:
            return  # asked again after the drain, or by the group's own task: the same decision
        self._decisions.append((now, told))

    def swapped(self, group: DeviceGroup, program: Program, began: float, ended: float) -> None:
        name = group.name
        before, there = self.resident_since.get(name, {}), group.state.residents
        self.resident_since[name] = {key: since for key, since in before.items() if key in there}
        self.resident_since[name][program.key] = ended
        self._keep_span(name, Span("swap", program.name, began, ended))
        self.emit("swapped", group=name, model=program.name, detail=f"{ended - began:.6f}")

    def evicted(self, group: DeviceGroup, program: Program, why: str) -> None:
        self.emit("evicted", group=group.name, model=program.name, detail=f"{program.footprint} bytes, {why}")

    def finished(self, group: DeviceGroup, completion: Completion, now: float) -> None:
        frame, name = completion.frame, group.name
        model = frame.network.name
        if frame.started is not None:
            moved = frame.started + completion.transfer
            self._keep_span(name, Span("transfer", model, frame.started, moved))
        self._keep_span(name, Span("compute", model, now - completion.busy, now))

    def opened(self, group: DeviceGroup) -> None:
        capabilities = group.device.capabilities
        self.incarnations[group.name] = self.incarnations.get(group.name, 0) + 1
        what = "simulated device" if capabilities.simulated else "device"
        _log.info("%s: %s of family %s is in service", group.name, what, capabilities.family)
        self.emit("opened", group=group.name)

    def failed(self, group: DeviceGroup, error: BaseException) -> None:
        _log.warning("%s: out of service: %s", group.name, error)
        self.emit("failed", group=group.name, detail=str(error))

    def _keep_span(self, group: str, span: Span) -> None:
        if self._keep and span.end > span.start:
            self.spans.setdefault(group, deque(maxlen=self._keep)).append(span)


def _told(group: str, decision: Decision) -> tuple[str, str, str, int, str, tuple[object, ...]]:
    """Put a decision into words at once: it holds programs, and they whole files, which may be unloaded."""
    if isinstance(decision, Grant):
        name = decision.entry.context.name
        return group, "grant", name, decision.frames, decision.reason, decision.figures
    if isinstance(decision, Bind):
        name = decision.entry.context.name
        return group, "bind", name, 0, decision.reason, decision.figures
    return group, "wait", "", 0, decision.reason, decision.figures
