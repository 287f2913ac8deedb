"""Frames on their way between callers and flows: who waits here, and who computes the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar, final

from .lane import Inference
from .polls import POLL, Polls
from .rules import SimulatorFault

if TYPE_CHECKING:
    from repertory.transports.memx.library import FmapBuffer
    from repertory.transports.world import Condition

    from .flow import Flow

__all__ = ["Ferry"]

T = TypeVar("T")


@final
class Ferry:
    """Takes frames across, waiting as the library does.

    A caller's wait is the condition's own, with no coroutine between: each would cost at every wake-up.

    Twins compute in the caller that reads the output, while nothing is held.

    Args:
        condition: guards the state of all flows.
        now: the world's clock.
        patience: how much longer than asked a time-out takes; 1 is exact, with no polls.
    """

    def __init__(self, condition: Condition, now: Callable[[], float], patience: float) -> None:
        self._condition = condition
        self._now = now
        self._patience = patience

    def push(self, flow: Flow, frame: bytes, timeout_ms: int) -> Awaitable[bool | None]:
        """Put a frame into an input queue; false where it stayed full."""
        return self._wait(lambda: self._pushed(flow, frame), flow, self._seconds(timeout_ms))

    def take(self, flow: Flow, timeout_ms: int) -> Awaitable[bytes | None]:
        """Take the oldest frame of an output queue; None where none came."""
        return self._take(flow, timeout_ms, lambda: self._taken(flow))

    def lend_empty(self, flow: Flow, timeout_ms: int) -> Awaitable[FmapBuffer | None]:
        """Lend a buffer of an input queue; None where none became free."""
        return self._wait(lambda: flow.lend_empty(self._now()), flow, self._seconds(timeout_ms))

    def lend_full(self, flow: Flow, timeout_ms: int) -> Awaitable[FmapBuffer | None]:
        """Lend a buffer with the oldest frame of an output queue; None where none came."""
        return self._take(flow, timeout_ms, lambda: self._lent(flow))

    def _seconds(self, timeout_ms: int) -> float | None:
        return timeout_ms / 1e3 * self._patience or None

    def _wait(self, ready: Callable[[], T | None], flow: Flow, seconds: float | None) -> Awaitable[T | None]:
        if self._patience == 1:
            return self._condition.wait(ready, timeout=seconds, next_event=flow.next_event)
        polls = Polls(self._now, POLL * self._patience)
        return self._condition.wait(
            polls.gate(ready), timeout=seconds, next_event=polls.delay(flow.next_event)
        )

    async def _take(self, flow: Flow, timeout_ms: int, ready: Callable[[], T | Inference | None]) -> T | None:
        """Wait for `ready`, and compute whatever frames it finds without an answer."""
        begin, seconds = self._now(), self._seconds(timeout_ms)
        rest = seconds
        while True:
            found: T | Inference | None = await self._wait(ready, flow, rest)
            if not isinstance(found, Inference):
                return found
            self._compute(found)
            if seconds is not None:
                rest = max(begin + seconds - self._now(), 0.0)

    def _pushed(self, flow: Flow, frame: bytes) -> bool:
        pushed = flow.push(frame, self._now())
        if pushed:
            self._condition.notify()
        return pushed

    def _taken(self, flow: Flow) -> bytes | Inference | None:
        frame = flow.take(self._now())
        if frame is None or frame.outputs is None:
            return frame
        self._condition.notify()
        return frame.outputs[flow.port.number]

    def _lent(self, flow: Flow) -> FmapBuffer | Inference | None:
        found = self._taken(flow) if flow.buffers.any else None
        return flow.lend_full(found) if isinstance(found, bytes) else found

    def _compute(self, frame: Inference) -> None:
        """Outside the condition: the frame was claimed, so nobody else computes it."""
        outputs, failure = None, None
        try:
            outputs = frame.network.answer(frame.inputs)
        except Exception as error:  # noqa: BLE001  (every reader of the frame is told)
            failure = SimulatorFault(f"the answer of network {frame.network.name} failed: {error!r}")
        with self._condition:
            frame.outputs, frame.failure = outputs, failure
            self._condition.notify()
