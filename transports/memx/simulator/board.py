"""What the simulated library remembers: device groups, model contexts, and what was loaded where."""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

from repertory.transports.memx.constants import DEFAULT_QUEUE_SIZE
from repertory.transports.memx.features import GetFeature

from .chips import Chips
from .lane import Activity, Lane
from .lending import Lending

if TYPE_CHECKING:
    from .image import Image
    from .parameters import SimulatedMx3

__all__ = ["Context", "Group", "Halt", "Load"]

_VOLTAGE_MV: Final = 700


class Halt(Enum):
    """Why a whole group stands still."""

    HUNG = auto()
    """Its firmware does, for ever: what waits for it never returns."""
    GONE = auto()
    """Its node vanished: what was to be sent is tried again for ever."""
    ASLEEP = auto()
    """It is in a power state that runs no models; it goes on once it is in another."""
    FORKED = auto()
    """The process is a fork, whose parent has the threads that move frames."""


@final
class Group:
    """A device group.

    Attributes:
        index: its group id.
        chips: what it consists of.
        configured: how many of them work on one model.
        halves: into how many such parts it is configured.
        halts: why everything on it stands still; mostly nothing.
        slow_admin: whether its firmware answers no command within the kernel's time-out.
        exit_bps: bytes a second at which outputs leave it.
        settings: features that are only kept, by the opcode that reads them.
        contexts: those bound to it, by model id.
        loading: the context whose download is going on, or None.
        resident: what its chips are configured for, or None where that is nothing, or unknown.
        weights: the file whose weights its chips hold, likewise.
        spoiled: whether those weights did not arrive whole, and nobody was told.
    """

    def __init__(self, index: int, mx3: SimulatedMx3) -> None:
        self.index = index
        self.chips = Chips(mx3.chips, mx3.heat)
        self.configured = mx3.chips
        self.halves = 1
        self.halts: set[Halt] = set()
        self.slow_admin = False
        self.exit_bps = math.inf
        self.settings: dict[int, int] = {GetFeature.VOLTAGE: _VOLTAGE_MV}
        self.contexts: dict[int, Context] = {}
        self.loading: Context | None = None
        self.resident: Load | None = None
        self.weights: Image | None = None
        self.spoiled = False

    def halt(self, why: Halt, now: float) -> None:
        """Let everything stand still from `now` on."""
        self.advance(now)
        self.halts.add(why)

    def resume(self, why: Halt, now: float) -> None:
        """Let everything go on, unless it stands still for another reason too."""
        self.advance(now)
        self.halts.discard(why)

    def slow(self, bytes_per_second: float, now: float) -> None:
        """Let outputs leave at this rate from `now` on."""
        self.advance(now)
        self.exit_bps = bytes_per_second
        for context in self.contexts.values():
            for lane in context.lanes:
                lane.exit_bps = bytes_per_second

    def advance(self, now: float) -> None:
        """Bring every context up to `now`."""
        for context in self.contexts.values():
            context.advance(now)

    def forget(self) -> None:
        """Take what the chips hold for unknown."""
        self.resident = self.weights = None
        self.spoiled = False


@final
class Context:
    """A model context.

    Attributes:
        model_id: its number.
        group: where it is bound to.
        refs: opens that were not closed yet.
        slots: input and output queue sizes for the next download.
        activity: what its transfers do; lasts over downloads.
        load: what it has loaded, or None.
        unbound: whether its program was lost to a reconfigure, and none was downloaded since.
        aborted: whether its reads were aborted: nothing moves any more, and a close is to follow.
        closed: whether it was closed, and calls that still wait for it are to end.
    """

    def __init__(self, model_id: int, group: Group) -> None:
        self.model_id = model_id
        self.group = group
        group.contexts[model_id] = self
        self.refs = 1
        self.slots: tuple[int, int] = (DEFAULT_QUEUE_SIZE, DEFAULT_QUEUE_SIZE)
        self.activity = Activity.PAUSED
        self.load: Load | None = None
        self.unbound = False
        self.aborted = False
        self.closed = False

    def bind(self, group: Group) -> None:
        """Leave the present group for another, or the same; nothing is loaded afterwards."""
        self.leave()
        group.contexts[self.model_id] = self
        self.group = group
        group.forget()

    def leave(self) -> None:
        """Drop what is loaded, and the binding; what the chips hold for this context counts no more."""
        if self.load is not None and self.group.resident is self.load:
            self.group.forget()
        self.unbound = self.unbound or self.load is not None
        self.load = None
        del self.group.contexts[self.model_id]

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes of what is loaded."""
        return self.load.lanes if self.load else ()

    @property
    def enabled(self) -> bool:
        """Whether frames may move."""
        return self.activity is not Activity.PAUSED

    @property
    def halted(self) -> bool:
        """Whether nothing moves, whatever its activity is."""
        return self.aborted or bool(self.group.halts)

    def advance(self, now: float) -> None:
        """Bring the lanes up to `now`, and a drain to its end."""
        activity = Activity.PAUSED if self.aborted or self.group.halts else self.activity
        for lane in self.load.lanes if self.load else ():
            lane.advance(now, activity)
        if self.activity is Activity.DRAINING and not (self.stuck() or self._moving()):
            self.activity = Activity.PAUSED

    def next_event(self) -> float:
        """Return when a lane changes by itself, after the last `advance`."""
        if self.aborted or self.group.halts:
            return math.inf
        return min((lane.next_event(self.activity) for lane in self.lanes), default=math.inf)

    def stuck(self) -> bool:
        """Whether a transfer is tried that never ends."""
        if not (halts := self.group.halts):
            return False
        return Halt.HUNG in halts or (Halt.GONE in halts and self.enabled and self.fed())

    def fed(self) -> bool:
        """Whether a frame waits in an input queue."""
        return any(lane.fed() for lane in self.lanes)

    def _moving(self) -> bool:
        return any(lane.moving() for lane in self.lanes)

    def in_flight(self) -> bool:
        """Whether a frame is in an input queue of the enabled context, on the chips, or unread."""
        return any(lane.in_flight(self.activity) for lane in self.lanes)

    def misplaced(self) -> str:
        """Return why the chips would not compute this context's program, or nothing where they would."""
        if self.unbound:
            return "was reconfigured and nothing was downloaded since"
        if self.load is None:
            return ""
        if self.group.resident is not self.load:
            return f"is not what group {self.group.index} was loaded with last"
        if self.group.weights is not self.load.image:
            return f"has its model on group {self.group.index} without its weights"
        return ""


@final
class Load:
    """A model of a file, downloaded for one context: fresh queues on fresh lanes, and fresh buffers."""

    def __init__(self, image: Image, lanes: tuple[Lane, ...], slots: tuple[int, int]) -> None:
        self.image = image
        self.lanes = lanes
        self.lending = Lending(slots)
        self.inputs = {port.number: (lane, port) for lane in lanes for port in lane.network.inputs}
        self.outputs = {port.number: (lane, port) for lane in lanes for port in lane.network.outputs}
