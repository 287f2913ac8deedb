"""The calls that move frames, or tell of the flows that they move in."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from repertory.models.formats import Bytes
from repertory.models.spec import Array
from repertory.transports.memx.constants import Status
from repertory.transports.memx.library import FlowSize, FmapBuffer

from .border import call, call_giving
from .flow import Flow
from .image import ChipPort
from .machine import Machine
from .rules import SimulatorFault

__all__ = ["StreamCalls"]


class StreamCalls(Machine):
    """A part of `Libmemx`."""

    @call_giving(0, 0, 0, 0, 0)
    async def memx_get_ifmap_size(self, model_id: int, flow_id: int) -> FlowSize:
        port = self._port(model_id, flow_id, output=False, unknown=Status.SIZE_UNKNOWN)
        return Status.OK, *port.shape, port.format

    @call_giving(0, 0, 0, 0, 0)
    async def memx_get_ofmap_size(self, model_id: int, flow_id: int) -> FlowSize:
        port = self._port(model_id, flow_id, output=True, unknown=Status.SIZE_UNKNOWN)
        return Status.OK, *port.shape, port.format

    @call_giving(0, 0.0, 0.0)
    async def memx_get_ifmap_range_convert(
        self, model_id: int, flow_id: int
    ) -> tuple[int, int, float, float]:
        port = self._port(model_id, flow_id, output=False, unknown=Status.RANGE_CONVERT_UNKNOWN)
        convert = port.convert
        return (Status.OK, 1, convert.shift, convert.scale) if convert else (Status.OK, 0, 0.0, 0.0)

    @call_giving(())
    async def memx_get_ofmap_hpoc(self, model_id: int, flow_id: int) -> tuple[int, tuple[int, ...]]:
        port = self._port(model_id, flow_id, output=True, unknown=Status.HPOC_UNKNOWN)
        return Status.OK, port.dropped

    @call
    async def memx_stream_ifmap(self, model_id: int, flow_id: int, ifmap: Array | None, timeout: int) -> int:
        flow = self._flow(model_id, flow_id, ifmap, timeout, output=False)
        frame = _frame(ifmap, flow.port.size, writable=False).tobytes()
        pushed = await self._ferry.push(flow, frame, timeout)
        return Status.OK if pushed else Status.INPUT_TIMEOUT

    @call
    async def memx_stream_ofmap(self, model_id: int, flow_id: int, ofmap: Array | None, timeout: int) -> int:
        flow = self._flow(model_id, flow_id, ofmap, timeout, output=True)
        target = _frame(ofmap, flow.port.size, writable=True)
        frame = await self._ferry.take(flow, timeout)
        if frame is None:
            return Status.OUTPUT_TIMEOUT
        target[:] = np.frombuffer(frame, np.uint8)
        self._alter(model_id, flow_id, target)
        return Status.OK

    @call_giving(None)
    async def memx_dequeue_ifmap_buf(
        self, model_id: int, flow_id: int, timeout: int
    ) -> tuple[int, FmapBuffer | None]:
        flow = self._lent_flow(model_id, flow_id, timeout, output=False)
        buffer = await self._ferry.lend_empty(flow, timeout)
        return Status.DEQUEUE_INPUT_TIMEOUT if buffer is None else Status.OK, buffer

    @call
    async def memx_enqueue_ifmap_buf(
        self, model_id: int, flow_id: int, fmap_buf: FmapBuffer, timeout: int
    ) -> int:
        flow = self._lent_flow(model_id, flow_id, timeout, output=False)
        return self._do(lambda now: flow.send(fmap_buf, now))

    @call_giving(None)
    async def memx_dequeue_ofmap_buf(
        self, model_id: int, flow_id: int, timeout: int
    ) -> tuple[int, FmapBuffer | None]:
        flow = self._lent_flow(model_id, flow_id, timeout, output=True)
        buffer = await self._ferry.lend_full(flow, timeout)
        if buffer is None:
            return Status.DEQUEUE_OUTPUT_TIMEOUT, None
        self._alter(model_id, flow_id, buffer.data)
        return Status.OK, buffer

    @call
    async def memx_enqueue_ofmap_buf(
        self, model_id: int, flow_id: int, fmap_buf: FmapBuffer, timeout: int
    ) -> int:
        flow = self._lent_flow(model_id, flow_id, timeout, output=True)
        return self._do(lambda now: flow.give_back(fmap_buf, now))

    @abstractmethod
    def _alter(self, model_id: int, flow_id: int, frame: Bytes) -> None:
        """See an output frame as it crosses to the caller."""

    def _port(self, model_id: int, flow_id: int, *, output: bool, unknown: Status) -> ChipPort:
        return self._read(lambda _: self._core.flow_port(model_id, flow_id, output=output, unknown=unknown))

    def _flow(self, model_id: int, flow_id: int, array: Array | None, timeout: int, *, output: bool) -> Flow:
        with self._condition:
            return self._core.flow(model_id, flow_id, timeout, output=output, null=array is None)

    def _lent_flow(self, model_id: int, flow_id: int, timeout: int, *, output: bool) -> Flow:
        with self._condition:
            return self._core.lent_flow(model_id, flow_id, timeout, output=output)


def _frame(array: Array | None, size: int, *, writable: bool) -> Bytes:
    """View a caller's frame; libmemx takes no length and would run over the end of a short one."""
    assert array is not None, "the core refuses NULL"
    if not array.flags.c_contiguous or array.nbytes < size or (writable and not array.flags.writeable):
        raise SimulatorFault(f"a buffer of {array.nbytes} bytes ({array.flags}) came for a frame of {size}")
    return array.reshape(-1).view(np.uint8)[:size]
