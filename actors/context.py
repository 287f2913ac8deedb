"""A model context: the backlog of one model, its books, and its bounds."""

from __future__ import annotations

import math
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, final

from repertory.models.errors import (
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
from .admission import LENIENCE, Admission
from .backlog import Backlog
from .intake import Intake
from .limits import LimitChanges, Limits, Overflow
from .places import Places
from .policy import ContextState
from .servers import Server, Servers
from .verdicts import Verdicts

__all__ = [
    "LATENCIES",
    "LENIENCE",
    "ContextOrder",
    "Drain",
    "Limits",
    "ModelContext",
    "Overflow",
    "Retune",
]

LATENCIES = 4096
"""Answers over which latency percentiles are taken: the most recent ones."""

_TELLING = (Outcome.ANSWERED, Outcome.EXPIRED, Outcome.SUPERSEDED, Outcome.WITHDRAWN)
_KEPT_GAIN = 1 / 32


@final
@dataclass(frozen=True, slots=True)
class Retune:
    """Order: use these limits from now on, or the present ones, with these changes.

    What waits already stays admitted, and what is started goes on.
    """

    limits: Limits | None = None
    changes: LimitChanges = field(default_factory=LimitChanges)


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
        limits: what it may take, and what it is due; replaced by `Retune`.
        state: what policies see.
        admitted: frames that were accepted.
        refused: those that were not, by reason.
        longest_wait: seconds that it was hungry for (see `ContextState.hungry_since`) when it got a turn.
        outcomes: settled frames, indexed by Outcome.
        in_flight: frames that are started and not settled.
        latencies: seconds from admission to answer, the most recent ones.
        refusal: makes the error for whatever is offered, once admission has ended.
        places: in its queue.

    Args:
        intake: what waits in all models together; None where nothing bounds that.
    """

    def __init__(
        self,
        name: str,
        network: Network,
        limits: Limits,
        *,
        loop: Loop,
        wheel: Wheel,
        intake: Intake | None = None,
    ) -> None:
        self.name = name
        self.network = network
        self.state = ContextState(name)
        self.longest_wait = 0.0
        self.admitted = 0
        self.refused: Counter[str] = Counter()
        self.outcomes = [0] * (len(Outcome) + 1)
        self.in_flight = 0
        self.latencies: deque[float] = deque(maxlen=LATENCIES)
        self.refusal: Callable[[], RepertoryError] | None = None
        self._loop = loop
        self._wheel = wheel
        self._intake = intake
        self._backlog = Backlog(intake)
        self.state.outline = self._backlog.outline
        self.state.glance = self._backlog.glance
        self.state.arrivals = self._backlog.arrivals
        self.places = Places(name, self._backlog, intake, loop, limits)
        self._use(limits)
        self._servers = Servers(self.state, self._backlog, wheel, loop)
        self._verdicts = Verdicts(name, self._backlog, Admission(self._servers.homes))
        self._idle: list[Slot] = []
        self._ended = False

    async def receive(self, message: ContextOrder) -> None:
        match message:
            case Retune(limits, changes):
                self._use((limits or self.limits).changed(changes))
                self.places.move_up()
                self.look_again()
            case Drain(refusal):
                self.close(refusal, drain=True)
                await self.drained()

    def _use(self, limits: Limits) -> None:
        """Go by these limits from now on.

        Raises:
            ConfigError: the queue could not hold one request; nothing has changed.
        """
        limits.check_request(self.name, self.network.inputs)
        if self._intake is not None:
            self._intake.check_request(self.name, self.network.inputs)
        self.limits = self.places.limits = limits
        state = self.state
        state.priority, state.weight, state.max_wait = limits.priority, limits.weight, limits.max_wait
        state.max_in_flight = sys.maxsize if limits.max_in_flight is None else limits.max_in_flight
        self._backlog.track_arrivals(wanted=limits.overflow is Overflow.DROP_OLDEST)

    def look_again(self) -> None:
        """Something changed that groups do not see: they ask their policy again."""
        self._servers.poke()

    # -- admission ---------------------------------------------------------------------------------

    def offer(self, frame: Frame, *, expires: float) -> None:
        """Admit a frame or raise; `expires` is when the runtime itself ends it.

        Raises:
            QueueFull: the queue is full and its overflow is not `drop_oldest`, or what waits in all models
                together is too much and this one's frames do not make enough room.
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
        if expires < math.inf:
            told = self._verdicts.at_offer(frame, expires - now, now)
            if told is not None:
                self.refused["deadline"] += 1
                self._note(kept=False)
                raise DeadlineUnreachable(told)
        nbytes = frame.nbytes
        backlog, limits, intake = self._backlog, self.limits, self._intake
        if (
            backlog.count >= limits.queue
            or backlog.nbytes + nbytes > limits.queue_bytes
            or (intake is not None and intake.full(nbytes))
        ):
            self._make_room(nbytes)
        frame.expires = expires
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
            self._servers.ready(now)

    def review(self, now: float) -> None:
        """A group is committed to another model: end what waits here and cannot be met any more.

        Those stay whose caller ends them himself, by his scope's deadline.
        """
        for frame, told in self._verdicts.in_queue(now):
            frame.settle(Outcome.WITHDRAWN, error=DeadlineUnreachable(told))

    def refused_by(self) -> RepertoryError:
        """Count a request that comes after the end of admission, and return its error."""
        assert self.refusal is not None, "admission has ended"
        self.refused["closed"] += 1
        return self.refusal()

    def _make_room(self, nbytes: int) -> None:
        """Drop the oldest of this model's own frames, none of another's, or refuse and drop none."""
        if self.limits.overflow is not Overflow.DROP_OLDEST or self.places.full_without_own(nbytes):
            self.refused["full"] += 1
            raise QueueFull(self.places.told(nbytes))
        while self.places.full(nbytes) and (oldest := self._backlog.oldest()) is not None:
            oldest.settle(Outcome.SUPERSEDED, error=Superseded(f"{self.name}: a newer frame took its place"))

    # -- service -----------------------------------------------------------------------------------

    def attach(self, server: Server) -> None:
        """Let a group serve this context: it is told when the backlog ceases to be empty."""
        self._servers.add(server)

    def detach(self, server: Server, refusal: Callable[[], RepertoryError]) -> None:
        """A group serves this context no more; where it was the last one, end what waits, and admission."""
        self._servers.remove(server)
        if not self._servers:
            self.close(refusal)
        elif self.state.waiting:
            self.look_again()  # the others may have relied on it

    def take(self, now: float, service: float = 0.0) -> Frame | None:
        """Hand the most urgent frame to a group that starts it now and needs so many seconds for it.

        What would be late costs no device time: it ends at once.
        """
        state = self.state
        while (frame := self._backlog.pop()) is not None:
            state.waiting -= 1
            self.in_flight += 1
            frame.started = now
            frame.attempts += 1
            if self.places:
                self.places.move_up()
            if state.watchers and not state.waiting:
                self._tell_empty(now)
            if now < frame.deadline >= now + service - LENIENCE:
                if now - state.hungry_since > self.longest_wait:  # noqa: PLR1730  (max() costs a call a frame)
                    self.longest_wait = now - state.hungry_since
                state.hungry_since = now if state.waiting else math.inf
                return frame
            if now < frame.deadline == frame.expires:
                told = self._verdicts.late(frame, service, now)
                frame.settle(Outcome.WITHDRAWN, error=DeadlineUnreachable(told))
            else:
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
        self.look_again()
        return True

    def landed(self) -> None:
        """A device has completed a frame, whatever became of it: another may fly in its place, anywhere."""
        state = self.state
        state.flying -= 1
        if state.flying + 1 >= state.max_in_flight and state.waiting:
            self.look_again()

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
            if self.state.watchers and not self.state.waiting:
                self._tell_empty(self._loop.now())
            if self.places:
                self.places.move_up()
        else:
            self.in_flight -= 1
            if outcome is Outcome.ANSWERED:
                self.latencies.append(self._loop.now() - frame.offered)
        if frame.slot is not None:
            self._loop.fill(frame.slot)
        if self._idle and not self.unsettled:
            self._wake_idle()

    def _tell_empty(self, now: float) -> None:
        """Nothing waits any more."""
        watchers, self.state.watchers = self.state.watchers, {}
        for told in watchers:
            told(now)

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
            self._servers.abandon(frame)

    @property
    def unsettled(self) -> int:
        """Frames that were admitted and have no outcome yet."""
        return self.state.waiting + self.in_flight

    def close(self, refusal: Callable[[], RepertoryError], *, drain: bool = False) -> None:
        """End admission, and, unless they may drain, the frames that wait."""
        if self.refusal is None:
            self.refusal = refusal
        self.places.close()
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
