"""Stages 6 and 7: the tensors of a loaded model, the memory that is bound to them, and runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, final

from repertory.models.xmm_tensor import MAX_BATCH, aligned, batched
from repertory.transports.xm_npu.errors import ClStatus, NpuAborted, cl_refusal
from repertory.transports.xm_npu.views import Views

from .buffer import MmzBuffer, Span
from .job import Job
from .library import InOut, Notify, Tensor, XmediaCl
from .model import Model
from .process import Process
from .sides import Side, ask, label, span_bytes
from .statuses import check, check_sys, misuse

__all__ = ["LoadedGraph", "aborted"]

_SET: Final = "xmedia_cl_graph_set_inout"
_RUN: Final = "xmedia_cl_graph_process"
_SUBMIT: Final = "xmedia_cl_graph_submit"
_UNLOAD: Final = "xmedia_cl_graph_unload"


@final
@dataclass(slots=True)
class _Bound:
    """What is bound to one side; `span` is None where the tensors lie in the workspace."""

    io: InOut
    span: Span | None


@final
class LoadedGraph:
    """A loaded model; made by `System.load`.

    Attributes:
        name: for messages.
        shared: the sides whose tensors lie inside the workspace, at addresses of the library's.
        loaded: whether it was not unloaded yet.
        batch: items that one run takes.
    """

    def __init__(  # noqa: PLR0917
        self,
        library: XmediaCl,
        handle: int,
        name: str,
        held: tuple[MmzBuffer, ...],
        workspace: MmzBuffer | None,
        model: Model,
    ) -> None:
        self._library = library
        self._model: Model | None = model  # nobody says that the library copies what it needs of a buffer
        self._handle = handle
        self._held = held
        self._workspace = workspace
        self._bound: dict[Side, _Bound] = {}
        self._placed: dict[tuple[Side, int], InOut] = {}
        self._job: Job | None = None
        self._way: str | None = None
        self._process = Process()
        self._looks: dict[tuple[int, int], Views] = {}  # at memory that goes with the graph
        self.name = name
        self.shared: frozenset[Side] = frozenset()
        self.loaded = True
        self.batch = 1
        for buffer in held:
            buffer.hold(name)

    def __repr__(self) -> str:
        state = "unloaded" if not self.loaded else "running" if self.running else "loaded"
        return f"<LoadedGraph {self.name}: {state}>"

    @property
    def running(self) -> bool:
        """Whether a submitted job's end was not seen yet."""
        return self._job is not None and not self._job.final

    @property
    def failed(self) -> bool:
        """Whether a job failed: a failed event stays attached, and lets later runs do nothing unnoticed."""
        return self._way == "failed"

    # -- stage 6 -----------------------------------------------------------------------------------

    async def inputs(self) -> Sequence[Tensor]:
        """Stage 6: ask about the inputs.

        Raises:
            NpuRefusal: the call was refused, or its answer can be none of this revision of the library.
        """
        return (await self._ask("input")).tensor or ()

    async def outputs(self) -> Sequence[Tensor]:
        """Likewise about the outputs."""
        return (await self._ask("output")).tensor or ()

    def view(self, tensor: Tensor, size: int | None = None) -> memoryview:
        """Return the bytes of a tensor that has an address, as those inside the workspace have.

        The view is released with the workspace's memory: with the graph where that is the library's.

        Args:
            tensor: which, as `inputs` or `outputs` told it just now.
            size: bytes, where a batch has more than the tensor.

        Raises:
            NpuRefusal: it has none, or the graph was unloaded.
        """
        self._check(7, _SET)
        if not tensor.addr:
            raise misuse(7, _SET, f"{self.name}: {label(tensor)} has no address yet")
        size = tensor.size if size is None else size
        if (span := self._in_workspace(tensor.addr, size)) is not None:
            return span.data
        key = tensor.addr, size
        if key not in self._looks:
            self._looks[key] = Views(partial(self._library.memory, *key))
        return self._looks[key].take(0, size)

    def _in_workspace(self, start: int, size: int) -> Span | None:
        """Return where in our workspace something lies, if the workspace is ours."""
        workspace = self._workspace
        if workspace is None or not workspace.virt <= start < workspace.virt + workspace.size:
            return None
        return workspace.span(start - workspace.virt, size)

    async def _ask(self, side: Side) -> InOut:
        self._check(6, f"xmedia_cl_graph_get_{side}")
        return await ask(self._library, self._handle, side, self.name)

    # -- stage 7 -----------------------------------------------------------------------------------

    async def set_batch(self, batch: int) -> None:
        """Let each run take so many items, from the next `bind` on.

        Raises:
            NpuRefusal: it is not 1 to 32, or the model has a fixed batch.
            ConfigError: the library does not know dynamic batches.
        """
        call = "xmedia_cl_graph_set_dynamic_batch_size"
        self._check(7, call)
        self._library.require(call)
        if not 1 <= batch <= MAX_BATCH:
            raise misuse(7, call, f"{self.name}: a batch of {batch} is not 1 to {MAX_BATCH}")
        before, self.batch = self.batch, batch
        self._placed.clear()
        try:
            await self._batched(await self._ask("input"))
        except BaseException:
            self.batch = before
            raise

    async def set_prio(self, prio: int) -> None:
        """Let its jobs go before those of lower numbers.

        Args:
            prio: 0 to 3.

        Raises:
            NpuRefusal: the number is no priority.
            ConfigError: the library knows none.
        """
        call = "xmedia_cl_graph_set_schedule_prio"
        self._check(7, call)
        self._library.require(call)
        check(call, await self._library.xmedia_cl_graph_set_schedule_prio(self._handle, prio), stage=7)

    async def bind(self, inputs: Span | MmzBuffer | None, outputs: Span | MmzBuffer | None) -> None:
        """Stage 7: bind memory: the tensors of a side follow each other at multiples of 8 bytes.

        Args:
            inputs: `span_bytes` bytes, or None where they lie inside the workspace.
            outputs: likewise.

        Raises:
            NpuRefusal: a side is missing, too small, freed, does not begin at a multiple of 8, or is given
                though its tensors lie in the workspace; both share a line of the cache; or a job is in
                flight.
        """
        self._check_idle(_SET)
        sides: dict[Side, Span | MmzBuffer | None] = {"input": inputs, "output": outputs}
        spans: dict[Side, Span | None] = {
            side: Span(each, 0, each.size) if isinstance(each, MmzBuffer) else each
            for side, each in sides.items()
        }
        if spans["input"] and spans["output"] and spans["input"].meets(spans["output"]):
            raise misuse(7, _SET, f"inputs and outputs of {self.name} share a line of the cache")
        bound: dict[Side, _Bound] = {side: await self._place(side, span) for side, span in spans.items()}
        ios = [None if side in self.shared else each.io for side, each in bound.items()]
        check(_SET, await self._library.xmedia_cl_graph_set_inout(self._handle, *ios), stage=7)
        self._let_go()
        self._bound = bound
        for side, each in bound.items():
            if each.span is not None:
                each.span.buffer.hold(self.name)
                if side == "output":
                    each.span.buffer.results(each.span)

    async def process(self) -> None:
        """Stage 7: run the graph and wait, without a bound; cached inputs and outputs are flushed before.

        Raises:
            NpuAborted: the NPU stopped; the graph must be loaded again.
            NpuRefusal: nothing is bound; it was used by `submit` before; or the call was refused.
        """
        await self._prepare(_RUN)
        status = await self._library.xmedia_cl_graph_process(self._handle)
        if status == ClStatus.CALL_INTERFUNC_ERR:
            self._way = "failed"
            raise aborted(self.name, _RUN)
        if status:
            raise cl_refusal(_RUN, status, stage=7)
        self._ran()

    async def submit(self, notify: Notify | None = None) -> Job:
        """Stage 7: queue a run; cached inputs and outputs are flushed before.

        Args:
            notify: may be called, in a thread of the library or at once, when it has ended; see `Notify`.

        Raises:
            NpuRefusal: nothing is bound; it was used by `process` before; the end of the last job was not
                seen; or the call was refused.
            ConfigError: the library cannot do that.
        """
        self._library.require(_SUBMIT)
        await self._prepare(_SUBMIT)
        event, status = await self._library.xmedia_cl_graph_submit(self._handle)
        check(_SUBMIT, status, stage=7)
        if not event:
            raise misuse(7, _SUBMIT, f"{self.name}: it returned no event, and no error")
        self._job = Job(self._library, event, self._ended)
        self._ran()
        await self._job.listen(notify)
        return self._job

    # -- stage 8 -----------------------------------------------------------------------------------

    async def unload(self) -> None:
        """Stage 8: free the graph; its memory may be freed from then on. Any number of times.

        Raises:
            NpuRefusal: a job is in flight; an array lies on memory that goes with the graph; or the library
                refuses, and the graph is gone for us all the same.
            DeviceLost: this is a forked child.
        """
        if not self.loaded:
            return
        self._check_idle(_UNLOAD, stage=8)
        self._revoke()
        self.loaded = False
        try:
            status = await self._library.xmedia_cl_graph_unload(self._handle)
        finally:
            self._let_go()
            self._model = None
            for buffer in self._held:
                buffer.drop(self.name)
        check(_UNLOAD, status, stage=8)

    def _revoke(self) -> None:
        try:
            for views in self._looks.values():
                views.revoke()
        except BufferError as error:
            raise misuse(8, _UNLOAD, f"{self.name} has an array on its workspace: drop that first") from error

    # -- checks and bookkeeping --------------------------------------------------------------------

    async def _place(self, side: Side, span: Span | None) -> _Bound:
        """Give the tensors of a side their addresses."""
        if side in self.shared:
            if span is not None:
                raise misuse(7, _SET, f"{self.name}: its {side}s lie in the workspace; give None for them")
            return _Bound(await self._ask(side), None)
        if span is None:
            raise misuse(7, _SET, f"{self.name}: its {side}s need memory")
        key = side, span.virt
        if key not in self._placed:
            self._placed[key] = await self._lay_out(side, span)
        io = self._placed[key]
        span.check(7, _SET, f"{side}s of {self.name}", span_bytes(io.tensor or (), self.batch))
        return _Bound(io, span)

    async def _lay_out(self, side: Side, span: Span) -> InOut:
        io = await self._ask(side)
        if side == "input" and self.batch > 1:
            await self._batched(io)
        at = span.virt
        for tensor in io.tensor or ():
            tensor.addr = at
            at += aligned(tensor.size) * self.batch
        return io

    async def _batched(self, io: InOut) -> None:
        call = "xmedia_cl_graph_set_dynamic_batch_size"
        for index in range(io.num):
            status = await self._library.xmedia_cl_graph_set_dynamic_batch_size(
                self._handle, io, index, self.batch
            )
            check(call, status, stage=7)

    async def _prepare(self, call: str) -> None:
        """Check that a run is right, and let the NPU see what the host wrote."""
        self._check_idle(call)
        if self._way not in {None, call}:
            why = "a job of it failed" if self.failed else f"it is run by {self._way}, and both do not mix"
            raise misuse(7, call, f"{self.name}: {why}; load it again")
        if not self._bound:
            again = " again" if self.shared and self._way else ""
            raise misuse(7, call, f"{self.name}: memory must be bound{again} first")
        for bound in self._bound.values():
            if bound.span is not None:
                bound.span.check(7, call, f"memory bound to {self.name}", 0)
                await bound.span.flush()
            else:
                await self._flush_shared(bound.io.tensor or [])
        self._way = call

    async def _flush_shared(self, tensors: Sequence[Tensor]) -> None:
        """Flush tensors inside the workspace, whoever owns it; each line once."""
        start = min(tensor.addr for tensor in tensors)
        size = max(tensor.addr + batched(tensor.size, self.batch) for tensor in tensors) - start
        if (span := self._in_workspace(start, size)) is not None:
            await span.flush()
            return
        call = "xmedia_mmz_virt_to_phy"
        self._library.require(call)
        phy, status = await self._library.xmedia_mmz_virt_to_phy(start)
        check_sys(call, status, stage=7)
        status = await self._library.xmedia_mmz_flush_cache(phy, start, size)
        check_sys("xmedia_mmz_flush_cache", status, stage=7)

    def _ran(self) -> None:
        if self.shared:  # the library wants the addresses anew before every run
            self._let_go()

    def _ended(self, failed: bool) -> None:  # noqa: FBT001  (a callback)
        if failed:
            self._way = "failed"

    def _let_go(self) -> None:
        for bound in self._bound.values():
            if bound.span is not None:
                bound.span.buffer.drop(self.name)
                bound.span.buffer.results(None)
        self._bound = {}

    def _check(self, stage: int, call: str) -> None:
        self._process.check()
        if not self.loaded:
            raise misuse(stage, call, f"{self.name} is used after it was unloaded")

    def _check_idle(self, call: str, *, stage: int = 7) -> None:
        self._check(stage, call)
        if self.running:
            raise misuse(stage, call, f"{self.name}: the end of its job was not seen yet")


def aborted(name: str, call: str) -> NpuAborted:
    """Return the error for a job that failed."""
    return NpuAborted(f"{name}: the NPU stopped; the library does not tell the DFX report", call=call)
