"""INFER and INFER_LARGE: what is refused, what is run, and what the host must leave alone meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, final

import numpy as np

from repertory.models.spec import Array

from .memorymap import KV, RESULT, Region
from .module import CallFailed, Module
from .outputs import Layout, lay_out
from .protocol import DESCRIPTOR_SIZE, MAX_TENSORS, Code, Infer, Outcome, Request, Tensor, read_tensors
from .service import Service
from .slots import Loaded
from .work import Answer, Work

__all__ = ["start_job"]

_MAX_INLINE: Final = 4
_MAX_DIMS: Final = 6
_KINDS: Final = {0: "i", 1: "u", 2: "f"}
_PROBE: Final = 1 << 18
"""Bytes of a module that are compared at each job; of a larger one, its ends and a part in turn."""


def start_job(service: Service, seq: int, request: Infer) -> Answer:
    """Begin a job, or refuse it; refusals count in neither sum."""
    loaded = _entry(service, request)
    if not isinstance(loaded, Loaded):
        return _refused(service, seq, request, loaded)
    tensors = _tensors(service, request)
    if not isinstance(tensors, list):
        return _refused(service, seq, request, tensors)
    job = _Job(service, seq, request, loaded, tensors)
    return Work(job.seconds * request.repeat, job.finish, job.compute)


def _refused(service: Service, seq: int, request: Infer, status: int) -> bytes:
    if status == Code.BAD_REQUEST:
        kind = Request.INFER_LARGE if request.large else Request.INFER
        return service.replies.status(kind, seq, status)
    return service.replies.inferred(seq, Outcome(status))


def _entry(service: Service, request: Infer) -> Loaded | int:
    """Return what will run, which may be another module than the one that is named; or why nothing does."""
    loaded = service.slots.entry
    if request.handle == 0:
        return Code.BAD_HANDLE
    if loaded is None:
        if request.handle in service.slots.modules:
            service.notes.append(f"module {request.handle} has lost its entry point to another's unload")
        return Code.NO_SYMBOL
    if not loaded.module.entry:
        return Code.NO_SYMBOL
    if not service.can_print:
        return Code.BAD_REQUEST
    if request.model and request.model not in service.slots.models:
        return Code.BAD_HANDLE
    if request.handle != loaded.handle:
        service.notes.append(f"a job for module {request.handle} ran module {loaded.handle}")
    return loaded


def _tensors(service: Service, request: Infer) -> list[Tensor] | int:
    """Return the inputs' descriptors, or why they are refused."""
    regions = _regions(service, request)
    if not 0 < request.count <= (MAX_TENSORS if request.large else _MAX_INLINE):
        return Code.BAD_TENSOR
    descriptors = request.inline
    if request.large:
        if not _within(service, regions[:1], *request.table, "table of inputs"):
            return Code.BAD_ADDRESS
        address, size = request.table
        descriptors = service.carveout.read(address, min(size, MAX_TENSORS * DESCRIPTOR_SIZE))
    tensors = read_tensors(descriptors, request.count)
    if tensors is None:
        return Code.BAD_TENSOR if request.large else Code.BAD_REQUEST
    fit = all(
        0 <= tensor.ndim <= _MAX_DIMS and _within(service, regions, tensor.address, tensor.size, "input")
        for tensor in tensors
    )
    return tensors if fit else Code.BAD_TENSOR


def _regions(service: Service, request: Infer) -> tuple[Region, ...]:
    if service.params.wire == 2:  # noqa: PLR2004
        return (service.staging, KV)
    return (Region(*request.inputs),)


def _within(service: Service, regions: Sequence[Region], address: int, size: int, what: str) -> bool:
    inside = any(region.holds(address, size) for region in regions)
    return inside and service.visible(address, size, what)


