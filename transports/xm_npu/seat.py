"""One resident graph in the driver loop: its frames that wait, that are staged, and the one that runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from repertory.transports.frame import Frame

from .npu import Graph, Place, Run
from .program import Loadable
from .tensors import stage

__all__ = ["Job", "Seat"]


@final
@dataclass(slots=True, eq=False)
class Job:
    """A frame whose inputs lie at a place.

    Attributes:
        frame: which.
        place: where its tensors lie.
        transfer: seconds that it took to lay them there.
        run: the job on the NPU, once it is submitted.
        submitted: when that was, on the world's clock.
    """

    frame: Frame
    place: Place
    transfer: float
    run: Run | None = None
    submitted: float = 0.0


@final
class Seat:
    """A graph, and what its frames go through.

    Attributes:
        model: what was loaded.
        graph: on the NPU.
        waiting: frames without a place.
        staged: frames whose inputs lie at one, in order.
        running: the job on the NPU, or None; never two, for the library would wait for the first.
    """

    def __init__(self, model: Loadable, graph: Graph, now: Callable[[], float]) -> None:
        self.model = model
        self.graph = graph
        self.waiting: deque[Frame] = deque()
        self.staged: deque[Job] = deque()
        self.running: Job | None = None
        self._free: deque[Place] = deque(graph.places)
        self._now = now

    @property
    def busy(self) -> bool:
        """Whether any frame is here."""
        return bool(self.running or self.staged or self.waiting)

    def frames(self) -> list[Frame]:
        """Return all frames that are here, in order."""
        jobs = [*([self.running] if self.running else []), *self.staged]
        return [*(job.frame for job in jobs), *self.waiting]

    def stage(self) -> list[Frame]:
        """Lay the inputs of waiting frames into free places; return the frames that nobody waits for."""
        skipped: list[Frame] = []
        while self.waiting and self._free:
            frame = self.waiting.popleft()
            if frame.outcome is not None:
                skipped.append(frame)
                continue
            began, place = self._now(), self._free.popleft()
            stage(frame.inputs, self.model, place)
            self.staged.append(Job(frame, place, self._now() - began))
        return skipped

    def next(self) -> tuple[Job | None, list[Frame]]:
        """Return the staged job that may be submitted now, and the frames before it that nobody waits for."""
        skipped: list[Frame] = []
        while self.staged and self.running is None:
            job = self.staged.popleft()
            if job.frame.outcome is None:
                return job, skipped
            self.release(job.place)
            skipped.append(job.frame)
        return None, skipped

    def release(self, place: Place) -> None:
        """A place is free again."""
        self._free.append(place)

    def unstage(self) -> None:
        """What was staged is lost: its frames wait for a place again, in their order."""
        while self.staged:
            job = self.staged.pop()
            self.release(job.place)
            self.waiting.appendleft(job.frame)

    def clear(self) -> None:
        """Forget all frames."""
        self.waiting.clear()
        self.staged.clear()
        self.running = None
