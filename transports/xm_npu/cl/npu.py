"""An NPU by the vendor's library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

from repertory.models.errors import (
    ConfigError,
    DeviceError,
    DeviceLost,
    NoRoom,
    RepertoryError,
    again,
)
from repertory.transports.frame import Fate
from repertory.transports.lock import FileLock
from repertory.transports.world import World
from repertory.transports.xm_npu.errors import NpuRefusal
from repertory.transports.xm_npu.npu import Ended, Npu
from repertory.transports.xm_npu.program import Loadable

from .agreement import check_real
from .buffer import PAGE, MmzBuffer, pages
from .context import DEFAULT_NODE, Devices, System
from .library import XmediaCl
from .resident import ClGraph, Outputs, Settings
from .statuses import no_memory_node
from .workspaces import Workspaces

__all__ = ["GRACE", "LISTENING", "POLLING", "ClNpu", "OwnMemory"]

OwnMemory: TypeAlias = Literal["own", "library"]
"""Whose memory models are loaded into: both of the page's ways."""

LISTENING: Final = 0.1
"""Seconds of patience where the library calls back when a job ends."""

POLLING: Final = 0.001
"""Seconds of patience where it must be asked."""

GRACE: Final = 1.0
"""Seconds that closing waits for jobs in flight. What still runs then keeps its memory, and its graph, until
somebody in this process closes or opens the NPU after its end, or the process ends."""

_SOON: Final = 5  # looks, at the pace of POLLING, after a bell that found nothing
_MAX_PRIO: Final = 3
_late: Final[set[ClNpu]] = set()  # closed, but jobs of theirs run on


