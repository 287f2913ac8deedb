"""A model context: the backlog of one model, its books, and its bounds."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias, final

from repertory.models.checks import is_a
from repertory.models.errors import (
    ConfigError,
    DeadlineExceeded,
    DeadlineUnreachable,
    QueueFull,
    RepertoryError,
    Superseded,
)
from repertory.models.program import Network
from repertory.transports.frame import Frame, Outcome
from repertory.transports.loop import Loop, Slot
from repertory.transports.wheel import Wheel

from .actor import Receiver
from .backlog import Backlog
from .policy import ContextState

__all__ = ["LATENCIES", "LENIENCE", "ContextOrder", "Drain", "Limits", "ModelContext", "Overflow", "Retune", "Server"]

LATENCIES = 4096
"""Answers over which latency percentiles are taken: the most recent ones."""

LENIENCE = 1e-6
"""Seconds by which an answer may be foreseen to be late, and its frame is started all the same."""

_TELLING = (Outcome.ANSWERED, Outcome.EXPIRED, Outcome.SUPERSEDED)
_KEPT_GAIN = 1 / 32


@final
class Overflow(Enum):
    """What a full queue does with one more frame."""

    REFUSE = "refuse"
    """Raise QueueFull at once."""
    WAIT = "wait"
    """Let the caller wait for a place, first come first served."""
    DROP_OLDEST = "drop_oldest"
    """Admit it and end the oldest waiting frame in Superseded: the latest frame wins."""


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a context's queue: frames that wait, not those that a device has started.

    Attributes:
        queue: frames that may wait.
        queue_bytes: bytes of their inputs.
        overflow: what a full queue does.
    """

    queue: int = 1024
    queue_bytes: int = 256 * 2**20
    overflow: Overflow = Overflow.REFUSE

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "overflow", Overflow(self.overflow))
        except ValueError:
            choices = ", ".join(choice.value for choice in Overflow)
            raise ConfigError(f"overflow {self.overflow!r} came, one of {choices} is wanted") from None
        if not is_a(self.queue, int) or not is_a(self.queue_bytes, int):
            raise ConfigError(
                f"a queue of {self.queue!r} frames, {self.queue_bytes!r} bytes is no whole number"
            )
        if min(self.queue, self.queue_bytes) < 1:
            raise ConfigError(f"a queue of {self.queue} frames, {self.queue_bytes} bytes could hold nothing")


class Server(Protocol):
    """A device group, as a context sees it."""

    def ready(self, now: float, /) -> None:
        """The backlog has ceased to be empty; the server may take from it at once."""

    def poke(self) -> None:
        """Something else changed."""

    def abandon(self, frame: Frame, /) -> None:
        """Nobody waits for this started frame any more; groups that do not run it pass it over."""


@final
@dataclass(frozen=True, slots=True)
class Retune:
    """Order: use these limits from now on. What waits already stays admitted."""

    limits: Limits


@final
@dataclass(frozen=True, slots=True)
class Drain:
    """Order: end admission with that refusal; answered when every admitted frame has an outcome."""

    refusal: Callable[[], RepertoryError]


ContextOrder: TypeAlias = Retune | Drain


