"""Loaded graphs: their tensors, their buffers, their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from repertory.models.xmm_tensor import MAX_BATCH, MAX_DIMS, XmmTensor, batched, packed_offsets
from repertory.transports.xm_npu.cl.library import EventStatus, InOut, Tensor
from repertory.transports.xm_npu.errors import ClStatus

from .holdings import Event, HeldGraph, Side
from .model_calls import ModelCalls

__all__ = ["GraphCalls"]

_MAX_PRIO: Final = 3
_MAX_SHARED: Final = 16


class GraphCalls(ModelCalls):
    """At most one run of a graph is in flight: whoever wants the next waits for it, without a bound."""

    async def xmedia_cl_graph_get_input(self, graph: int, input_num: int, io: InOut | None) -> int:
        found = self._graph(graph)
        if found is None or io is None:
            return ClStatus.INVALID_VALUE
        return _told(found.xmm.inputs, found, found.inputs, input_num, io)

    async def xmedia_cl_graph_get_output(self, graph: int, output_num: int, io: InOut | None) -> int:
        found = self._graph(graph)
        if found is None or io is None:
            return ClStatus.INVALID_VALUE
        return _told(found.xmm.outputs, found, found.outputs, output_num, io)

    async def xmedia_cl_graph_set_dynamic_batch_size(
        self, graph: int, io: InOut | None, index: int, batch: int
    ) -> int:
        self.require("xmedia_cl_graph_set_dynamic_batch_size")
        found = self._graph(graph)
        if found is None or io is None or index >= len(found.xmm.inputs) or batch < 1:
            return ClStatus.INVALID_VALUE
        if batch > MAX_BATCH:
            return ClStatus.OUT_OF_MAX_BATCH
        found.batch = batch
        return ClStatus.SUCCESS

    async def xmedia_cl_graph_set_inout(self, graph: int, input: InOut | None, output: InOut | None) -> int:  # noqa: A002
        found = self._graph(graph)
        if found is None:
            return ClStatus.INVALID_VALUE
        with self._machine.condition:
            places: list[int] = []
            sides = (
                (found.inputs, input, found.xmm.inputs),
                (found.outputs, output, found.xmm.outputs),
            )
            for side, io, tensors in sides:
                phys, status = self._place(found, side, io, tensors)
                if status:
                    return status
                places.append(phys)
            found.inputs.phys, found.outputs.phys = places
            found.fresh = True
        return ClStatus.SUCCESS

    async def xmedia_cl_graph_process(self, graph: int) -> int:
        found = self._graph(graph)
        if found is None:
            return ClStatus.INVALID_VALUE
        before = await self._previous(found)
        if before is not None and before.status is EventStatus.FAILED:
            self._note(f"process of graph {graph:#x} ran nothing: an event that failed is still attached")
            return ClStatus.SUCCESS
        if not self._may_run(found):
            return ClStatus.CALL_INTERFUNC_ERR
        event = self._call(lambda now: self._started(found, now))
        await self._wait(lambda _now: event.final)
        self._process.events.pop(event.handle, None)
        self._invalidate(found)
        return ClStatus.SUCCESS if event.status is EventStatus.COMPLETED else ClStatus.CALL_INTERFUNC_ERR

    async def xmedia_cl_graph_submit(self, graph: int) -> tuple[int, int]:
        self.require("xmedia_cl_graph_submit")
        found = self._graph(graph)
        if found is None:
            return 0, ClStatus.INVALID_VALUE
        before = await self._previous(found)
        if before is not None and before.status is EventStatus.FAILED:
            return 0, ClStatus.CALL_INTERFUNC_ERR
        if not self._may_run(found):
            return 0, ClStatus.CALL_INTERFUNC_ERR
        event = self._call(lambda now: self._started(found, now))
        found.attached = event
        return event.handle, ClStatus.SUCCESS

    async def xmedia_cl_graph_set_schedule_prio(self, graph: int, prio: int) -> int:
        self.require("xmedia_cl_graph_set_schedule_prio")
        found = self._graph(graph)
        if found is None or not 0 <= prio <= _MAX_PRIO:
            return ClStatus.INVALID_VALUE
        found.prio = prio
        return ClStatus.SUCCESS

    async def xmedia_cl_graph_get_memory_reuse_type(self, graph: int) -> tuple[int, int]:
        self.require("xmedia_cl_graph_get_memory_reuse_type")
        found = self._graph(graph)
        return (0, ClStatus.INVALID_VALUE) if found is None else (found.xmm.reuse, ClStatus.SUCCESS)

    async def xmedia_cl_graph_get_private_data(self, graph: int) -> tuple[bytes, int]:
        self.require("xmedia_cl_graph_get_private_data")
        found = self._graph(graph)
        if found is None:
            return b"", ClStatus.INVALID_VALUE
        data = found.xmm.private_data
        return (b"", ClStatus.PRIVATE_DATA_NULL) if data is None else (data, ClStatus.SUCCESS)

    async def xmedia_cl_graph_set_compress_config(
        self, graph: int, device_head_addr: int, head_size: int, break_line: int
    ) -> int:
        self.require("xmedia_cl_graph_set_compress_config")
        return ClStatus.INVALID_OPERATION

    async def xmedia_cl_graph_communicate(self, graph: int) -> tuple[int, int]:
        self.require("xmedia_cl_graph_communicate")
        shared = self._process.shared
        if self._graph(graph) is None:
            return 0, ClStatus.INVALID_VALUE
        free = min(set(range(_MAX_SHARED)) - shared, default=None)
        if free is None:
            return 0, ClStatus.CALL_INTERFUNC_ERR
        shared.add(free)
        return free, ClStatus.SUCCESS

    async def xmedia_cl_graph_decommunicate(self, graph: int, model_id: int) -> int:
        self.require("xmedia_cl_graph_decommunicate")
        if self._graph(graph) is None or model_id not in self._process.shared:
            return ClStatus.INVALID_VALUE
        self._process.shared.discard(model_id)
        return ClStatus.SUCCESS

    async def xmedia_cl_set_profiling(self, graph: int, type: int, flag: int) -> int:  # noqa: A002
        self.require("xmedia_cl_set_profiling")
        return ClStatus.INVALID_VALUE if self._graph(graph) is None else ClStatus.SUCCESS

    # -- inside ------------------------------------------------------------------------------------

    def _place(
        self, graph: HeldGraph, side: Side, io: InOut | None, tensors: Sequence[XmmTensor]
    ) -> tuple[int, int]:
        """Return where one side is to lie, and the status."""
        if io is None:
            return (graph.work, ClStatus.SUCCESS) if side.inside else (0, ClStatus.INVALID_VALUE)
        if io.num != len(tensors) or not io.tensor:
            return 0, ClStatus.INVALID_VALUE
        phys, status = self._phys(io.tensor[0].addr)
        if status:
            return 0, status
        self._check_arrays(graph, io)
        sizes = [batched(tensor.size, graph.batch) for tensor in tensors]
        for each, offset in zip(io.tensor, packed_offsets(sizes), strict=True):
            if each.addr != io.tensor[0].addr + offset:
                self._note(f"tensor {each.tensor_id} was set at {each.addr:#x}, the NPU uses another place")
        return phys, ClStatus.SUCCESS

    def _check_arrays(self, graph: HeldGraph, io: InOut) -> None:
        """Notice what the library takes for a batch without a look."""
        told = [batch for each in io.tensor_batch or () for batch in (each.batch_count, *each.batch)]
        if any(told) or any(batch not in {0, graph.batch} for batch in io.current_batch or ()):
            self._note("the arrays of batches were not zeroed: garbage is read as a batch")

    async def _previous(self, graph: HeldGraph) -> Event | None:
        """Wait for the run that was submitted last, and return it."""
        event = graph.attached
        if event is not None:
            await self._wait(lambda _now: event.final)
        return event

    def _may_run(self, graph: HeldGraph) -> bool:
        if graph.xmm.reuse and not graph.fresh:
            self._note(f"graph {graph.handle:#x} of reuse type {graph.xmm.reuse} runs without new addresses")
        return graph.bound and not self._process.dead

    def _started(self, graph: HeldGraph, now: float) -> Event:
        graph.fresh = False
        if self._machine.params.flushes:
            self._flush(graph.inputs, graph.xmm.sizes.inputs * graph.batch)
            self._flush(graph.outputs, graph.xmm.sizes.outputs * graph.batch)
        return self._process.start(graph, now)

    def _invalidate(self, graph: HeldGraph) -> None:
        """Invalidate outputs after a run, if the library does so; lines are dirty only by a mistake."""
        if self._machine.params.flushes:
            with self._machine.condition:
                self._flush(graph.outputs, graph.xmm.sizes.outputs * graph.batch)

    def _flush(self, side: Side, size: int) -> None:
        block = self._machine.mmz.block(side.phys, size)
        if block is not None:
            block.flush(side.phys - block.phys, size)


def _told(tensors: Sequence[XmmTensor], graph: HeldGraph, side: Side, count: int, io: InOut) -> int:
    """Fill in how many tensors there are, or all about them."""
    if count == 0:
        io.num = len(tensors)
        return ClStatus.SUCCESS
    if count < len(tensors):
        return ClStatus.INSUFFICIENT_SIZE
    if io.tensor is None or io.tensor_batch is None or io.current_batch is None:
        return ClStatus.INVALID_VALUE
    io.num = len(tensors)
    for index, tensor in enumerate(tensors):
        address = graph.work_virt + tensor.offset if side.inside else 0
        io.tensor[index] = _tensor(tensor, address)
    return ClStatus.SUCCESS


def _tensor(tensor: XmmTensor, address: int) -> Tensor:
    """Return a tensor as the library tells it; behind its axes lies garbage."""
    garbage = (0xA5A5A5A5,) * (MAX_DIMS - len(tensor.dims))
    return Tensor(
        tensor.id,
        address,
        len(tensor.dims),
        tensor.dims + garbage,
        tensor.pitches + garbage,
        int(tensor.type),
        tensor.scale,
        tensor.zero_point,
        tensor.size,
        tensor.name.encode(),
    )
