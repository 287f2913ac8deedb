"""The simulated libmemx: the state machine of `core.py` in a world, with answers from twins or hashes."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast, final

import numpy as np

from repertory.models.formats import Bytes
from repertory.models.spec import Array
from repertory.transports.world import World

from .constants import DownloadType, Status
from .core import Core
from .flow import Flow
from .image import Images
from .lane import Inference
from .library import FlowSize, Libmemx
from .parameters import SimulatedMx3
from .rules import SimulatorFault, StatusError

__all__ = ["Call", "Record", "SimulatedLibmemx", "Tamper"]

M = TypeVar("M", bound=Callable[..., Coroutine[Any, Any, Any]])

_KINDS = DownloadType.WEIGHTS_AND_MODEL | DownloadType.FROM_BUFFER


@final
class Call(NamedTuple):
    """One call that returned."""

    name: str
    args: tuple[Any, ...]
    status: int


Record: TypeAlias = Callable[[Call], None]

Tamper: TypeAlias = Callable[[int, int, memoryview], None]
"""Gets model id, flow id and the bytes of an output frame, writable, as it crosses to the caller."""


def _call(method: M) -> M:
    """The border of the library: refusals become statuses, calls are recorded, and faults kept."""

    @functools.wraps(method)
    async def call(self: SimulatedLibmemx, *args: Any, **kwargs: Any) -> Any:
        try:
            result: Any = await method(self, *args, **kwargs)
        except StatusError as error:
            result = error.status
        except SimulatorFault as fault:
            self.faults.append(fault)
            raise
        if self.record is not None:
            status = result if isinstance(result, int) else result[0]
            self.record(Call(method.__name__, (*args, *kwargs.values()), status))
        return result

    return cast("M", call)


@final
class SimulatedLibmemx(Libmemx):
    """A libmemx with simulated device groups, in threads or in virtual time.

    Twins compute in the thread that reads the output, while nothing is held: in the real world a frame's
    latency is the larger of the model's and the twin's; in a virtual world computing takes no time.

    Args:
        world: where it runs; entered before.
        mx3: what is simulated.
        record: see below.
        tamper: see below.

    Attributes:
        record: told of every call that returns, such as a list's `append`; or None.
        tamper: may alter output frames; or None.
        faults: every `SimulatorFault` raised so far. A test asserts that there is none, for whoever drives
            the library may have caught it.
    """

    simulated = True
    version = "simulated"

    def __init__(
        self,
        world: World,
        mx3: SimulatedMx3 | None = None,
        *,
        record: Record | None = None,
        tamper: Tamper | None = None,
    ) -> None:
        mx3 = mx3 or SimulatedMx3()
        self.exports = frozenset({"memx_reconfigure"} if mx3.reconfigure else ())
        self.record = record
        self.tamper = tamper
        self.faults: list[SimulatorFault] = []
        self._now = world.now
        self._condition = world.condition()
        self._core = Core(mx3)
        self._images = Images(mx3)

    def hang(self, group_id: int) -> None:
        """Let everything on a group stand still for ever: streams time out, and what waits never returns."""
        self._do(lambda core, now: core.hang(group_id, now))

    def fail_download(self, count: int = 1) -> None:
        """Let the next `count` downloads return DOWNLOAD_FAILED when their time is over."""
        self._do(lambda core, _: core.fail_downloads(count))

    @_call
    async def memx_trylock(self, group_id: int) -> int:
        return self._do(lambda core, _: core.trylock(group_id))

    @_call
    async def memx_unlock(self, group_id: int) -> int:
        return self._do(lambda core, _: core.unlock(group_id))

    @_call
    async def memx_open(self, model_id: int, group_id: int, chip_gen: float) -> int:
        return self._do(lambda core, _: core.open(model_id, group_id))

    @_call
    async def memx_close(self, model_id: int) -> int:
        await self._until(lambda core, _: not core.close_hangs(model_id))
        return self._do(lambda core, now: core.close(model_id, now))

    @_call
    async def memx_reconfigure(self, model_id: int, group_id: int) -> int:
        self.require("memx_reconfigure")
        return self._do(lambda core, now: core.reconfigure(model_id, group_id, now))

    @_call
    async def memx_config_mpu_group(self, group_id: int, mpu_group_config: int) -> int:
        return self._do(lambda core, now: core.config_mpu_group(group_id, mpu_group_config, now))

    @_call
    async def memx_set_ifmap_queue_size(self, model_id: int, size: int) -> int:
        return self._do(lambda core, _: core.set_ifmap_queue_size(model_id, size))

    @_call
    async def memx_set_ofmap_queue_size(self, model_id: int, size: int) -> int:
        return self._do(lambda core, _: core.set_ofmap_queue_size(model_id, size))

    @_call
    async def memx_download_model(
        self,
        model_id: int,
        file_path: bytes,
        model_idx: int,
        type: int,  # noqa: A002  (the vendor's name)
    ) -> int:
        self._do(lambda core, _: core.context(model_id))
        kind = DownloadType(type)
        if kind & ~_KINDS:
            return Status.BAD_ARGUMENT
        if kind & DownloadType.WEIGHTS_AND_MODEL:
            await self._download(model_id, _content(file_path, kind), model_idx, kind)
        return Status.OK

    @_call
    async def memx_set_stream_enable(self, model_id: int, wait: int) -> int:
        return self._do(lambda core, now: core.enable(model_id, now))

    @_call
    async def memx_set_stream_disable(self, model_id: int, wait: int) -> int:
        self._do(lambda core, now: core.disable(model_id, now, drain=bool(wait)))
        if wait:
            await self._until(lambda core, now: core.settled(model_id, now))
        return Status.OK

    @_call
    async def memx_get_ifmap_size(self, model_id: int, flow_id: int) -> FlowSize:
        return self._size(model_id, flow_id, output=False)

    @_call
    async def memx_get_ofmap_size(self, model_id: int, flow_id: int) -> FlowSize:
        return self._size(model_id, flow_id, output=True)

    @_call
    async def memx_stream_ifmap(self, model_id: int, flow_id: int, ifmap: Array | None, timeout: int) -> int:
        flow = self._flow(model_id, flow_id, ifmap, timeout, output=False)
        frame = _frame(ifmap, flow.port.size, writable=False).tobytes()
        pushed = await self._condition.wait(
            lambda: self._push(flow, frame), timeout=timeout / 1e3 or None, next_event=flow.next_event
        )
        return Status.OK if pushed else Status.INPUT_TIMEOUT

    @_call
    async def memx_stream_ofmap(self, model_id: int, flow_id: int, ofmap: Array | None, timeout: int) -> int:
        flow = self._flow(model_id, flow_id, ofmap, timeout, output=True)
        target = _frame(ofmap, flow.port.size, writable=True)
        frame = await self._take(flow, self._now() + timeout / 1e3 if timeout else math.inf)
        if frame is None:
            return Status.OUTPUT_TIMEOUT
        target[:] = np.frombuffer(frame, np.uint8)
        if self.tamper is not None:
            self.tamper(model_id, flow_id, target.data)
        return Status.OK

    @_call
    async def memx_get_total_chip_count(self, group_id: int) -> tuple[int, int]:
        try:
            return Status.OK, self._core.chip_count(group_id)
        except StatusError as error:
            return error.status, 0

    @_call
    async def memx_operation_get_device_count(self) -> tuple[int, int]:
        return Status.OK, self._core.group_count

    def _do(self, step: Callable[[Core, float], object]) -> int:
        with self._condition:
            step(self._core, self._now())
            self._condition.notify()
        return Status.OK

    async def _until(self, ready: Callable[[Core, float], bool]) -> None:
        await self._condition.wait(
            lambda: ready(self._core, self._now()),
            timeout=None,
            next_event=lambda: self._core.next_event(self._now()),
        )

    def _size(self, model_id: int, flow_id: int, *, output: bool) -> FlowSize:
        try:
            with self._condition:
                port = self._core.flow_port(model_id, flow_id, output=output)
        except StatusError as error:
            return error.status, 0, 0, 0, 0, 0
        return Status.OK, *port.shape, port.format

    async def _download(self, model_id: int, content: bytes, model_idx: int, kind: DownloadType) -> None:
        image = self._images.read(content)
        with self._condition:
            download = self._core.begin_download(model_id, image, model_idx, kind, self._now())
        try:
            await self._condition.wait(
                lambda: self._now() >= download.until, timeout=None, next_event=lambda: download.until
            )
        finally:
            self._do(lambda core, now: core.end_download(download, now))

    def _flow(self, model_id: int, flow_id: int, array: Array | None, timeout: int, *, output: bool) -> Flow:
        with self._condition:
            return self._core.flow(model_id, flow_id, timeout, output=output, null=array is None)

    def _push(self, flow: Flow, frame: bytes) -> bool:
        pushed = flow.push(frame, self._now())
        if pushed:
            self._condition.notify()
        return pushed

    async def _take(self, flow: Flow, deadline: float) -> bytes | None:
        while True:
            frame = await self._condition.wait(
                lambda: self._taken(flow),
                timeout=None if deadline == math.inf else max(deadline - self._now(), 0.0),
                next_event=flow.next_event,
            )
            if frame is None:
                return None
            if frame.outputs is not None:
                return frame.outputs[flow.port.number]
            self._compute(frame)

    def _taken(self, flow: Flow) -> Inference | None:
        frame = flow.take(self._now())
        if frame is not None and frame.outputs is not None:
            self._condition.notify()
        return frame

    def _compute(self, frame: Inference) -> None:
        """Outside the condition: the frame was claimed, so nobody else computes it."""
        outputs, failure = None, None
        try:
            outputs = frame.network.answer(frame.inputs)
        except Exception as error:  # noqa: BLE001  (every reader of the frame is told)
            failure = SimulatorFault(f"the answer of network {frame.network.name} failed: {error!r}")
        with self._condition:
            frame.outputs, frame.failure = outputs, failure
            self._condition.notify()


def _content(file_path: bytes, kind: DownloadType) -> bytes:
    if kind & DownloadType.FROM_BUFFER:
        return file_path
    try:
        return Path(os.fsdecode(file_path)).read_bytes()
    except (OSError, ValueError) as error:
        raise StatusError(Status.DFP_CANNOT_BE_OPENED) from error


def _frame(array: Array | None, size: int, *, writable: bool) -> Bytes:
    """View a caller's frame; libmemx takes no length and would run over the end of a short one."""
    assert array is not None, "the core refuses NULL"
    if not array.flags.c_contiguous or array.nbytes < size or (writable and not array.flags.writeable):
        raise SimulatorFault(f"a buffer of {array.nbytes} bytes ({array.flags}) came for a frame of {size}")
    return array.reshape(-1).view(np.uint8)[:size]
