"""Stages 1, 2, 5 and 8: the library, its devices and its context, and the order in which all of it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, final

from repertory.models.errors import ConfigError, DeviceLost, NoRoom, RepertoryError
from repertory.transports.xm_npu.errors import NpuRefusal

from .asked import block_size
from .buffer import MmzBuffer, Span, allocate, pages, zone_name
from .graph import LoadedGraph
from .library import DeviceType, XmediaCl
from .loader import NODE_HINT
from .model import Model, ModelSizes, given, query_sizes, suffix
from .process import Process
from .sides import shared_sides
from .statuses import check, check_load, check_sys, misuse

__all__ = ["DEFAULT_NODE", "Devices", "System"]

Devices: TypeAlias = Literal["all", "npu"]
"""Of what a context is made: `all` devices, as the current library wants; `npu` alone, as the page has it."""

DEFAULT_NODE: Final = "/dev/npu.0"
"""For messages: the library finds the node itself."""

_TYPES: Final = {"all": DeviceType.ALL, "npu": DeviceType.NPU}

_ALL: Final = "current libraries want all of them: devices=all"

_log = logging.getLogger("repertory.xm_npu")


@final
class System:
    """The library in use, with its context; an async context manager in driver code.

    Entering makes stages 1 and 2. Leaving makes stage 8 in the order that is safe, whatever is still open:
    graphs are unloaded, then context, devices, library and system are released, and memory is freed last. In
    a forked child every call is refused, and leaving does nothing: what there is is the parent's.

    Args:
        library: the vendor's, or a simulated one.
        devices: of what the context is made.
        zone: of memory, where `allocate` names none.
        node: of the NPU, for messages.

    Attributes:
        limit: bytes of memory, in whole pages, that may be allocated together; None for no bound of ours.

    Raises:
        ConfigError: there is no such kind of devices, or zone.
    """

    def __init__(
        self,
        library: XmediaCl,
        *,
        devices: Devices = "all",
        zone: str | None = None,
        node: str = DEFAULT_NODE,
    ) -> None:
        if devices not in _TYPES:
            raise ConfigError(f"devices={devices!r}: all or npu is wanted")
        self.limit: int | None = None
        self._library = library
        self._type = _TYPES[devices]
        self._zone = zone_name(zone)
        self._node = node
        self._undo: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._devices: list[int] = []
        self._context = 0
        self._process: Process | None = None
        self._graphs: list[LoadedGraph] = []
        self._buffers: list[MmzBuffer] = []

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failure = await self.close()
        if failure is not None and error is None:
            raise failure

    @property
    def opened(self) -> bool:
        """Whether there is a context."""
        return bool(self._context)

    @property
    def inherited(self) -> bool:
        """Whether this is a fork of the process that opened it."""
        return self._process is not None and self._process.inherited

    @property
    def held(self) -> int:
        """Bytes of memory, in whole pages, that were allocated and not freed."""
        return sum(pages(each.size) for each in self._buffers if not each.freed)

    async def open(self) -> None:
        """Make stages 1 and 2; nothing stays behind where that fails.

        Raises:
            DeviceLost: there is no NPU; or this is a forked child.
            NpuRefusal: a call was refused.
        """
        self.check_process()
        if self._undo:
            raise misuse(1, "xmedia_sys_init", "the library is open already")
        self._process = Process()
        try:
            await self._initialise()
            await self._get_devices()
            await self._create_context()
        except BaseException:
            await self.close()
            raise

    def check_process(self) -> None:
        """Refuse what a forked child asks of its parent's library.

        Raises:
            DeviceLost: this is a child; names both processes.
        """
        if self._process is not None:
            self._process.check()

    async def close(self) -> RepertoryError | None:
        """Make stage 8; any number of times. Goes on after an error, and returns the first refusal.

        A graph that must not be unloaded, for a job of it is in flight or an array lies on its memory, stays,
        and with it the library. A block with an array on it stays mapped, and is logged. What has stayed is
        tried again by the next call.
        """
        if self.inherited:
            return None
        failures: list[BaseException] = []
        for graph in reversed(self._graphs):
            await _attempt(graph.unload, failures)
        self._graphs = [each for each in self._graphs if each.loaded]
        if not self._graphs:
            await self._release(failures)
        return _first(failures)

    async def _release(self, failures: list[BaseException]) -> None:
        """Release all but graphs, of which there are none."""
        while self._undo:
            await _attempt(self._undo.pop(), failures)
        self._context = 0
        for buffer in self._buffers:
            try:
                buffer.revoke()
            except NpuRefusal as error:
                _log.warning("%s; it stays mapped", str(error))
            else:
                await _attempt(buffer.free, failures)
        self._buffers = [each for each in self._buffers if not each.freed]

    # -- stages 1 and 2 ----------------------------------------------------------------------------

    async def _initialise(self) -> None:
        library = self._library
        check_sys("xmedia_sys_init", await library.xmedia_sys_init(), stage=1, node=self._node)
        self._undo.append(self._exit)
        check("xmedia_cl_init", await library.xmedia_cl_init(), stage=1, node=self._node)
        self._undo.append(self._uninit)

    async def _get_devices(self) -> None:
        call = "xmedia_cl_get_device_ids"
        if not await self._count(DeviceType.NPU):  # a list of all has the CPU in any case
            raise DeviceLost(
                f"stage 2, {call}: no NPU at {self._node}; {NODE_HINT}", family="xm-npu", call=call
            )
        number = await self._count(self._type)
        devices = [0] * number
        number, status = await self._library.xmedia_cl_get_device_ids(self._type, devices, number)
        check(call, status, stage=2, node=self._node)
        self._devices = devices
        self._undo.append(self._release_devices)

    async def _count(self, kind: int) -> int:
        call = "xmedia_cl_get_device_ids"
        number, status = await self._library.xmedia_cl_get_device_ids(kind, None, 0)
        check(call, status, stage=2, node=self._node)
        return number

    async def _create_context(self) -> None:
        call = "xmedia_cl_create_context"
        context, status = await self._library.xmedia_cl_create_context(len(self._devices), self._devices)
        check(call, status, stage=2, node=self._node, why=f"of {len(self._devices)} devices; {_ALL}")
        if not context:
            raise misuse(2, call, "it returned NULL, and no error")
        self._context = context
        self._undo.append(self._release_context)

    # -- stages 3 to 5 -----------------------------------------------------------------------------

    async def sizes(self, model: Model) -> ModelSizes:
        """Stage 3: ask what memory a model needs.

        Raises:
            DeviceLost: there is no NPU.
            NpuRefusal: the model is malformed, unreadable, or of a type that this NPU does not run.
        """
        self._check(3, f"xmedia_cl_graph_querysize_from_{suffix(model)}")
        return await query_sizes(self._library, model, node=self._node)

    async def allocate(self, name: str, size: int, *, cached: bool = True) -> MmzBuffer:
        """Stage 4: take memory that the NPU can reach.

        Args:
            name: 1 to 15 bytes.
            size: bytes, above 0.
            cached: whether the host's accesses pass through its cache.

        Raises:
            NoRoom: there is none of this size in one piece.
            NpuRefusal: the name or the size can be none, or mapping was refused.
        """
        self._check(4, "xmedia_mmz_alloc")
        size = block_size(name, size)
        self._buffers = [each for each in self._buffers if not each.freed]
        if self.limit is not None and self.held + pages(size) > self.limit:
            free = max(self.limit - self.held, 0)
            raise NoRoom(f"{name}: {size} bytes beside what is held; {free} are free", wanted=size, free=free)
        buffer = await allocate(self._library, name, size, cached=cached, zone=self._zone)
        self._buffers.append(buffer)
        return buffer

    async def load(
        self,
        model: Model,
        *,
        workspace: MmzBuffer | None = None,
        weight: MmzBuffer | None = None,
        name: str = "the graph",
        sizes: ModelSizes | None = None,
        reuse: int = 0,
    ) -> LoadedGraph:
        """Stage 5: load a model into memory of the caller's; None where it needs none.

        Args:
            model: its content, or its path.
            workspace: may be shared by graphs, as far as none has inputs or outputs in it.
            weight: of this graph alone.
            name: for messages.
            sizes: as `sizes` told them; asked for without them.
            reuse: the model's memory reuse type, where the library does not tell it.

        Raises:
            NoRoom: the library found no memory for the code.
            DeviceLost: there is no NPU.
            NpuRefusal: the model is refused, or a buffer is missing, too small or freed.
        """
        call = f"xmedia_cl_graph_loadmodel_from_{suffix(model)}_withmem"
        sizes = await self.sizes(model) if sizes is None else sizes
        for what, buffer, size in (("workspace", workspace, sizes.work), ("weight", weight, sizes.weight)):
            _check_memory(call, what, buffer, size)
        load = (
            self._library.xmedia_cl_graph_loadmodel_from_buff_withmem
            if isinstance(model, bytes)
            else self._library.xmedia_cl_graph_loadmodel_from_file_withmem
        )
        memory = (*_passed(workspace, sizes.work), *_passed(weight, sizes.weight))
        handle, status = await load(self._context, given(5, call, model), *memory)
        check_load(call, status, wanted=sizes.work + sizes.weight, node=self._node)
        held = tuple(each for each in (workspace, weight) if each is not None)
        return await self._loaded(handle, model, name, held, workspace, reuse)

    async def load_simply(self, model: Model, *, name: str = "the graph", reuse: int = 0) -> LoadedGraph:
        """Stage 5, the simplified way: load a model into memory of the library's own.

        Raises:
            NoRoom: it found none.
            DeviceLost, NpuRefusal: as `load`.
        """
        call = f"xmedia_cl_graph_loadmodel_from_{suffix(model)}"
        self._check(5, call)
        load = (
            self._library.xmedia_cl_graph_loadmodel_from_buff
            if isinstance(model, bytes)
            else self._library.xmedia_cl_graph_loadmodel_from_file
        )
        handle, status = await load(self._context, given(5, call, model))
        if status:
            sizes = await self.sizes(model)
            check_load(call, status, wanted=sizes.work + sizes.weight, node=self._node)
        return await self._loaded(handle, model, name, (), None, reuse)

    async def _loaded(  # noqa: PLR0917
        self,
        handle: int,
        model: Model,
        name: str,
        held: tuple[MmzBuffer, ...],
        workspace: MmzBuffer | None,
        reuse: int,
    ) -> LoadedGraph:
        fresh = [each for each in held if not each.in_use]  # else the job of another may be using it
        graph = LoadedGraph(self._library, handle, name, held, workspace, model)
        self._graphs = [each for each in self._graphs if each.loaded]
        self._graphs.append(graph)
        try:
            for buffer in fresh:
                await buffer.flush_lines()
            graph.shared = await shared_sides(self._library, handle, reuse)
        except BaseException:
            await graph.unload()
            raise
        return graph

    # -- stage 8 -----------------------------------------------------------------------------------

    def _check(self, stage: int, call: str) -> None:
        if not self._context:
            raise misuse(stage, call, "the library is not open: stages 1 and 2 come first")
        self.check_process()

    async def _release_context(self) -> None:
        status = await self._library.xmedia_cl_release_context(self._context)
        check("xmedia_cl_release_context", status, stage=8)

    async def _release_devices(self) -> None:
        status = await self._library.xmedia_cl_release_device_ids(self._devices, len(self._devices))
        check("xmedia_cl_release_device_ids", status, stage=8)

    async def _uninit(self) -> None:
        check("xmedia_cl_uninit", await self._library.xmedia_cl_uninit(), stage=8)

    async def _exit(self) -> None:
        check_sys("xmedia_sys_exit", await self._library.xmedia_sys_exit(), stage=8)


def _check_memory(call: str, what: str, buffer: MmzBuffer | None, size: int) -> None:
    if buffer is not None:
        Span(buffer, 0, buffer.size).check(5, call, what, size)
    elif size:
        raise misuse(5, call, f"{what}: {size} bytes are needed, and no buffer is given")


def _passed(buffer: MmzBuffer | None, size: int) -> tuple[int, int]:
    """Return address and size as the library wants them: what it does not need is NULL."""
    return (buffer.virt, buffer.size) if buffer is not None and size else (0, 0)


async def _attempt(release: Callable[[], Coroutine[Any, Any, None]], failures: list[BaseException]) -> None:
    try:
        await release()
    except BaseException as error:  # noqa: BLE001  (told in the end)
        failures.append(error)


def _first(failures: list[BaseException]) -> RepertoryError | None:
    """Return the first refusal; what else was raised is raised."""
    for each in failures:
        if not isinstance(each, RepertoryError):
            raise each
    return next((each for each in failures if isinstance(each, RepertoryError)), None)
