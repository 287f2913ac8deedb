"""The eight stages of the CL interface for scripts: blocking calls, line for line as in the vendor's page.

with ComputeLibrary() as cl:  # stages 1 and 2
    sizes = cl.sizes("net.xmm")  # stage 3
    work = cl.allocate("npu_workspace", sizes.work)  # stage 4
    weight = cl.allocate("npu_weight", sizes.weight)
    graph = cl.load("net.xmm", workspace=work, weight=weight)  # stage 5
    (image,) = graph.inputs()  # stage 6
    source = cl.allocate("npu_input", graph.input_bytes())  # stage 7
    result = cl.allocate("npu_output", graph.output_bytes(), cached=False)
    source.data[: image.size] = frame
    graph.bind(source, result)
    graph.process()
    answer = bytes(result.data)
    # stage 8 is the end of the block
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, final
from weakref import finalize

from repertory.transports.xm_npu.connect import opened_library

from .asked import block_size
from .buffer import MmzBuffer
from .context import DEFAULT_NODE, Devices, System
from .graph import LoadedGraph
from .interrupt import uninterrupted
from .library import Tensor, XmediaCl
from .model import Model, ModelSizes
from .sides import span_bytes

__all__ = ["ComputeLibrary", "Memory", "ModelGraph"]


@final
class Memory:
    """A block of memory that the NPU can reach; see `MmzBuffer` for errors."""

    def __init__(self, buffer: MmzBuffer) -> None:
        self.buffer = buffer

    @property
    def data(self) -> memoryview:
        """Its bytes, writable, until it is freed; then using a view is a ValueError."""
        return self.buffer.data

    def flush(self) -> None:
        """Let the NPU see what was written; runs do that by themselves."""
        uninterrupted(self.buffer.flush())

    def free(self) -> None:
        """Give it back, before the end of the block; any number of times.

        Refused while an array lies on it, or a part of a view lives. The end of the block leaves such memory
        mapped, until the process ends.
        """
        uninterrupted(self.buffer.free())


@final
class ModelGraph:
    """A loaded model; see `LoadedGraph` for errors."""

    def __init__(self, graph: LoadedGraph) -> None:
        self.graph = graph

    def inputs(self) -> Sequence[Tensor]:
        """Stage 6: ask about the inputs."""
        return uninterrupted(self.graph.inputs())

    def outputs(self) -> Sequence[Tensor]:
        """Stage 6: ask about the outputs."""
        return uninterrupted(self.graph.outputs())

    def input_bytes(self) -> int:
        """Return how much memory the inputs need: each begins at a multiple of 8."""
        return span_bytes(self.inputs(), self.graph.batch)

    def output_bytes(self) -> int:
        """Likewise for the outputs."""
        return span_bytes(self.outputs(), self.graph.batch)

    def view(self, tensor: Tensor) -> memoryview:
        """Return the bytes of a tensor that lies inside the workspace."""
        return self.graph.view(tensor)

    def set_batch(self, batch: int) -> None:
        """Let each run take 1 to 32 items, where the model can."""
        uninterrupted(self.graph.set_batch(batch))

    def bind(self, inputs: Memory | None, outputs: Memory | None) -> None:
        """Stage 7: bind memory; None for a side that lies inside the workspace."""
        uninterrupted(self.graph.bind(inputs and inputs.buffer, outputs and outputs.buffer))

    def process(self) -> None:
        """Stage 7: run and wait, without a bound."""
        uninterrupted(self.graph.process())

    def unload(self) -> None:
        """Stage 8: free the graph, before the end of the block; any number of times."""
        uninterrupted(self.graph.unload())


@final
class ComputeLibrary:
    """The library in use; a context manager. One thread may use it at a time.

    Ctrl-C is heard between two calls, and a second one at once. However the block ends, all is given back in
    order; where not even its end is reached, when this object is collected or the process ends.

    Args:
        library: folder or path of the vendor's libraries, or an address, `xm-npu://` or `sim+xm-npu://`; or
            a library that is open. None is the address in the environment's REPERTORY_XM_NPU, else /usr/lib.
        devices: of what the context is made: see `Devices`.
        zone: of memory; None for the zone `anonymous`.

    Raises:
        ConfigError: there is no such library, or it is of another revision.
    """

    def __init__(
        self,
        library: XmediaCl | str | Path | None = None,
        *,
        devices: Devices = "all",
        zone: str | None = None,
    ) -> None:
        opened = library if isinstance(library, XmediaCl) else opened_library(library)
        self.system = System(opened, devices=devices, zone=zone, node=DEFAULT_NODE)
        finalize(self, _close, self.system)

    def __enter__(self) -> Self:
        opened = self.system.opened
        try:
            uninterrupted(self.system.open())
        except BaseException:
            if not opened:
                _close(self.system)  # Ctrl-C was heard when all was open
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        uninterrupted(self.system.__aexit__(kind, error, trace))

    def sizes(self, model: Model) -> ModelSizes:
        """Stage 3: ask what memory a model needs; see `System.sizes`."""
        return uninterrupted(self.system.sizes(model))

    def allocate(self, name: str, size: int, *, cached: bool = True) -> Memory | None:
        """Stage 4: take memory that the NPU can reach; None for 0 bytes; see `System.allocate`."""
        if not block_size(name, size):
            return None
        return Memory(uninterrupted(self.system.allocate(name, size, cached=cached)))

    def load(
        self, model: Model, *, workspace: Memory | None = None, weight: Memory | None = None
    ) -> ModelGraph:
        """Stage 5: load into memory of the caller's; see `System.load`."""
        loading = self.system.load(
            model, workspace=workspace and workspace.buffer, weight=weight and weight.buffer
        )
        return ModelGraph(uninterrupted(loading))

    def load_simply(self, model: Model) -> ModelGraph:
        """Stage 5, the simplified way: into memory of the library's own; see `System.load_simply`."""
        return ModelGraph(uninterrupted(self.system.load_simply(model)))


def _close(system: System) -> None:
    uninterrupted(system.close())
