"""An NPU by the nodes of its driver: no vendor code runs in this process."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from repertory.models.errors import DeviceError, DeviceLost
from repertory.transports.lock import FileLock
from repertory.transports.world import World
from repertory.transports.xm_npu.errors import NpuRefusal
from repertory.transports.xm_npu.npu import Ended, Graph, Npu, Place, Run
from repertory.transports.xm_npu.program import Loadable

from .checks import check_model, check_process
from .generation import MMZ_V500, V500, Capability, Generation, MmzLayout
from .jobs import JobQueue
from .kernel import Kernel, LinuxKernel
from .mmz import Mmz
from .node import NpuNode
from .window import Window

__all__ = ["MMZ_NODE", "NPU_NODE", "PATIENCE", "NodeGraph", "NodeNpu", "check_process"]

NPU_NODE: Final = Path("/dev/npu.0")
"""The node of a board's one NPU."""

MMZ_NODE: Final = Path("/dev/mmz_userdev")
"""The node of the memory."""

PATIENCE: Final = 1.0
"""See `Npu.patience`; the bell is reliable, for the waiting loop's own calls are bounded."""

_log = logging.getLogger("repertory.xm_npu")


@final
class NodeGraph(Graph):
    """A model in a window of its own; one place, for inputs and outputs lie in that window.

    Args:
        window: with the model.
        queue: where its jobs go.
        forget: called when it is unloaded.
    """

    def __init__(self, window: Window, queue: JobQueue, forget: Callable[[NodeGraph], None]) -> None:
        self.window = window
        self.places = (window.place,)
        self._queue = queue
        self._forget = forget

    async def submit(self, place: Place) -> Run:
        run = Run(self, place)
        await self._queue.submit(run, self.window)
        return run

    async def unload(self) -> None:
        self._forget(self)
        try:
            await self.window.close()
        except NpuRefusal as refusal:
            _log.warning("%s", refusal)


@final
class NodeNpu(Npu):
    """The NPU of a board, over the nodes of its driver.

    Args:
        world: real or virtual.
        kernel: the system calls.
        node: of the NPU.
        mmz: node of the memory.
        generation: of the driver's tables.
        layout: of the memory's table.
        zone: where memory comes from; `anonymous` without one.
        lock_dir: where our lock file lies, which keeps processes of this package apart; None takes none.
    """

    patience = PATIENCE

    def __init__(
        self,
        world: World,
        kernel: Kernel,
        *,
        node: Path = NPU_NODE,
        mmz: Path = MMZ_NODE,
        generation: Generation = V500,
        layout: MmzLayout = MMZ_V500,
        zone: str | None = None,
        lock_dir: Path | None = None,
    ) -> None:
        self.simulated = not isinstance(kernel, LinuxKernel)
        self._world = world
        self._kernel = kernel
        self._paths = node, mmz
        self._generation = generation
        self._layout = layout
        self._zone = zone
        self._lock = _lock(lock_dir, node)
        self._node: NpuNode | None = None
        self._mmz: Mmz | None = None
        self._queue: JobQueue | None = None
        self._graphs: dict[NodeGraph, None] = {}

    async def open(self, bell: Callable[[], None]) -> None:
        check_process(self._kernel)
        if self._lock is not None:
            self._lock.acquire()
        try:
            await self._take(bell)
        except NpuRefusal as refusal:
            await self.close()
            raise DeviceLost(
                str(refusal), family="xm-npu", call=refusal.call, status=refusal.status
            ) from refusal
        except BaseException:
            await self.close()
            raise

    async def load(self, model: Loadable, *, scratch: int = 0) -> Graph:
        if self._queue is None or self._mmz is None:
            raise _closed()
        check_model(model, self._kernel)
        graph = NodeGraph(await Window.take(model, self._mmz), self._queue, self._forget)
        self._graphs[graph] = None
        return graph

    async def collect(self) -> Sequence[Ended]:
        if self._queue is None:
            raise _closed()
        return await self._queue.collect()

    async def break_off(self, why: DeviceError) -> Sequence[Ended]:
        if self._queue is None:
            raise _closed()
        return await self._queue.break_off(why)

    async def health(self) -> Mapping[str, float]:
        if self._node is None or self._queue is None or self._mmz is None:
            raise _closed()
        readings = {
            "graphs_count": float(len(self._graphs)),
            "jobs_count": float(self._queue.jobs),
            "mmz_held_bytes": float(self._mmz.held),
        }
        with suppress(NpuRefusal):  # a driver that does not tell it is well nevertheless
            readings["performance_class"] = float(await self._node.capability(Capability.PERF))
        return readings

    async def close(self) -> None:
        node, self._node = self._node, None
        mmz, self._mmz = self._mmz, None
        queue, self._queue = self._queue, None
        if node is not None:
            await self._leave(node, queue)
        graphs, self._graphs = self._graphs, {}
        if mmz is not None:  # after the node: where a reset failed, the NPU's clock stopped there at last
            for graph in () if mmz.inherited else graphs:
                await _try(graph.window.close)
            await mmz.close()
        if self._lock is not None:
            self._lock.release()

    async def _take(self, bell: Callable[[], None]) -> None:
        node, mmz = self._paths
        try:
            self._node = NpuNode(self._kernel, node, self._generation, self._world.now)
        except DeviceLost as error:
            raise self._with_neighbours(error, node) from error
        await self._node.start()
        await self._node.create_queue()
        self._mmz = Mmz(self._kernel, mmz, self._layout, zone=self._zone)
        self._queue = JobQueue(self._world, self._node, bell, self._reload)

    def _with_neighbours(self, error: DeviceLost, node: Path) -> DeviceLost:
        """Name the NPUs that are there instead."""
        try:
            there = [name for name in self._kernel.nodes(node.parent) if name.startswith("npu.")]
        except OSError:
            there = []
        more = f"; {node.parent} has {', '.join(there) or 'no npu.*'}"
        return DeviceLost(f"{error}{more}", family="xm-npu", call=error.call, status=error.status)

    def _reload(self) -> None:
        for graph in self._graphs:
            graph.window.write()

    def _forget(self, graph: NodeGraph) -> None:
        self._graphs.pop(graph, None)

    async def _leave(self, node: NpuNode, queue: JobQueue | None) -> None:
        """Leave the NPU; a fork has no part in it but the descriptor."""
        if not node.inherited:
            if queue is not None:
                await _try(queue.close)
            await _try(node.destroy_queue)
            await _try(node.stop)
        try:
            node.close()
        except DeviceError as error:
            _log.warning("%s", error)


def _lock(folder: Path | None, node: Path) -> FileLock | None:
    """Return the lock of an NPU, which the library's users take as well."""
    if folder is None:
        return None
    return FileLock(folder / f"repertory-{node.name}.lock", f"NPU {node}", family="xm-npu")


def _closed() -> DeviceLost:
    return DeviceLost("the NPU is closed", family="xm-npu")


async def _try(step: Callable[[], Awaitable[None]]) -> None:
    try:
        await step()
    except DeviceError as error:
        _log.warning("%s", error)
