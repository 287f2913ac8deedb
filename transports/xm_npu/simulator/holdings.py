"""What a process holds of the library: graphs with their memory, and events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from repertory.models.xmm import Xmm
from repertory.transports.xm_npu.cl.library import EventStatus, Notify

from .block import Block
from .job import Job
from .order import Order, Regions

__all__ = ["WHOLE", "Event", "HeldGraph", "Side"]

WHOLE: Final = 0xFFFFFFFF
"""Where the window of the library's jobs ends; it begins at 0."""


@final
@dataclass(slots=True)
class Side:
    """The inputs or the outputs of a graph.

    Attributes:
        inside: whether they lie in the workspace.
        phys: address of the first; 0 until it is bound.
    """

    inside: bool
    phys: int = 0


@final
@dataclass(slots=True, eq=False)
class HeldGraph:
    """A loaded model.

    Attributes:
        handle: the caller's.
        xmm: the model.
        codes: physical address and size of each program.
        params: physical address of the parameters.
        work: physical address of the workspace.
        work_virt: where the host sees it.
        owned: blocks of the library's own.
        inputs: where they are.
        outputs: likewise.
        batch: items of a run.
        prio: 3 is first.
        fresh: whether buffers were set since the last run.
        attached: the event that was submitted last.
    """

    handle: int
    xmm: Xmm
    codes: list[tuple[int, int]]
    params: int
    work: int
    work_virt: int
    owned: list[Block]
    inputs: Side
    outputs: Side
    batch: int = 1
    prio: int = 1
    fresh: bool = False
    attached: Event | None = None

    @property
    def bound(self) -> bool:
        """Whether both sides have a place."""
        return bool(self.inputs.phys and self.outputs.phys)

    def orders(self) -> list[Order]:
        """Return the jobs of a run."""
        regions = Regions(self.params, self.work, self.inputs.phys, self.outputs.phys)
        return [Order(code, size, 0, WHOLE, regions, self.batch) for code, size in self.codes]


@final
@dataclass(slots=True, eq=False)
class Event:
    """A run of a graph.

    Attributes:
        handle: the caller's.
        graph: what runs.
        todo: jobs of it that are still to be submitted.
        status: of it.
        refs: how often it is held.
        job: that is with the driver, or None.
        callbacks: by the status that they wait for.
    """

    handle: int
    graph: HeldGraph
    todo: list[Order]
    status: EventStatus = EventStatus.QUEUED
    refs: int = 1
    job: Job | None = None
    callbacks: dict[int, Notify] = field(default_factory=dict[int, Notify])

    @property
    def final(self) -> bool:
        """Whether its status never changes again."""
        return self.status >= EventStatus.COMPLETED