@final
class _Job:
    """One inference: inputs are read as it begins, and results written as it ends.

    Attributes:
        seconds: of one run.
    """

    def __init__(
        self, service: Service, seq: int, request: Infer, loaded: Loaded, tensors: Sequence[Tensor]
    ) -> None:
        self._service = service
        self._seq = seq
        self._request = request
        self._module: Module = loaded.module
        self._tensors = tensors
        self._inputs = [service.carveout.read(tensor.address, tensor.size) for tensor in tensors]
        self._number = service.completed + service.failed + 1
        self._outputs: Sequence[Array] | None = None
        self._failure = CallFailed(-1)
        self._garbage = loaded.hollow
        self.seconds = loaded.module.seconds
        if loaded.hollow:
            service.notes.append(f"module {loaded.handle} ran in memory that another's unload has reset")
        if not self._intact():
            self._garbage = True
            service.notes.append(f"module {loaded.handle} was overwritten where it lies in staging")

    def compute(self) -> None:
        try:
            arrays = [_array(*pair) for pair in zip(self._tensors, self._inputs, strict=True)]
            self._outputs = self._module.call(arrays)
        except CallFailed as failure:
            self._failure = failure

    def finish(self) -> bytes:
        return self._service.replies.inferred(self._seq, self._outcome())

    def _outcome(self) -> Outcome:
        service, request = self._service, self._request
        printed = service.print_text(service.params.prints * request.repeat)
        runs = request.repeat if request.large else 1
        cycles = service.params.cycles(self.seconds * runs)
        if self._outputs is None:
            service.failed += 1
            if self._failure.__cause__ is not None:
                service.notes.append(f"job {self._number} failed: {self._failure.__cause__!r}")
            return Outcome(Code.CALL_FAILED, int(self._failure.args[0]), cycles, printed=printed)
        self._look_again()
        outputs = (
            [_garbled(output, self._number) for output in self._outputs] if self._garbage else self._outputs
        )
        start, room = (RESULT.start, None) if service.params.wire == 2 else request.result  # noqa: PLR2004
        layout = lay_out(outputs, start)
        if room is not None and (layout.size > room or not service.visible(start, layout.size, "result")):
            service.failed += 1
            status = Code.BAD_SIZE if layout.size > room else Code.BAD_ADDRESS
            return Outcome(status, cycles=cycles, printed=printed, required=layout.size)
        self._write(layout)
        service.completed += 1
        return Outcome(
            Code.OK, 0, cycles, layout.count, printed, layout.table, required=0, inline=layout.inline
        )

    def _look_again(self) -> None:
        """See whether the host wrote into an input while the job read it."""
        read = self._service.carveout.read
        for tensor, data in zip(self._tensors, self._inputs, strict=True):
            if read(tensor.address, tensor.size) != data:
                self._garbage = True
                self._service.notes.append(f"input overwritten while job {self._number} read it")

    def _write(self, layout: Layout) -> None:
        """Version 2 does not look at the end of its memory: what lies beyond is lost."""
        for address, data in layout.parts:
            if self._service.visible(address, len(data), "result"):
                self._service.carveout.write(address, data)

    def _intact(self) -> bool:
        """Whether the module's file, of which it uses the weights in place, is what was loaded."""
        data, start = self._module.data, self._service.staging.start
        size = len(data)
        spans = [(0, size)]
        if size > 2 * _PROBE:
            turn = self._number * _PROBE % (size - _PROBE)
            spans = [(0, _PROBE // 4), (turn, turn + _PROBE // 4), (size - _PROBE // 4, size)]
        read = self._service.carveout.read
        return all(read(start + first, last - first) == data[first:last] for first, last in spans)


def _array(tensor: Tensor, data: bytes) -> Array:
    """View an input as its descriptor says.

    Raises:
        CallFailed: the descriptor says what no array is.
    """
    kind = _KINDS.get(tensor.code)
    try:
        return np.frombuffer(data, np.dtype(f"{kind}{tensor.bits // 8}")).reshape(tensor.shape[: tensor.ndim])
    except (TypeError, ValueError) as error:
        raise CallFailed(-1) from error


def _garbled(output: Array, number: int) -> Array:
    """Return finite numbers that nobody takes for the answer."""
    digest = blake2b(b"garbage %d" % number).digest().translate(bytes(byte & 0x3F for byte in range(256)))
    return np.resize(np.frombuffer(digest, np.uint8), output.nbytes).view(output.dtype).reshape(output.shape)