@final
class ModelContext(Receiver[ContextOrder]):
    """Everything that callers and device groups share about one model: an actor with two lanes.

    Orders come by its mailbox and are served in its own task. Frames do not: callers offer them and groups
    take them synchronously, on the event loop's thread, so each step is atomic and no frame waits behind
    an order. `state.waiting` always equals the frames in the backlog.

    Attributes:
        name: the model's.
        network: the ports that frames are checked against.
        limits: bounds of the queue; may be replaced while in service.
        state: what policies see.
        admitted: frames that were accepted.
        refused: those that were not, by reason.
        outcomes: settled frames, indexed by Outcome.
        in_flight: frames that are started and not settled.
        latencies: seconds from admission to answer, the most recent ones.
        refusal: makes the error for whatever is offered, once admission has ended.
    """

    def __init__(self, name: str, network: Network, limits: Limits, *, loop: Loop, wheel: Wheel) -> None:
        self.name = name
        self.network = network
        self.limits = limits
        self.state = ContextState(name)
        self.admitted = 0
        self.refused: Counter[str] = Counter()
        self.outcomes = [0] * (len(Outcome) + 1)
        self.in_flight = 0
        self.latencies: deque[float] = deque(maxlen=LATENCIES)
        self.refusal: Callable[[], RepertoryError] | None = None
        self._loop = loop
        self._wheel = wheel
        self._backlog = Backlog()
        self.state.outline = self._backlog.outline
        self._backlog.track_arrivals(wanted=limits.overflow is Overflow.DROP_OLDEST)
        self._servers: list[Server] = []
        self._queuers: deque[Slot] = deque()
        self._idle: list[Slot] = []
        self._ended = False

    async def receive(self, message: ContextOrder) -> None:
        match message:
            case Retune(limits):
                self.limits = limits
                self._backlog.track_arrivals(wanted=limits.overflow is Overflow.DROP_OLDEST)
                self._next_queuer()
            case Drain(refusal):
                self.close(refusal, drain=True)
                await self.drained()

    # -- admission ---------------------------------------------------------------------------------

    def offer(self, frame: Frame, *, expires: float) -> None:
        """Admit a frame or raise; `expires` is when the runtime itself ends it.

        Raises:
            QueueFull: the queue is full and its overflow is not `drop_oldest`.
            DeadlineUnreachable: the deadline has passed.
            ModelClosed, RuntimeClosed, DeviceLost: admission has ended.
        """
        if self.refusal is not None:
            raise self.refused_by()
        now = self._loop.now()
        state = self.state
        state.rhythm.arrive(now, frame.deadline)
        if state.hungry_since == math.inf:
            state.hungry_since = now
        if frame.deadline <= now:
            self.refused["deadline"] += 1
            raise DeadlineUnreachable(f"{self.name}: the deadline passed {now - frame.deadline:.3g} s ago")
        nbytes = frame.nbytes
        backlog = self._backlog
        if backlog.count >= self.limits.queue or backlog.nbytes + nbytes > self.limits.queue_bytes:
            self._make_room(nbytes)
        if expires < math.inf:
            self._wheel.add(frame, expires)
        self.admitted += 1
        frame.seq = self.admitted
        frame.offered = now
        backlog.push(frame)
        state.waiting += 1
        waiting = state.waiting
        if waiting == 1:
            state.ready_since = now
        if not waiting & (waiting - 1):  # 1, 2, 4, ...: all groups look again, and that costs little a frame
            self._tell_ready(now)

    def _tell_ready(self, now: float) -> None:
        """Tell the groups; whoever takes the frame is the first to be told the next time."""
        for server in self._servers:
            server.ready(now)
            if not self.state.waiting:
                if server is not self._servers[0]:
                    self._servers.remove(server)
                    self._servers.insert(0, server)
                return

    def refused_by(self) -> RepertoryError:
        """Count a request that comes after the end of admission, and return its error."""
        assert self.refusal is not None, "admission has ended"
        self.refused["closed"] += 1
        return self.refusal()

    def full(self, nbytes: int) -> bool:
        """Whether one more frame of that many bytes would not be admitted now."""
        count, held = self._backlog.count, self._backlog.nbytes
        return count >= self.limits.queue or held + nbytes > self.limits.queue_bytes

    async def room(self, nbytes: int) -> None:
        """Wait until a frame of that many bytes would be admitted; first come, first served.

        Whoever returns offers in the same step: the next in line is woken, and looks again, only after it.
        A frame that these bounds never admit does not wait.
        """
        queuers = self._queuers
        slot = self._loop.slot()
        queuers.append(slot)
        try:
            while self.refusal is None and (queuers[0] is not slot or self._may_fit_later(nbytes)):
                await slot
                if queuers[0] is slot:
                    slot = queuers[0] = self._loop.slot()
        finally:
            queuers.remove(slot)
            self._next_queuer()

    def _may_fit_later(self, nbytes: int) -> bool:
        return self.full(nbytes) and nbytes <= self.limits.queue_bytes

    def _make_room(self, nbytes: int) -> None:
        too_large = nbytes > self.limits.queue_bytes
        if self.limits.overflow is not Overflow.DROP_OLDEST or too_large:
            self.refused["full"] += 1
            waiting, limits = self._backlog, self.limits
            raise QueueFull(
                f"{self.name}: {waiting.count} frames wait, {waiting.nbytes} bytes in all; one of {nbytes}"
                f" bytes came; the bounds are {limits.queue} and {limits.queue_bytes}"
            )
        while self.full(nbytes) and (oldest := self._backlog.oldest()) is not None:
            oldest.settle(Outcome.SUPERSEDED, error=Superseded(f"{self.name}: a newer frame took its place"))

    # -- service -----------------------------------------------------------------------------------

    def attach(self, server: Server) -> None:
        """Let a group serve this context: it is told when the backlog ceases to be empty."""
        self._servers.append(server)
        if self.state.waiting:
            server.poke()

    def detach(self, server: Server, refusal: Callable[[], RepertoryError]) -> None:
        """A group serves this context no more; where it was the last one, end what waits, and admission."""
        if server in self._servers:
            self._servers.remove(server)
        if not self._servers:
            self.close(refusal)

    def take(self, now: float, service: float = 0.0) -> Frame | None:
        """Hand the most urgent frame to a group that starts it now and needs so many seconds for it.

        What would be late costs no device time: it ends in DeadlineExceeded at once.
        """
        state = self.state
        while (frame := self._backlog.pop()) is not None:
            state.waiting -= 1
            self.in_flight += 1
            frame.started = now
            frame.attempts += 1
            if self._queuers:
                self._next_queuer()
            if now < frame.deadline >= now + service - LENIENCE:
                state.hungry_since = now if state.waiting else math.inf
                return frame
            self.expire(frame)
        return None

    def undo(self, frame: Frame) -> bool:
        """Put a frame that had no effect back in front; False where it has had its second chance."""
        if frame.outcome is not None:
            return True
        if frame.attempts > 1 or self._ended:
            return False
        self.in_flight -= 1
        frame.started = None
        self._backlog.push_back(frame)
        self.state.waiting += 1
        if self.state.waiting == 1:
            self.state.ready_since = frame.offered
        for server in self._servers:
            server.poke()
        return True

    def cancel(self, frame: Frame) -> None:
        """Its caller waits no more: it loses its place, or its device is told."""
        if frame.settle(Outcome.CANCELLED):
            self._abandon(frame)

    # -- the books ---------------------------------------------------------------------------------

    def settled(self, frame: Frame) -> None:
        """Count a frame's outcome, free its place and wake its caller."""
        outcome = frame.outcome
        assert outcome is not None, "settle sets it first"
        self.outcomes[outcome] += 1
        if outcome in _TELLING:
            self._note(kept=outcome is Outcome.ANSWERED)
        if frame.bucket is not None:
            self._wheel.discard(frame)
        if frame.started is None:
            self._backlog.forget(frame)
            self.state.waiting -= 1
            frame.inputs = ()
            if self._queuers:
                self._next_queuer()
        else:
            self.in_flight -= 1
            if outcome is Outcome.ANSWERED:
                self.latencies.append(self._loop.now() - frame.offered)
        if frame.slot is not None:
            self._loop.fill(frame.slot)
        if self._idle and not self.unsettled:
            self._wake_idle()

    def _note(self, *, kept: bool) -> None:
        """Learn how well this model is served."""
        self.state.kept += _KEPT_GAIN * (kept - self.state.kept)

    def expire(self, frame: Frame) -> None:
        """A frame's deadline has come."""
        late = DeadlineExceeded(f"{self.name}: no answer by the deadline")
        if frame.settle(Outcome.EXPIRED, error=late):
            self._abandon(frame)

    def _abandon(self, frame: Frame) -> None:
        if frame.started is not None:
            for server in self._servers:
                server.abandon(frame)

    @property
    def unsettled(self) -> int:
        """Frames that were admitted and have no outcome yet."""
        return self.state.waiting + self.in_flight

    def close(self, refusal: Callable[[], RepertoryError], *, drain: bool = False) -> None:
        """End admission, and, unless they may drain, the frames that wait."""
        if self.refusal is None:
            self.refusal = refusal
        for slot in self._queuers:
            self._loop.fill(slot)
        if not drain:
            self._ended = True
            for frame in self._backlog.frames():
                frame.settle(Outcome.FAILED, error=refusal())

    async def drained(self) -> None:
        """Wait until every admitted frame has an outcome."""
        while self.unsettled:
            slot = self._loop.slot()
            self._idle.append(slot)
            await slot

    def _wake_idle(self) -> None:
        idle, self._idle = self._idle, []
        for slot in idle:
            self._loop.fill(slot)

    def _next_queuer(self) -> None:
        if self._queuers:
            self._loop.fill(self._queuers[0])
