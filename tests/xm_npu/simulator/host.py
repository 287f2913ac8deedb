"""Hosts that make the calls by hand: the driver's in bytes, and the library's one by one."""

from __future__ import annotations

import errno
import struct
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from repertory.models.xmm import Xmm
from repertory.transports.xm_npu.cl.library import InOut
from repertory.transports.xm_npu.simulator.board import Board

from .models import twice

__all__ = ["NodeHost", "Page", "answered", "question", "refused"]

OPEN, CREATE, DESTROY, SUBMIT = 0x40206E1E, 0xC0046E1F, 0xC0046E20, 0xC0206E21
WAIT, QUERY, CLOSE, RESET = 0xC0186E22, 0xC0186E23, 0x80046E24, 0xC0046E26
ALLOC, FREE, REMAP, CACHED, UNMAP = 0xC04C6D0A, 0x404C6D0C, 0xC04C6D14, 0xC04C6D15, 0xC04C6D16
FLUSH = 0x400C6432
LEAVE = 0xFFFFFFFF
Floats = NDArray[np.float32]


@contextmanager
def refused(number: int) -> Generator[None]:
    """Expect a system call to fail."""
    with pytest.raises(OSError, match=r".") as caught:
        yield
    assert errno.errorcode[caught.value.errno or 0] == errno.errorcode[number]


def question(number: float) -> bytes:
    return np.full(16, number, "<f4").tobytes()


def answered(data: memoryview) -> float:
    """Return what `twice` was asked, from what it answers; all sixteen agree."""
    (value,) = set(np.frombuffer(data, "<f4").tolist())
    return float(value) / 2


@dataclass
class Block:
    phys: int
    virt: int = 0


