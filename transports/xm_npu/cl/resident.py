"""A graph in the NPU's memory, as the engine has it: its places, its jobs, and a new load after a failure."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias, final

from repertory.models.errors import DeviceError, DeviceHung, DeviceLost, RepertoryError, again
from repertory.models.xmm_tensor import XmmTensor, aligned, batched
from repertory.transports.frame import Fate
from repertory.transports.xm_npu.errors import ClStatus, NpuAborted, NpuRefusal
from repertory.transports.xm_npu.npu import Ended, Graph, Place, Run
from repertory.transports.xm_npu.program import Loadable

from .agreement import check_tensors
from .buffer import MmzBuffer, Span
from .context import System
from .graph import LoadedGraph, aborted
from .job import Job
from .library import EventStatus, Tensor
from .model import ModelSizes
from .sides import Side
from .workspaces import Workspaces

__all__ = ["ClGraph", "Outputs", "Settings", "Spot"]

Outputs: TypeAlias = Literal["uncached", "cached"]
"""How outputs are mapped."""

_SUBMIT: Final = "xmedia_cl_graph_submit"
_PRIO: Final = "xmedia_cl_graph_set_schedule_prio"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How graphs are loaded and run.

    Attributes:
        own: whether models are loaded into memory of ours, or of the library's.
        outputs: how outputs are mapped.
        prio: of all graphs, 0 to 3, or None to leave it.
        events: whether runs are submitted, or block.
        bell: rung when a submitted run may have ended.
        now: seconds on the world's clock.
    """

    own: bool
    outputs: Outputs
    prio: int | None
    events: bool
    bell: Callable[[], None]
    now: Callable[[], float]


@final
class Spot:
    """Memory of one place; None for a side that lies inside the workspace, where copies are kept instead."""

    def __init__(self, spans: dict[Side, Span | None], model: Loadable) -> None:
        self.spans = spans
        self._copies: dict[Side, list[bytearray]] = {
            side: [bytearray(batched(tensor.size, model.batch)) for tensor in tensors]
            if spans[side] is None
            else []
            for side, tensors in _sides(model)
        }
        views = {side: self._views(side, tensors, model.batch) for side, tensors in _sides(model)}
        self.place = Place(views["input"], views["output"])

    def _views(self, side: Side, tensors: Sequence[XmmTensor], batch: int) -> tuple[memoryview, ...]:
        span = self.spans[side]
        if span is None:
            return tuple(memoryview(copy) for copy in self._copies[side])
        at, views = 0, list[memoryview]()
        for tensor in tensors:
            size = batched(tensor.size, batch)
            views.append(span.part(at, size).data)
            at += aligned(size)
        return tuple(views)

    def copies(self, side: Side) -> Sequence[bytearray]:
        """Return what stands for the tensors of a side that lies inside the workspace."""
        return self._copies[side]


