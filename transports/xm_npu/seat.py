"""One resident graph in the driver loop: its frames that wait, that are staged, and the one that runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from repertory.models.errors import DeviceError, RepertoryError
from repertory.transports.device import Completion
from repertory.transports.frame import Fate, Frame

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
    """

    frame: Frame
    place: Place
    transfer: float
    run: Run | None = None


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

    def stage(self, ends: list[Completion]) -> bool:
        """Lay one waiting frame's inputs into a free place; `ends` gets those of frames that are not run.

        Returns:
            Whether there was such a frame, and a place.
        """
        while self.waiting and self._free:
            frame = self.waiting.popleft()
            if frame.outcome is not None:
                ends.append(_unseen(frame))
                continue
            began, place = self._now(), self._free.popleft()
            try:
                stage(frame.inputs, self.model, place)
            except RepertoryError as error:
                self.release(place)
                ends.append(_unfit(frame, error))
                continue
            self.staged.append(Job(frame, place, self._now() - began))
            return True
        return False

    def next(self, ends: list[Completion]) -> Job | None:
        """Return the staged job that may be submitted; `ends` gets those of frames that nobody waits for."""
        while self.staged and self.running is None:
            job = self.staged.popleft()
            if job.frame.outcome is None:
                return job
            self.release(job.place)
            ends.append(_unseen(job.frame))
        return None

    def release(self, place: Place) -> None:
        """A place is free again."""
        self._free.append(place)

    def unstage(self) -> None:
        """What was staged is lost: its frames wait for a place again, in their order."""
        while self.staged:
            job = self.staged.pop()
            self.release(job.place)
            self.waiting.appendleft(job.frame)


def _unseen(frame: Frame) -> Completion:
    """Nobody waits for it any more, and the NPU has not seen it."""
    return Completion(frame, Fate.UNDONE, error=DeviceError("the frame was not run", family="xm-npu"))


def _unfit(frame: Frame, error: RepertoryError) -> Completion:
    """Its inputs are not what they were when they were checked: a caller has changed them since."""
    why = DeviceError(f"the frame was not run: {error}", family="xm-npu")
    why.__cause__ = error
    return Completion(frame, Fate.FAILED, error=why)
