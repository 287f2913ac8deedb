"""What the driver sees of an NPU, however it is reached: graphs in its memory, jobs, and their ends.

The library (`cl/`) and the driver's nodes (`ioctl/`) are two ways to it; engine and device cannot tell them
apart. All of it is driver code: it blocks its thread in real time, and suspends its task in virtual time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from repertory.models.errors import DeviceError
from repertory.transports.frame import Fate

from .program import Loadable

__all__ = ["Ended", "Graph", "Npu", "Place", "Run"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where the tensors of one frame lie.

    Attributes:
        inputs: writable bytes of each input, as long as its `size` (times the batch).
        outputs: bytes of each output; only read, and only between the end of a job and the next one here.
    """

    inputs: tuple[memoryview, ...]
    outputs: tuple[memoryview, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A job that was handed over, of one graph at one of its places; equal only to itself."""

    graph: Graph
    place: Place


@final
@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a job.

    Attributes:
        run: which.
        fate: DONE; FAILED, it is to blame; UNDONE, another's failure took it along and it may run again.
        at: when, on the world's clock.
        error: why, where the fate is not DONE.
    """

    run: Run
    fate: Fate
    at: float
    error: DeviceError | None = None


class Graph(ABC):
    """A loaded model; at most one job of it is in flight.

    Attributes:
        places: where frames can be staged: two where the next frame may be staged while one runs.
    """

    places: tuple[Place, ...]

    @abstractmethod
    async def submit(self, place: Place) -> Run:
        """Let the NPU see the inputs at a place, and queue a job; returns before it ends, where it can.

        Raises:
            NpuRefusal: it was refused; nothing runs.
            DeviceLost: the NPU is unusable.
        """

    @abstractmethod
    async def unload(self) -> None:
        """Take it off the NPU and give its memory back; none of its jobs is in flight. Any number of times.

        Raises:
            NpuRefusal: the library refused; the graph is gone for us all the same.
        """


class Npu(ABC):
    """One NPU; used by one driver loop.

    Attributes:
        simulated: whether no hardware stands behind it.
        patience: seconds after which `collect` shall be asked though no bell rang, while jobs are in flight.
    """

    simulated: bool
    patience: float

    @abstractmethod
    async def open(self, bell: Callable[[], None]) -> None:
        """Take the NPU.

        Args:
            bell: to be called, from any thread, when `collect` may have something.

        Raises:
            DeviceLost: it is not there, or this process may not use it; says which node, and what to do.
            DeviceBusy: somebody else owns it.

        In each case nothing of it stays open.
        """

    @abstractmethod
    async def load(self, model: Loadable, *, scratch: int = 0) -> Graph:
        """Bring a model into the NPU's memory; jobs of other graphs may be in flight.

        Args:
            model: what to load.
            scratch: bytes of workspace that another model may come to need. Where it is shared, as much is
                taken at once, if there is room.

        Raises:
            NoRoom: its memory does not suffice at the moment; says what was wanted and what is free.
            NpuRefusal: the model is refused.
            DeviceLost: the NPU is unusable.

        In each case nothing of it stays behind.
        """

    @abstractmethod
    async def collect(self) -> Sequence[Ended]:
        """Return the jobs that have ended since; never waits for one.

        Where a job failed the NPU is made usable again first, which may take long. Every graph is loaded as
        before then, but for what was staged at places of a graph whose job did not end as DONE.

        Raises:
            DeviceHung: the NPU could not be made usable.
            DeviceLost: likewise.
        """

    @abstractmethod
    async def break_off(self, why: DeviceError) -> Sequence[Ended]:
        """Get rid of a job that does not end: the oldest one fails with `why`, the others are UNDONE.

        Returns no end where the job is spared for once: it has not begun, for jobs of another program are
        before it. Where it has not when this is called again for it, all are UNDONE.

        Raises:
            DeviceHung: this cannot be done here; `why` itself, or what prevented it.
        """

    @abstractmethod
    async def health(self) -> Mapping[str, float]:
        """Return readings, with the unit in each name."""

    @abstractmethod
    async def close(self) -> None:
        """Give everything back, graphs included; from any state, any number of times. Never raises."""