class NodeHost:
    """One process with both nodes open."""

    def __init__(self, board: Board) -> None:
        self.kernel = board.kernel()
        self.npu = self.kernel.open(Path("/dev/npu.0"))
        self.mmz = self.kernel.open(Path("/dev/mmz_userdev"))

    async def call(self, request: int, *words: int) -> int:
        argument = bytearray(struct.pack(f"<{len(words)}I", *words)) if words else 0
        return await self.kernel.ioctl(self.npu, request, argument)

    async def prepare(self) -> None:
        await self.call(OPEN, 0, LEAVE, 0, 1, 1, 1, 1, 0)
        await self.call(CREATE)

    async def memory(
        self, request: int, *, phys: int = 0, size: int = 0, mapped: int = 0, prot: int = 3
    ) -> Block:
        argument = bytearray(struct.pack("<6I16s32sI", phys, 0, size, 0, mapped, prot, b"block", b"", 0))
        await self.kernel.ioctl(self.mmz, request, argument)
        found = struct.unpack("<6I16s32sI", argument)
        return Block(found[0], found[4])

    async def flush(self, phys: int, virt: int, size: int) -> None:
        await self.kernel.ioctl(self.mmz, FLUSH, bytearray(struct.pack("<3I", phys, virt, size)))

    async def load(self, data: bytes | None = None, *, request: int = REMAP) -> Window:
        """Lay a model out in a window of its own."""
        xmm = Xmm.read(twice() if data is None else data)
        (program,) = xmm.programs
        parts: list[bytes | memoryview] = [xmm.code(program), xmm.parameters(), bytes(xmm.sizes.work)]
        places, at = list[int](), 0
        for size in (*map(len, parts), xmm.sizes.inputs, xmm.sizes.outputs):
            places.append(at)
            at = -(-(at + size) // 16) * 16
        block = await self.memory(ALLOC, size=at)
        block = await self.memory(request, phys=block.phys, size=at)
        view = self.kernel.memory(block.virt, at)
        for place, part in zip(places, parts, strict=False):
            view[place : place + len(part)] = part
        inputs, outputs = places[3:]
        return Window(self, block.phys, block.virt, at, program.size, inputs, outputs, view)

    async def state(self, request: int, job: int, timeout: int = 1000) -> tuple[int, int]:
        """Return a job's state and report."""
        argument = bytearray(struct.pack("<4IQ", job, 0, 0, 0, timeout))
        await self.kernel.ioctl(self.npu, request, argument)
        fields = struct.unpack("<4IQ", argument)
        return int(fields[1]), int(fields[2])

    def close(self) -> None:
        for fd in (self.npu, self.mmz):
            self.kernel.close(fd)


@dataclass
class Window:
    """A model in memory."""

    host: NodeHost
    phys: int
    virt: int
    size: int
    code: int
    inputs: int
    outputs: int
    view: memoryview

    def ask(self, number: float) -> None:
        self.view[self.inputs : self.inputs + 64] = question(number)

    def answer(self) -> float:
        return answered(self.view[self.outputs : self.outputs + 64])

    async def submit(self, *, end: int | None = None) -> int:
        end = self.phys + self.size if end is None else end
        return await self.host.call(SUBMIT, 0, self.code, *[LEAVE] * 4, self.phys, end)

    async def run(self, number: float) -> float:
        self.ask(number)
        assert await self.host.state(WAIT, await self.submit()) == (2, 0)
        return self.answer()

    async def flush(self, start: int = 0, size: int | None = None) -> None:
        size = self.size - start if size is None else size
        await self.host.flush(self.phys + start, self.virt + start, size)

    async def give_back(self) -> None:
        self.view.release()
        await self.host.memory(UNMAP, mapped=self.virt)
        await self.host.memory(FREE, phys=self.phys)


@dataclass
class Buffer:
    phys: int
    virt: int
    view: memoryview


class Page:
    """A process that follows the vendor's page, as far as it was told to.

    Attributes:
        graph: that was loaded last.
    """

    def __init__(self, board: Board) -> None:
        self.cl = board.library()
        self.context = 0
        self.devices = list[int]()
        self.graphs: dict[int, tuple[Buffer, Buffer]] = {}
        self.buffers = list[Buffer]()

    async def open(self) -> None:
        cl = self.cl
        assert await cl.xmedia_cl_init() == 0
        count, _ = await cl.xmedia_cl_get_device_ids(2, None, 0)
        self.devices = [0] * count
        await cl.xmedia_cl_get_device_ids(2, self.devices, count)
        self.context, status = await cl.xmedia_cl_create_context(count, self.devices)
        assert status == 0

    async def buffer(self, size: int, *, cached: bool = False) -> Buffer:
        phys = await self.cl.xmedia_mmz_alloc(None, b"buffer", size)
        virt = await self.cl.xmedia_mmz_map(phys, size, cached)
        assert phys
        assert virt
        self.buffers.append(Buffer(phys, virt, self.cl.memory(virt, size)))
        return self.buffers[-1]

    async def flush(self, buffer: Buffer) -> int:
        return await self.cl.xmedia_mmz_flush_cache(buffer.phys, buffer.virt, len(buffer.view))

    async def load(self, data: bytes | None = None, **buffers: Any) -> int:
        """Load a model into memory of the library's own, and bind buffers of ours."""
        cl = self.cl
        graph, status = await cl.xmedia_cl_graph_loadmodel_from_buff(self.context, data or twice())
        assert status == 0
        self.graphs[graph] = (await self.buffer(4096, **buffers), await self.buffer(4096, **buffers))
        await self.bind(graph)
        return graph

    async def sides(self, graph: int) -> tuple[InOut, InOut]:
        """Return what the library tells of a graph."""
        sides = (InOut(), InOut())
        for get, io in zip(
            (self.cl.xmedia_cl_graph_get_input, self.cl.xmedia_cl_graph_get_output), sides, strict=True
        ):
            assert await get(graph, 0, io) == 0
            assert await get(graph, io.num, io.allocate()) == 0
        return sides

    async def bind(self, graph: int) -> int:
        sides = await self.sides(graph)
        for io, buffer in zip(sides, self.graphs[graph], strict=True):
            at = buffer.virt
            for each in io.tensor or ():
                each.addr = at
                at += -(-each.size // 8) * 8
        return await self.cl.xmedia_cl_graph_set_inout(graph, *sides)

    def ask(self, graph: int, number: float) -> None:
        self.graphs[graph][0].view[:64] = question(number)

    def answer(self, graph: int) -> float:
        return answered(self.graphs[graph][1].view[:64])

    async def close(self) -> None:
        cl = self.cl
        for graph in self.graphs:
            assert await cl.xmedia_cl_graph_unload(graph) == 0
        for buffer in self.buffers:
            buffer.view.release()
            assert await cl.xmedia_mmz_unmap(buffer.virt) == 0
            assert await cl.xmedia_mmz_free(buffer.phys) == 0
        assert await cl.xmedia_cl_release_context(self.context) == 0
        assert await cl.xmedia_cl_release_device_ids(self.devices, len(self.devices)) == 0
        assert await cl.xmedia_cl_uninit() == 0
