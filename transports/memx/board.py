"""What the simulated library remembers: device groups, model contexts, and what was loaded where."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from .constants import DEFAULT_QUEUE_SIZE
from .lane import Activity, Lane

if TYPE_CHECKING:
    from .image import Image

__all__ = ["Context", "Group", "Load"]


@final
class Group:
    """A device group.

    Attributes:
        index: its group id.
        chips: how many it has.
        configured: how many of them work on one model.
        locked: whether the advisory lock is held.
        hung: whether everything on it stands still for ever.
        contexts: those bound to it, by model id.
        loading: the context whose download is going on, or None.
        resident: what its chips are configured for, or None where that is nothing, or unknown.
        weights: the file whose weights its chips hold, likewise.
    """

    def __init__(self, index: int, chips: int) -> None:
        self.index = index
        self.chips = chips
        self.configured = chips
        self.locked = False
        self.hung = False
        self.contexts: dict[int, Context] = {}
        self.loading: Context | None = None
        self.resident: Load | None = None
        self.weights: Image | None = None

    def forget(self) -> None:
        """Take what the chips hold for unknown."""
        self.resident = self.weights = None


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

    def advance(self, now: float) -> None:
        """Bring the lanes up to `now`, and a drain to its end; on a hung group nothing moves."""
        if self.group.hung:
            return
        for lane in self.load.lanes if self.load else ():
            lane.advance(now, self.activity)
        if self.activity is Activity.DRAINING and not any(lane.moving() for lane in self.lanes):
            self.activity = Activity.PAUSED

    def next_event(self) -> float:
        """Return when a lane changes by itself, after the last `advance`."""
        if self.group.hung:
            return math.inf
        return min((lane.next_event(self.activity) for lane in self.lanes), default=math.inf)

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
    """A model of a file, downloaded for one context: fresh queues on fresh lanes."""

    def __init__(self, image: Image, lanes: tuple[Lane, ...]) -> None:
        self.image = image
        self.lanes = lanes
        self.inputs = {port.number: (lane, port) for lane in lanes for port in lane.network.inputs}
        self.outputs = {port.number: (lane, port) for lane in lanes for port in lane.network.outputs}
