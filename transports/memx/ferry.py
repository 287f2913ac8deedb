"""Frames on their way between callers and flows: who waits here, and who computes the answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, final

from .lane import Inference
from .polls import POLL, Polls
from .rules import SimulatorFault

if TYPE_CHECKING:
    from repertory.transports.world import Condition

    from .flow import Flow
    from .library import FmapBuffer

__all__ = ["Ferry"]

T = TypeVar("T")


@final
class Ferry:
    """Takes frames across, waiting as the library does.

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

    async def push(self, flow: Flow, frame: bytes, timeout_ms: int) -> bool:
        """Put a frame into an input queue; False where it stayed full."""
        return bool(await self._wait(lambda: self._pushed(flow, frame), flow, self._deadline(timeout_ms)))

    async def take(self, flow: Flow, timeout_ms: int) -> bytes | None:
        """Take the oldest frame of an output queue; None where none came."""
        return await self._take(flow, self._deadline(timeout_ms), lambda frame: frame)

    async def lend_empty(self, flow: Flow, timeout_ms: int) -> FmapBuffer | None:
        """Lend a buffer of an input queue; None where none became free."""
        return await self._wait(lambda: flow.lend_empty(self._now()), flow, self._deadline(timeout_ms))

    async def lend_full(self, flow: Flow, timeout_ms: int) -> FmapBuffer | None:
        """Lend a buffer with the oldest frame of an output queue; None where none came."""
        return await self._take(flow, self._deadline(timeout_ms), flow.lend_full, room=True)

    def _deadline(self, timeout_ms: int) -> float:
        return self._now() + timeout_ms / 1e3 * self._patience if timeout_ms else math.inf

    async def _wait(self, ready: Callable[[], T | None], flow: Flow, deadline: float) -> T | None:
        timeout = None if deadline == math.inf else max(deadline - self._now(), 0.0)
        if self._patience == 1:
            return await self._condition.wait(ready, timeout=timeout, next_event=flow.next_event)
        polls = Polls(self._now, POLL * self._patience)
        return await self._condition.wait(
            polls.gate(ready), timeout=timeout, next_event=polls.delay(flow.next_event)
        )

    async def _take(
        self, flow: Flow, deadline: float, land: Callable[[bytes], T], *, room: bool = False
    ) -> T | None:
        """Let `land` have the oldest frame, once there is one; with `room`, a free buffer too."""

        def ready() -> T | Inference | None:
            return None if room and not flow.buffers.any else self._taken(flow, land)

        while True:
            found: T | Inference | None = await self._wait(ready, flow, deadline)
            if not isinstance(found, Inference):
                return found
            self._compute(found)

    def _pushed(self, flow: Flow, frame: bytes) -> bool:
        pushed = flow.push(frame, self._now())
        if pushed:
            self._condition.notify()
        return pushed

    def _taken(self, flow: Flow, land: Callable[[bytes], T]) -> T | Inference | None:
        frame = flow.take(self._now())
        if frame is None or frame.outputs is None:
            return frame
        landed = land(frame.outputs[flow.port.number])
        self._condition.notify()
        return landed

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
