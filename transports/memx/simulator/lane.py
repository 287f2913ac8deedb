"""One network on the chips: its queues and its pipeline, moved by a clock that it is given."""

from __future__ import annotations

import math
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, final

from .ring import Ring

if TYPE_CHECKING:
    from .chips import Chips
    from .image import ChipNetwork

__all__ = ["Activity", "Inference", "Lane"]


class Activity(Enum):
    """What a context's transfers do."""

    PAUSED = auto()
    """Nothing moves between queues and chips."""
    DRAINING = auto()
    """Frames leave the chips, none enters."""
    RUNNING = auto()


@final
class Inference:
    """One set of inputs on its way through the chips.

    Attributes:
        network: what computes it.
        inputs: the frames, in the order of the network's input ports.
        done: when its outputs are ready.
        claimed: whether somebody computes or has computed its answer.
        outputs: frame by output flow, once computed.
        failure: why there is none, where computing failed.
    """

    __slots__ = ("claimed", "done", "failure", "inputs", "network", "outputs")

    def __init__(self, network: ChipNetwork, inputs: tuple[bytes, ...], done: float) -> None:
        self.network = network
        self.inputs = inputs
        self.done = done
        self.claimed = False
        self.outputs: dict[int, bytes] | None = None
        self.failure: Exception | None = None


@final
class Lane:
    """A network's input rings, pipeline and output rings.

    Networks that are resident together have places of their own on the chips, so lanes meet in heat only.
    A frame enters the pipeline when every input flow has one, a place is free, and `interval` has passed
    since the last entry; its outputs are ready `latency` later, and leave in order once every output ring
    has room. Both times are those of the nominal clock.

    Attributes:
        exit_bps: bytes a second at which outputs leave the chips.
    """

    def __init__(
        self, network: ChipNetwork, chips: Chips, *, depth: int, slots: tuple[int, int], now: float
    ) -> None:
        self.network = network
        self.exit_bps = math.inf
        self.inputs: dict[int, Ring[bytes]] = {port.number: Ring(slots[0]) for port in network.inputs}
        self.outputs: dict[int, Ring[Inference]] = {port.number: Ring(slots[1]) for port in network.outputs}
        self.pipeline: deque[Inference] = deque()
        self._inside = tuple(self.inputs.values())
        self._outside = tuple(self.outputs.values())
        self._bytes_in = sum(port.size for port in network.inputs)
        self._bytes_out = sum(port.size for port in network.outputs)
        self._chips = chips
        self._depth = depth
        self._clock = now
        self._next_entry = now
        self._next_exit = now
        self._activity: Activity = Activity.PAUSED
        self._still_until = -math.inf  # until then nothing happens by itself while that is the activity

    def put(self, flow_id: int, frame: bytes) -> bool:
        """Put a frame into an input ring; False where it is full."""
        ring = self.inputs[flow_id]
        if ring.full:
            return False
        ring.push(frame)
        self._still_until = -math.inf
        return True

    def give(self, flow_id: int, frame: bytes) -> None:
        """Put a frame from a lent buffer into an input ring, where that buffer has its place."""
        self.inputs[flow_id].push(frame)
        self._still_until = -math.inf

    def get(self, flow_id: int) -> Inference | None:
        """Take the oldest of an output ring, if there is one."""
        ring = self.outputs[flow_id]
        if ring.empty:
            return None
        self._still_until = -math.inf
        return ring.pop()

    def narrow(self, flow_id: int, places: int) -> None:
        """Take places of an output ring away, as `Ring.narrow` does."""
        self.outputs[flow_id].narrow(places)
        self._still_until = -math.inf

    def advance(self, now: float, activity: Activity) -> None:
        """Do all that happens up to `now`, given that `activity` did not change since the last call."""
        if self._clock <= now < self._still_until and activity is self._activity:
            self._clock = now
            return
        while True:
            leaves, enters = self._leaves_at(activity), self._enters_at(activity)
            moment = min(leaves, enters)
            if moment > now:
                break
            self._clock = moment
            if leaves <= moment:
                self._leave()
            else:
                self._enter()
        self._clock = max(self._clock, now)
        self._still_until, self._activity = moment, activity

    def next_event(self, activity: Activity) -> float:
        """Return when something happens by itself, later than the last `advance`; `math.inf` for never."""
        done = self._done() if self.pipeline else math.inf
        ready = done if done > self._clock else math.inf
        return min(self._leaves_at(activity), self._enters_at(activity), ready)

    def next_output(self, activity: Activity) -> float:
        """Return when a frame next reaches the chips where they are empty, or leaves them, by itself."""
        return self._leaves_at(activity) if self.pipeline else self._enters_at(activity)

    def moving(self) -> bool:
        """Whether a frame on the chips will leave them with nobody's help."""
        return bool(self.pipeline) and (self._done() > self._clock or self._room_outside())

    def fed(self) -> bool:
        """Whether a frame waits in an input queue."""
        return any(map(len, self._inside))

    def in_flight(self, activity: Activity) -> bool:
        """Whether a change of what the chips hold could touch a frame, read or unread."""
        waiting = [len(self.pipeline), *map(len, self.outputs.values())]
        if activity is Activity.RUNNING:
            waiting += map(len, self.inputs.values())
        return any(waiting)

    def oldest(self, flow_id: int) -> Inference | None:
        """Return the inference that the next read of an output flow gives, even if it is not done."""
        if (waiting := self.outputs[flow_id].peek()) is not None:
            return waiting
        return self.pipeline[0] if self.pipeline else None

    def _done(self) -> float:
        return max(self.pipeline[0].done, self._next_exit)

    def _room_outside(self) -> bool:
        for ring in self._outside:  # noqa: SIM110  (several times a frame, and any() would cost more)
            if ring.full:
                return False
        return True

    def _leaves_at(self, activity: Activity) -> float:
        if activity is Activity.PAUSED or not self.pipeline or not self._room_outside():
            return math.inf
        return max(self.pipeline[0].done, self._next_exit, self._clock)

    def _enters_at(self, activity: Activity) -> float:
        if activity is not Activity.RUNNING or len(self.pipeline) >= self._depth:
            return math.inf
        for ring in self._inside:
            if ring.empty:
                return math.inf
        return max(self._next_entry, self._clock)

    def _leave(self) -> None:
        frame = self.pipeline.popleft()
        for ring in self.outputs.values():
            ring.push(frame)
        self._chips.received += self._bytes_out
        self._next_exit = self._clock + self._bytes_out / self.exit_bps

    def _enter(self) -> None:
        clock, chips = self._clock, self._chips
        if clock >= chips.due:
            chips.look(clock)
        inputs = tuple(ring.pop() for ring in self.inputs.values())
        interval = self.network.interval * chips.stretch
        self.pipeline.append(Inference(self.network, inputs, clock + self.network.latency * chips.stretch))
        self._next_entry = clock + interval
        chips.busy += interval
        chips.sent += self._bytes_in
