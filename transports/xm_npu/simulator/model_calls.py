"""Models: what they need, and how they are loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar, final

import numpy as np

from repertory.models.errors import ArtifactError
from repertory.models.xmm import HIGH, Xmm
from repertory.transports.xm_npu.cl.library import MemInfo
from repertory.transports.xm_npu.errors import ClStatus

from .block import Block
from .device_calls import DeviceCalls
from .holdings import HeldGraph, Side

__all__ = ["ModelCalls"]

T = TypeVar("T")

_CODE_NAME: Final = b"Npu_Module"
_OWN_NAME: Final = b"Npu_Memory"
_MEM_INFO: Final = 0
_INPUTS_INSIDE, _OUTPUTS_INSIDE = (1, 3), (2, 3)


@final
class _Refused(Exception):
    """The library refuses a model; its argument is the status."""


class ModelCalls(DeviceCalls):
    """Models are read as the library does it: the whole file; for us once is enough while it is the same."""

    async def xmedia_cl_graph_querysize_from_file(self, path: bytes | None) -> tuple[int, int, int]:
        return self._queried(lambda: _file(path), _sizes, (0, 0))

    async def xmedia_cl_graph_querysize_from_buff(self, buff: bytes | None) -> tuple[int, int, int]:
        return self._queried(lambda: _buffer(buff), _sizes, (0, 0))

    async def xmedia_cl_graph_query_model_info_from_file(
        self, path: bytes | None, info_type: int
    ) -> tuple[MemInfo, int]:
        self.require("xmedia_cl_graph_query_model_info_from_file")
        return self._info(lambda: _file(path), info_type)

    async def xmedia_cl_graph_query_model_info_from_buff(
        self, buff: bytes | None, info_type: int
    ) -> tuple[MemInfo, int]:
        self.require("xmedia_cl_graph_query_model_info_from_buff")
        return self._info(lambda: _buffer(buff), info_type)

    async def xmedia_cl_graph_get_private_data_from_file(
        self, path: bytes | None, size: int
    ) -> tuple[bytes, int]:
        self.require("xmedia_cl_graph_get_private_data_from_file")
        return self._private(lambda: _file(path), size)

    async def xmedia_cl_graph_get_private_data_from_buff(
        self, buff: bytes | None, size: int
    ) -> tuple[bytes, int]:
        self.require("xmedia_cl_graph_get_private_data_from_buff")
        return self._private(lambda: _buffer(buff), size)

    async def xmedia_cl_graph_loadmodel_from_file(self, context: int, path: bytes | None) -> tuple[int, int]:
        return await self._load(context, lambda: _file(path), None)

    async def xmedia_cl_graph_loadmodel_from_buff(self, context: int, buff: bytes | None) -> tuple[int, int]:
        return await self._load(context, lambda: _buffer(buff), None)

    async def xmedia_cl_graph_loadmodel_from_file_withmem(  # noqa: PLR0917  (the vendor's)
        self, context: int, path: bytes | None, workspace: int, worksize: int, weight: int, weightsize: int
    ) -> tuple[int, int]:
        return await self._load(context, lambda: _file(path), (workspace, worksize, weight, weightsize))

    async def xmedia_cl_graph_loadmodel_from_buff_withmem(  # noqa: PLR0917  (the vendor's)
        self, context: int, buff: bytes | None, workspace: int, worksize: int, weight: int, weightsize: int
    ) -> tuple[int, int]:
        return await self._load(context, lambda: _buffer(buff), (workspace, worksize, weight, weightsize))

    async def xmedia_cl_graph_unload(self, graph: int) -> int:
        if (found := self._graph(graph)) is None:
            return ClStatus.INVALID_VALUE
        if found.attached is not None and not found.attached.final:
            self._note(f"graph {graph:#x} is unloaded while it runs")
            attached = found.attached
            await self._wait(lambda _now: attached.final)
        del self._process.graphs[graph]
        self._machine.call(lambda _now: self._give_back(found.owned))
        return ClStatus.SUCCESS

    # -- inside ------------------------------------------------------------------------------------

    def _queried(
        self, data: Callable[[], bytes], tell: Callable[[Xmm], tuple[int, int]], nothing: tuple[int, int]
    ) -> tuple[int, int, int]:
        try:
            return *tell(self._read(data)), ClStatus.SUCCESS
        except _Refused as refused:
            return *nothing, refused.args[0]

    def _info(self, data: Callable[[], bytes], info_type: int) -> tuple[MemInfo, int]:
        if info_type != _MEM_INFO:
            return MemInfo(), ClStatus.UNSUPPORT_INFO_TYPE
        try:
            return _mem_info(self._read(data)), ClStatus.SUCCESS
        except _Refused as refused:
            return MemInfo(), refused.args[0]

    def _private(self, data: Callable[[], bytes], size: int) -> tuple[bytes, int]:
        try:
            found = self._read(data).private_data
        except _Refused as refused:
            return b"", refused.args[0]
        if found is None:
            return b"", ClStatus.PRIVATE_DATA_NULL
        if len(found) != size:
            return b"", ClStatus.PRIVATE_DATA_SIZE_ERROR
        return found, ClStatus.SUCCESS

    def _read(self, data: Callable[[], bytes]) -> Xmm:
        """Read a model.

        Raises:
            _Refused: with the status.
        """
        content = data()
        if not self._machine.params.present or self._machine.core.gone:
            raise _Refused(ClStatus.INVALID_DEVICE)
        xmm = self._last_read
        if xmm is None or xmm.data != content:
            try:
                xmm = self._last_read = Xmm.read(content)
            except ArtifactError as error:
                raise _Refused(ClStatus.INVALID_MODEL) from error
        if xmm.model_type != HIGH:
            raise _Refused(ClStatus.ERROR_MODEL_TYPE)
        return xmm

    async def _load(
        self, context: int, data: Callable[[], bytes], given: tuple[int, int, int, int] | None
    ) -> tuple[int, int]:
        if not context or context != self._process.context:
            return 0, ClStatus.INVALID_VALUE
        if not self._process.uses or self._process.dead:
            return 0, ClStatus.CALL_INTERFUNC_ERR
        try:
            xmm = self._read(data)
            if seconds := self._machine.params.load_ms / 1e3:
                await self._machine.wait(lambda _now: None, timeout=seconds)
            return self._machine.call(lambda _now: self._held(xmm, given)), ClStatus.SUCCESS
        except _Refused as refused:
            return 0, refused.args[0]

    def _held(self, xmm: Xmm, given: tuple[int, int, int, int] | None) -> int:
        """Bring a model into memory, and return its handle.

        Raises:
            _Refused: with the status; nothing stays behind.
        """
        owned: list[Block] = []
        try:
            self._process.open_queue()
            codes = self._codes(xmm, owned)
            memory = self._own(xmm, owned) if given is None else self._theirs(xmm, *given)
        except OSError as error:
            self._give_back(owned)
            raise _Refused(ClStatus.OUT_OF_HOST_MEMORY) from error
        except _Refused:
            self._give_back(owned)
            raise
        inputs, outputs = Side(xmm.reuse in _INPUTS_INSIDE), Side(xmm.reuse in _OUTPUTS_INSIDE)
        graph = HeldGraph(self._process.handle(), xmm, codes, *memory, owned, inputs, outputs)
        for side in (graph.inputs, graph.outputs):
            side.phys = graph.work if side.inside else 0
        self._process.graphs[graph.handle] = graph
        return graph.handle

    def _codes(self, xmm: Xmm, owned: list[Block]) -> list[tuple[int, int]]:
        """Copy the code to memory of the library's own, which it never forgets to flush."""
        codes: list[tuple[int, int]] = []
        for program in xmm.programs:
            block = self._block(_CODE_NAME, program.size, owned)
            block.write(0, np.frombuffer(xmm.code(program), np.uint8))
            codes.append((block.phys, program.size))
        return codes

    def _own(self, xmm: Xmm, owned: list[Block]) -> tuple[int, int, int]:
        """Return parameters, workspace, and where the host sees that, in memory of the library's own."""
        params = work = virt = 0
        if xmm.weightsize:
            block = self._block(_OWN_NAME, xmm.weightsize, owned)
            block.write(0, np.frombuffer(xmm.parameters(), np.uint8))
            params = block.phys
        if xmm.worksize:
            block = self._block(_OWN_NAME, xmm.worksize, owned)
            virt = self._machine.mmz.map(block.phys, block.size, cached=False).address
            work = block.phys
        return params, work, virt

    def _theirs(
        self, xmm: Xmm, workspace: int, worksize: int, weight: int, weightsize: int
    ) -> tuple[int, int, int]:
        """Return the same in the caller's memory; what is copied there stays in the host's cache."""
        params = self._checked(weight) if xmm.weightsize else 0
        work = self._checked(workspace) if xmm.worksize else 0
        if weightsize < xmm.weightsize:
            raise _Refused(ClStatus.CALL_INTERFUNC_ERR)
        if worksize < xmm.worksize:
            self._note(f"a workspace of {worksize} bytes was given, {xmm.worksize} are needed: nobody checks")
        if params and (found := self._at(weight)) is not None:
            block, offset = found
            if offset + xmm.weightsize > block.size:
                self._note(f"parameters of {xmm.weightsize} bytes do not fit into {block!r}: others are gone")
                raise _Refused(ClStatus.CALL_INTERFUNC_ERR)
            block.view(offset, xmm.weightsize)[:] = xmm.parameters()
            if self._machine.params.flushes:
                block.flush(offset, xmm.weightsize)
        return params, work, workspace

    def _checked(self, address: int) -> int:
        if not address:
            raise _Refused(ClStatus.INVALID_VALUE)
        phys, status = self._phys(address)
        if status:
            raise _Refused(ClStatus.ERROR_ADDR_ALIGN)
        return phys

    def _block(self, name: bytes, size: int, owned: list[Block]) -> Block:
        block = self._machine.mmz.alloc(b"", name, size, self._process.owner)
        owned.append(block)
        return block

    def _give_back(self, owned: list[Block]) -> None:
        for block in owned:
            while block.mappings:
                self._machine.mmz.unmap(block)
            if block.phys in self._machine.mmz.blocks:
                self._machine.mmz.free(block.phys, self._process.owner)


def _buffer(buff: bytes | None) -> bytes:
    if buff is None:
        raise _Refused(ClStatus.INVALID_VALUE)
    return buff


def _file(path: bytes | None) -> bytes:
    if path is None:
        raise _Refused(ClStatus.INVALID_VALUE)
    try:
        return Path(path.decode()).read_bytes()
    except (OSError, ValueError) as error:
        raise _Refused(ClStatus.READ_MODEL_FAIL) from error


def _sizes(xmm: Xmm) -> tuple[int, int]:
    return xmm.worksize, xmm.weightsize


def _mem_info(xmm: Xmm) -> MemInfo:
    sizes = xmm.sizes
    code = sum(program.size for program in xmm.programs)
    private = len(xmm.private_data or b"")
    return MemInfo(xmm.worksize, xmm.weightsize, sizes.inputs, sizes.outputs, code, xmm.reuse, private)