@final
class ClGraph(Graph):
    """A graph by the library; made by `ClNpu.load`.

    Args:
        system: where it is loaded.
        workspaces: those that are shared.
        model: what it is.
        settings: how.
    """

    def __init__(self, system: System, workspaces: Workspaces, model: Loadable, settings: Settings) -> None:
        self._system = system
        self._workspaces = workspaces
        self._model = model
        self._settings = settings
        self._sizes: ModelSizes
        self._reuse = model.reuse
        self._loaded: LoadedGraph | None = None
        self._weight: MmzBuffer | None = None
        self._workspace: MmzBuffer | None = None
        self._release_workspace: Callable[[MmzBuffer], Awaitable[None]] | None = None
        self._blocks: list[MmzBuffer] = []
        self._spots: dict[int, Spot] = {}
        self._shared: frozenset[Side] = frozenset()
        self._running: tuple[Run, Job | None] | None = None
        self._end: Ended | None = None
        self._refused = False
        self._gone: DeviceError | None = None
        self._told = math.inf
        self.places: tuple[Place, ...] = ()

    def __repr__(self) -> str:
        return f"<ClGraph {self._model.name}: {self._loaded!r}>"

    @property
    def running(self) -> bool:
        """Whether a job was submitted whose end was not told yet."""
        return self._running is not None

    # -- loading -----------------------------------------------------------------------------------

    async def load(self, *, scratch: int = 0) -> None:
        """Bring it into memory; nothing of it stays behind where that fails.

        Args:
            scratch: see `Npu.load`.

        Raises:
            NoRoom, NpuRefusal, DeviceLost: as `Npu.load`.
        """
        try:
            await self._take_memory(scratch)
            await self._load()
            await self._make_places()
        except BaseException:
            await self.unload()
            raise

    async def load_again(self) -> None:
        """Replace a graph that failed: its memory and its places stay.

        A failed event stays with its graph, and lets later runs do nothing unnoticed.

        Raises:
            DeviceLost: that was refused, or there is no room any more; `submit` says so too from then on.
        """
        try:
            if self._loaded is not None:
                await self._loaded.unload()
            await self._load()
        except (DeviceLost, DeviceHung) as error:
            self._gone = error
            raise
        except RepertoryError as error:
            why = f"{self!r} could not be loaded again: {error}"
            self._gone = DeviceLost(why, family="xm-npu")
            raise self._gone from error

    async def unload(self) -> None:
        try:
            if self._loaded is not None:
                await self._loaded.unload()
        finally:
            self._loaded, self.places, self._spots = None, (), {}
            await self._give_memory_back()

    async def _take_memory(self, scratch: int) -> None:
        """Take parameters and workspace.

        The workspace is shared only where nothing else lies in it, and a run is one job of the hardware:
        nobody says that the programs of one run are not interleaved with those of another.
        """
        self._sizes = sizes = await self._system.sizes(self._model.data)
        if sizes.info is not None:
            self._reuse = sizes.info.memory_reuse_type
        if not self._settings.own:
            return
        if sizes.weight:
            self._weight = await self._system.allocate("npu_weight", sizes.weight)
        if not sizes.work:
            return
        if self._reuse or len(self._model.codes) > 1:
            self._workspace = await self._system.allocate("npu_workspace", sizes.work, cached=False)
            self._release_workspace = MmzBuffer.free
        else:
            self._workspace = await self._workspaces.take(sizes.work, wish=scratch)
            self._release_workspace = self._workspaces.leave

    @property
    def _cached(self) -> bool:
        return self._settings.outputs == "cached"

    async def _load(self) -> None:
        model, system = self._model, self._system
        if self._settings.own:
            loading = system.load(
                model.data,
                workspace=self._workspace,
                weight=self._weight,
                name=model.name,
                sizes=self._sizes,
                reuse=self._reuse,
            )
        else:
            loading = system.load_simply(model.data, name=model.name, reuse=self._reuse)
        self._loaded = loaded = await loading
        if loaded.shared and self._release_workspace == self._workspaces.leave:
            await self._move_workspace()
            return
        self._shared = loaded.shared
        check_tensors(model.name, "input", await loaded.inputs(), model.inputs)
        check_tensors(model.name, "output", await loaded.outputs(), model.outputs)
        if self._settings.prio is not None:
            await loaded.set_prio(self._settings.prio)
        if model.batch > 1:
            await loaded.set_batch(model.batch)

    async def _move_workspace(self) -> None:
        """Load again with a workspace of its own: only now the library says that tensors lie in it."""
        assert self._loaded is not None
        assert self._workspace is not None
        await self._loaded.unload()
        size, shared = self._workspace.size, self._workspace
        self._workspace = self._release_workspace = None
        await self._workspaces.leave(shared)
        self._workspace = await self._system.allocate("npu_workspace", size, cached=False)
        self._release_workspace = MmzBuffer.free
        await self._load()

    async def _make_places(self) -> None:
        """Two places where the next frame can be staged while one runs; else one."""
        two = self._settings.events and not self._shared
        for _ in range(2 if two else 1):
            spans: dict[Side, Span | None] = {side: await self._span(side) for side, _ in _sides(self._model)}
            spot = Spot(spans, self._model)
            self._spots[id(spot.place)] = spot
        self.places = tuple(spot.place for spot in self._spots.values())

    async def _span(self, side: Side) -> Span | None:
        """Take pages for one side of one place."""
        if side in self._shared:
            return None
        size = sum(aligned(tensor.size) for tensor in dict(_sides(self._model))[side]) * self._model.batch
        block = await self._system.allocate(f"npu_{side}", size, cached=side == "input" or self._cached)
        self._blocks.append(block)
        return block.span()

    async def _give_memory_back(self) -> None:
        """Try all of it; raise the first refusal last."""
        blocks = (*self._blocks, *([self._weight] if self._weight else []))
        steps: list[Callable[[], Awaitable[None]]] = [block.free for block in blocks]
        if self._workspace is not None and self._release_workspace is not None:
            steps.append(partial(self._release_workspace, self._workspace))
        self._blocks.clear()
        self._weight = self._workspace = self._release_workspace = None
        failures: list[RepertoryError] = []
        for step in steps:
            try:
                await step()
            except RepertoryError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    # -- runs --------------------------------------------------------------------------------------

    async def submit(self, place: Place) -> Run:
        if self._gone is not None:
            raise again(self._gone)
        loaded, spot = self._loaded, self._spots[id(place)]
        assert loaded is not None, "loaded until it is unloaded"
        if self._shared:
            await self._write_shared(loaded, spot)
        await loaded.bind(spot.spans["input"], spot.spans["output"])
        run = Run(self, place)
        if self._settings.events:
            self._running = run, await self._submitted(loaded)
        else:
            self._end = await self._process(loaded, run)
            self._running = run, None
            self._settings.bell()
        return run

    async def _submitted(self, loaded: LoadedGraph) -> Job:
        """Submit; a graph that an inner failure keeps from it is loaded again, once in a row.

        Raises:
            NpuRefusal: it was refused.
            DeviceLost: a second time in a row, or it could not be loaded again.
        """
        self._told = math.inf
        try:
            job = await loaded.submit(self._notify)
        except NpuRefusal as refusal:
            if refusal.status == ClStatus.CALL_INTERFUNC_ERR:
                if self._refused:
                    raise DeviceLost(f"{refusal}, twice", family="xm-npu", call=_SUBMIT) from refusal
                self._refused = True
                await self.load_again()
            raise
        self._refused = False
        return job

    async def ended(self) -> Ended | None:
        """Return the end of the job that was submitted, once; None while it runs, or where there is none.

        After a failure the graph must be loaded again.

        Raises:
            NpuRefusal: the library does not tell.
        """
        if self._running is None:
            return None
        run, job = self._running
        end = self._end if job is None else await self._look(run, job)
        if end is None:
            return None
        self._running = self._end = None
        if end.fate is Fate.DONE and self._shared:
            await self._read_shared(self._spots[id(run.place)])
        return end

    def _notify(self, _event: int, _status: int) -> None:
        self._told = self._settings.now()  # nobody may look before a load is through
        self._settings.bell()

    async def _process(self, loaded: LoadedGraph, run: Run) -> Ended:
        try:
            await loaded.process()
        except NpuAborted as error:
            return Ended(run, Fate.FAILED, self._settings.now(), error)
        return Ended(run, Fate.DONE, self._settings.now())

    async def _look(self, run: Run, job: Job) -> Ended | None:
        status = await job.look()
        if status is EventStatus.FAILED:
            return Ended(run, Fate.FAILED, self._seen(), aborted(self._model.name, _SUBMIT))
        return Ended(run, Fate.DONE, self._seen()) if status is EventStatus.COMPLETED else None

    def _seen(self) -> float:
        """When the end was told, or else is seen."""
        return min(self._told, self._settings.now())

    # -- tensors inside the workspace, at addresses that the library may change from run to run ----

    async def _write_shared(self, loaded: LoadedGraph, spot: Spot) -> None:
        if "input" in self._shared:
            for copy, tensor in zip(spot.copies("input"), await loaded.inputs(), strict=True):
                self._bytes(loaded, tensor, len(copy))[:] = copy

    async def _read_shared(self, spot: Spot) -> None:
        loaded = self._loaded
        assert loaded is not None
        if "output" in self._shared:
            for copy, tensor in zip(spot.copies("output"), await loaded.outputs(), strict=True):
                copy[:] = self._bytes(loaded, tensor, len(copy))

    @staticmethod
    def _bytes(loaded: LoadedGraph, tensor: Tensor, size: int) -> memoryview:
        return loaded.view(tensor, size)


def _sides(model: Loadable) -> tuple[tuple[Side, tuple[XmmTensor, ...]], ...]:
    return ("input", model.inputs), ("output", model.outputs)
