"""One run: the code is read from memory, the graph that it names computes, and memory holds the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

import numpy as np

from repertory.models import xmm_numbers
from repertory.models.errors import ArtifactError
from repertory.models.npu_code import CodeTensor
from repertory.models.spec import Array
from repertory.models.xmm_tensor import Region, XmmTensor, aligned, batched, packed_offsets
from repertory.transports.answers import hash_pattern

from .graphs import Graph, Graphs
from .memory import Mmz
from .order import Dfx, Order
from .parameters import SimulatedNpu
from .window import Stopped, find_code, find_regions, read_at

__all__ = ["Work"]

_USED: Final = 0xEE
"""What the workspace holds after a run."""

_Span: TypeAlias = tuple[int, int]


@final
class Work:
    """A run that has begun: its inputs were read, and its workspace is in use.

    Args:
        memory: where it reads and writes.
        graphs: what computes.
        params: how answers are found.
        order: what to run.
        note: told what the host did wrong.

    Attributes:
        seconds: that it takes.

    Raises:
        Stopped: the NPU stops at once.
    """

    def __init__(
        self, memory: Mmz, graphs: Graphs, params: SimulatedNpu, order: Order, note: Callable[[str], None]
    ) -> None:
        code = find_code(memory, order)
        at = find_regions(memory, order, code)
        self.seconds = params.seconds(None if code.cycles is None else code.cycles * order.batch)
        self._memory = memory
        self._note = note
        self._name = code.name
        self._inputs = _spans(at.inputs, code.inputs, order.batch)
        self._outputs = _spans(at.outputs, code.outputs, order.batch)
        data = [read_at(memory, *span) for span in self._inputs]
        if params.answers == "hash":
            self._compute = _hashes(code.name, data, code.outputs, order.batch)
        else:
            graph = _graph(memory, graphs, (at.params + code.graph[0], code.graph[1]), code.digest)
            self._compute = _Twin(graph, code.inputs, code.outputs, data, order.batch).answer
        self._answers: Sequence[Array] = ()
        self._failure: Exception | None = None
        self._use(at.work, code.sizes.work)
        for span in self._outputs:
            memory.run_begins(*span)
        self._watched = [(span, read_at(memory, *span)) for span in (*self._inputs, *self._outputs)]

    def compute(self) -> None:
        """Find the answers; from any thread, and touches nothing that others see."""
        try:
            self._answers = self._compute()
        except Exception as error:  # noqa: BLE001  (whatever goes wrong in a graph, the NPU goes on)
            self._failure = error

    def finish(self) -> None:
        """Write the answers to memory.

        Raises:
            Stopped: the graph could not be run.
        """
        if self._failure is not None:
            raise Stopped(Dfx.DEC_INST, f"{self._name}: {self._failure}") from self._failure
        for (at, size), before in self._watched:
            now = self._memory.read(at, size)
            if now is not None and not np.array_equal(now, before):
                self._note(f"{size} bytes at {at:#x} were touched while the job of {self._name} used them")
        places = (at for at, _ in self._outputs)
        self._memory.write_results(zip(places, self._answers, strict=True))

    def break_off(self) -> None:
        """Leave half a result."""
        self._memory.write_results((at, np.full(size // 2, _USED, np.uint8)) for at, size in self._outputs)

    def _use(self, at: int, size: int) -> None:
        if size:
            read_at(self._memory, at, size)
            self._memory.write(at, np.full(size, _USED, np.uint8))


@final
class _Twin:
    """A graph that answers in the NPU's numbers."""

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[CodeTensor],
        outputs: Sequence[CodeTensor],
        data: Sequence[Array],
        batch: int,
    ) -> None:
        self._graph = graph
        self._inputs = [tensor.tensor(Region.INPUT) for tensor in inputs]
        self._outputs = [tensor.tensor(Region.OUTPUT) for tensor in outputs]
        self._data = data
        self._batch = batch

    def answer(self) -> list[Array]:
        answers = [np.zeros(batched(tensor.size, self._batch), np.uint8) for tensor in self._outputs]
        for item in range(self._batch):
            given = {
                tensor.name: (tensor, _item(data, tensor, item))
                for tensor, data in zip(self._inputs, self._data, strict=True)
            }
            found = self._graph.run(given)
            for tensor, answer in zip(self._outputs, answers, strict=True):
                _put(found, tensor, _item(answer, tensor, item))
        return answers


def _item(data: Array, tensor: XmmTensor, item: int) -> memoryview:
    return data[item * aligned(tensor.size) :][: tensor.size].data


def _put(found: dict[str, Array], tensor: XmmTensor, out: memoryview) -> None:
    if tensor.name not in found:
        raise ArtifactError(f"the graph gives no {tensor.name!r}")
    try:
        array = found[tensor.name].reshape(tensor.dims)
    except ValueError as error:
        raise ArtifactError(f"{tensor.name}: the graph gives {found[tensor.name].shape}") from error
    xmm_numbers.write(array, tensor, out)


def _spans(base: int, tensors: Sequence[CodeTensor], batch: int) -> list[_Span]:
    """Return address and size of each tensor; a batch has the items of a tensor one behind the other."""
    if batch == 1:
        return [(base + tensor.offset, tensor.size) for tensor in tensors]
    sizes = [batched(tensor.size, batch) for tensor in tensors]
    return [(base + offset, size) for offset, size in zip(packed_offsets(sizes), sizes, strict=True)]


def _graph(memory: Mmz, graphs: Graphs, place: _Span, digest: bytes) -> Graph:
    try:
        return graphs.graph(memory, *place, digest)
    except ArtifactError as error:
        raise Stopped(Dfx.DEC_INST, f"parameters: {error}") from error


def _hashes(
    name: str, data: Sequence[Array], outputs: Sequence[CodeTensor], batch: int
) -> Callable[[], Sequence[Array]]:
    return lambda: [
        hash_pattern(f"{name}/{tensor.graph_name}", data, batched(tensor.size, batch)) for tensor in outputs
    ]