@final
class ClNpu(Npu):
    """An NPU by the vendor's library, or by a simulated one.

    Jobs are submitted and their events asked, where the library can do so; else each run blocks `submit`.

    Args:
        library: which.
        world: for its clock, and for waiting at the end.
        memory: whose memory models are loaded into: `own`, which is shared where it can be, or `library`.
        outputs: how outputs are mapped. `uncached` is right in any case; `cached` reads faster, and is right
            as far as nothing reads the outputs' lines while a job runs, not even the CPU ahead of time.
        devices: of what the context is made: see `Devices`.
        zone: of memory; None for the zone `anonymous`.
        budget: bytes of memory, in whole pages, that models may take together, code included, where it is
            ours; None for no bound.
        prio: of all graphs, 0 to 3, 3 first; None leaves it to the library.
        node: of the NPU, for messages and for the lock's name.
        lock_dir: where our lock file lies, shared by all who use the NPU; None for no lock.

    Raises:
        ConfigError: an argument is none of these, or the library cannot do what it asks for.
    """

    def __init__(
        self,
        library: XmediaCl,
        world: World,
        *,
        memory: OwnMemory = "own",
        outputs: Outputs = "uncached",
        devices: Devices = "all",
        zone: str | None = None,
        budget: int | None = None,
        prio: int | None = None,
        node: Path = Path(DEFAULT_NODE),
        lock_dir: Path | None = None,
    ) -> None:
        _check_options(library, memory, outputs, prio)
        self._library = library
        self._world = world
        self._own = memory == "own"
        self._outputs: Outputs = outputs
        self._prio = prio
        self._budget = budget
        self._fatal: DeviceError | None = None
        self._rang = False
        self._looks = 0  # that are due soon, for a bell rang and nothing was found
        self._system = System(library, devices=devices, zone=zone, node=str(node))
        self._workspaces = Workspaces(self._workspace)
        self._graphs: dict[ClGraph, Loadable] = {}
        self._settings: Settings | None = None
        self._lock: FileLock | None = None
        if lock_dir is not None:
            lock = lock_dir / f"repertory-{node.name}.lock"
            self._lock = FileLock(lock, f"NPU {node}", family="xm-npu")
        self.simulated = library.simulated
        self._events = "xmedia_cl_graph_submit" in library.exports
        self._listens = self._events and "xmedia_cl_set_event_callback" in library.exports
        self._bell: Callable[[], None] = lambda: None
        self.patience = LISTENING if self._listens else POLLING

    async def open(self, bell: Callable[[], None]) -> None:
        if self._lock is not None:
            self._lock.acquire()
        self._bell = bell
        self._settings = Settings(
            own=self._own,
            outputs=self._outputs,
            prio=self._prio,
            events=self._events,
            bell=self._ring,
            now=self._world.now,
        )
        try:
            await self._close_late()
            await self._system.open()
            await self._try_memory()
        except BaseException as error:
            await self.close()
            if isinstance(error, NpuRefusal):
                raise _lost(error) from error
            raise

    async def load(self, model: Loadable, *, scratch: int = 0) -> ClGraph:
        self._check()
        assert self._settings is not None, "open"
        if not self.simulated:
            check_real(model)
        self._forget()
        graph = ClGraph(self._system, self._workspaces, model, self._settings)
        self._limit(model)
        try:
            await graph.load(scratch=scratch)
        except NoRoom:
            if not scratch:
                raise
            await graph.load()  # as much as it needs itself
        self._graphs[graph] = model
        return graph

    def _limit(self, model: Loadable) -> None:
        """Let a load take what remains of the budget beside what the library takes memory for by itself.

        Raises:
            NoRoom: not even that is there.
        """
        if self._budget is None:
            return
        loaded = sum(map(self._library_takes, self._graphs.values()))
        wanted, free = self._library_takes(model), max(self._budget - self._system.held - loaded, 0)
        if wanted > free:
            raise NoRoom(f"{model.name}: {wanted} bytes; {free} are free", wanted=wanted, free=free)
        self._system.limit = self._budget - loaded - wanted

    def _library_takes(self, model: Loadable) -> int:
        code = sum(pages(each.size) for each in model.codes)
        return code if self._own else code + pages(model.params[1]) + pages(model.work)

    async def collect(self) -> Sequence[Ended]:
        self._check()
        if self._fatal is not None:
            raise again(self._fatal)
        self._forget()
        ends: list[Ended] = []
        for graph in self._graphs:
            try:
                await self._collect(graph, ends)
            except DeviceError as error:
                self._fatal = self._fatal or error
        if self._fatal is not None:
            if not ends:
                raise again(self._fatal)
            self._bell()  # what has ended is told first
        self._set_patience(found=bool(ends))
        return sorted(ends, key=lambda end: end.at)

    async def _collect(self, graph: ClGraph, ends: list[Ended]) -> None:
        try:
            end = await graph.ended()
        except NpuRefusal as error:
            raise _lost(error) from error
        if end is None:
            return
        ends.append(end)
        if end.fate is not Fate.DONE:
            await graph.load_again()

    def _ring(self) -> None:
        self._rang = True
        self._bell()

    def _set_patience(self, *, found: bool) -> None:
        """A library may call back before its event tells the end: then look again soon, a few times."""
        if not self._listens:
            return
        if self._rang:
            self._rang = False
            self._looks = 0 if found else _SOON
        else:
            self._looks = max(self._looks - 1, 0)
        self.patience = POLLING if self._looks else LISTENING

    async def break_off(self, why: DeviceError) -> Sequence[Ended]:
        """The library has no way to stop a job.

        Raises:
            DeviceError: `why`, always.
        """
        raise why

    async def health(self) -> Mapping[str, float]:
        self._check()
        self._forget()
        running = sum(graph.running for graph in self._graphs)
        return {
            "graphs_count": float(len(self._graphs)),
            "jobs_count": float(running),
            "mmz_held_bytes": float(self._system.held),
        }

    async def close(self) -> None:
        if not self._system.inherited:  # a forked child has nothing of it to give back
            await self._end(GRACE)
        if self._lock is not None:
            self._lock.release()

    # -- bookkeeping -------------------------------------------------------------------------------

    def _check(self) -> None:
        self._system.check_process()
        if not self._system.opened:
            raise DeviceLost("the NPU is not open", family="xm-npu")

    async def _try_memory(self) -> None:
        """Take one page and give it back: the library tells no reason when it gives none."""
        try:
            page = await self._system.allocate("npu_probe", PAGE)
        except NoRoom as error:
            raise no_memory_node("xmedia_mmz_alloc") from error
        await page.free()

    async def _workspace(self, size: int) -> MmzBuffer:
        """Take one; its lines are forgotten now, for later somebody's job may be using it."""
        workspace = await self._system.allocate("npu_workspace", size)
        await workspace.flush()
        return workspace

    def _forget(self) -> None:
        for graph in [graph for graph in self._graphs if not graph.places]:
            del self._graphs[graph]

    async def _close_late(self) -> None:
        """Give back what others of this process left to jobs that have ended since."""
        mine = [each for each in _late if each._library is self._library and not each._system.inherited]
        for npu in mine:
            await npu._end(0)

    async def _end(self, grace: float) -> None:
        """Give everything back but what jobs still use, after so many seconds."""
        with suppress(RepertoryError):
            await self._drain(grace)
        await self._close_graphs()

    async def _drain(self, grace: float) -> None:
        """Wait a little for jobs in flight: their memory must not be freed under them."""
        deadline = self._world.now() + grace
        condition = self._world.condition()
        while True:
            running = [graph for graph in self._graphs if graph.running]
            ends = [await graph.ended() for graph in running]
            if None not in ends or self._world.now() >= deadline:
                return
            await condition.wait(lambda: False, timeout=POLLING, next_event=lambda: math.inf)

    async def _close_graphs(self) -> None:
        """Unload what can be; a job that runs keeps its graph, and the library."""
        for graph in [graph for graph in self._graphs if not graph.running]:
            del self._graphs[graph]
            with suppress(RepertoryError):
                await graph.unload()
        if self._graphs:
            _late.add(self)
        else:
            _late.discard(self)
            await self._system.close()


def _lost(error: NpuRefusal) -> DeviceLost:
    """What is refused here leaves the NPU unusable."""
    return DeviceLost(str(error), family="xm-npu", call=error.call, status=error.status)


def _check_options(library: XmediaCl, memory: str, outputs: str, prio: int | None) -> None:
    if memory not in {"own", "library"} or outputs not in {"uncached", "cached"}:
        raise ConfigError(f"memory={memory!r}, outputs={outputs!r}: own or library, uncached or cached")
    if prio is not None:
        if not 0 <= prio <= _MAX_PRIO:
            raise ConfigError(f"prio={prio}: 0 to {_MAX_PRIO}")
        library.require("xmedia_cl_graph_set_schedule_prio")
