"""A model's window of the DDR: one block that holds code, parameters, workspace, inputs and outputs.

In this order, and each at a multiple of 16 bytes: so the file's own count of a program's bytes comes out.
Addresses in the code count from there, and the NPU reports whatever goes beyond the window.

The window is mapped uncached, and so needs no flush. A cache cannot be used here: neighbouring parts share
its lines, and a line that the NPU writes in one part and this process in the other is lost to one of the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, final

from repertory.models.xmm_tensor import XmmTensor, aligned
from repertory.transports.xm_npu.npu import Place
from repertory.transports.xm_npu.program import Loadable

from .mmz import Block, Mmz
from .node import Step

__all__ = ["ALIGNMENT", "Layout", "Stretch", "Window", "lay_out"]

ALIGNMENT: Final = 16
"""Bytes to which every part of a window is aligned."""


@final
@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a window.

    Attributes:
        offset: of its first byte.
        size: bytes, not rounded.
    """

    offset: int
    size: int


@final
@dataclass(frozen=True, slots=True)
class Layout:
    """Where the parts of a window lie.

    Attributes:
        codes: of each program, in the order in which a run takes them.
        params: parameters.
        work: workspace.
        inputs: all inputs, each at its own offset in here.
        outputs: likewise.
        size: bytes of the window.
    """

    codes: tuple[Stretch, ...]
    params: Stretch
    work: Stretch
    inputs: Stretch
    outputs: Stretch
    size: int


def lay_out(model: Loadable) -> Layout:
    """Return a model's layout."""
    sizes = [code.size for code in model.codes]
    sizes += [model.params[1], model.work, _extent(model.inputs), _extent(model.outputs)]
    parts, at = list[Stretch](), 0
    for size in sizes:
        parts.append(Stretch(at, size))
        at += aligned(size, ALIGNMENT)
    *codes, params, work, inputs, outputs = parts
    return Layout(tuple(codes), params, work, inputs, outputs, at)


def _extent(tensors: Iterable[XmmTensor]) -> int:
    return max((tensor.offset + tensor.size for tensor in tensors), default=0)


@final
class Window:
    """A model in the NPU's memory.

    Attributes:
        name: of the model.
        layout: where its parts lie.
        steps: the jobs of one run, in order.
        place: where a frame's tensors lie.
    """

    def __init__(self, model: Loadable, block: Block) -> None:
        self.name = model.name
        self.layout = layout = lay_out(model)
        base, end = block.address, block.address + layout.size
        self.steps = tuple(Step(code.offset, code.size, base, end) for code in layout.codes)
        self.place = Place(
            tuple(_view(block, layout.inputs, tensor) for tensor in model.inputs),
            tuple(_view(block, layout.outputs, tensor) for tensor in model.outputs),
        )
        self._block = block
        offset, size = model.params
        sources = [(code.offset, code.size) for code in model.codes] + [(offset, size)]
        data = memoryview(model.data)
        self._fixed = [
            (block.view(part.offset, part.size), data[start : start + length])
            for part, (start, length) in zip((*layout.codes, layout.params), sources, strict=True)
        ]

    @classmethod
    async def take(cls, model: Loadable, mmz: Mmz) -> Window:
        """Take a block for a model, and write what does not change into it.

        Raises:
            NoRoom, NpuRefusal, DeviceLost: as `Mmz.alloc`; nothing stays behind.
        """
        block = await mmz.alloc(model.name, max(lay_out(model).size, 1), cached=False)
        try:
            window = cls(model, block)
            window.write()
        except BaseException:
            await mmz.drop(block)
            raise
        return window

    def write(self) -> None:
        """Write code and parameters (again, after somebody may have written over them)."""
        for target, source in self._fixed:
            target[:] = source

    async def close(self) -> None:
        """Give the block back; see `Block.close`."""
        self._fixed.clear()
        await self._block.close()


def _view(block: Block, part: Stretch, tensor: XmmTensor) -> memoryview:
    return block.view(part.offset + tensor.offset, tensor.size)
