"""Both nodes, as a test tells them to be: a queue of jobs that end when the test says so, and pages.

Codes and layouts are written out a second time here, from the driver's sources and not from the package.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import numpy as np

from repertory.models.program import Network
from repertory.models.spec import TensorSpec
from repertory.models.xmm_tensor import NpuType, Region, XmmTensor
from repertory.transports.world import World
from repertory.transports.xm_npu.ioctl.kernel import Kernel
from repertory.transports.xm_npu.program import Code, Loadable

__all__ = ["MMZ", "NPU", "ScriptedKernel", "made", "word"]

NPU: Final = Path("/dev/npu.0")
MMZ: Final = Path("/dev/mmz_userdev")

OPEN, CREATE, DESTROY, SUBMIT = 0x40206E1E, 0xC0046E1F, 0xC0046E20, 0xC0206E21
WAIT, QUERY, CLOSE, RESET, CAPABILITY = 0xC0186E22, 0xC0186E23, 0x80046E24, 0xC0046E26, 0xC0046E28
ALLOC, FREE, REMAP, REMAP_CACHED, UNMAP = 10, 12, 20, 21, 22
FLUSH = 0x400C6432

NAMES: Final = {
    OPEN: "OPEN",
    CREATE: "CREATE_QUEUE",
    DESTROY: "DESTROY_QUEUE",
    SUBMIT: "SUBMIT_JOB",
    WAIT: "WAIT_JOB",
    QUERY: "QUERY_JOB",
    CLOSE: "CLOSE",
    RESET: "RESET",
    CAPABILITY: "GET_CAPABILITY",
    FLUSH: "FLUSH_DCACHE_DIRTY",
    **{
        direction | size << 16 | 0x6D00 | nr: name
        for size in (76, 80)
        for direction, nr, name in (
            (0xC0000000, ALLOC, "ALLOC"),
            (0x40000000, FREE, "FREE"),
            (0xC0000000, REMAP, "USER_REMAP"),
            (0xC0000000, REMAP_CACHED, "USER_REMAP_CACHED"),
            (0xC0000000, UNMAP, "UNMAP"),
        )
    },
}


def word(data: bytes | bytearray, offset: int) -> int:
    """Return 32 bits of a table."""
    return int.from_bytes(data[offset : offset + 4], "little")


@final
class ScriptedKernel(Kernel):
    """Two nodes, and whatever fails as a test wants it.

    Attributes:
        calls: names of all calls, in order.
        tables: arguments of them as they were given, likewise.
        fail: errnos for calls by name: the first of them is taken, once; at `open` and `close` too.
        nth: the call (by its number) that fails with EIO, whatever it is.
        fds: paths of open descriptors.
        blocks: bytes of each block that is taken, by its physical address.
        mapped: physical addresses by those that they are mapped at.
        ends: state and report of jobs that have ended and were not collected.
        unheard: a job, and its state and report, that ends when somebody looks at a job.
        behind: jobs that wait behind those of another program.
        last: number of the last job.
        queue: whether there is one.
        pid: of this process.
        wrong: what must not happen: a call for a job that is out, or comes, while the queue is dropped.
    """

    bits = 32

    def __init__(self, world: World) -> None:
        self.calls: list[str] = []
        self.tables: list[bytes] = []
        self.fail: dict[str, list[int]] = {}
        self.nth = -1
        self.fds: dict[int, Path] = {}
        self.blocks: dict[int, bytearray] = {}
        self.mapped: dict[int, int] = {}
        self.ends: dict[int, tuple[int, int]] = {}
        self.unheard: tuple[int, int, int] | None = None
        self.behind: set[int] = set()
        self.last = 0
        self.queue = False
        self.pid = 1000
        self.wrong: list[str] = []
        self._resetting = False
        self._out = 0
        self.paths = {NPU, MMZ}
        self._condition = world.condition()

    def end(self, job: int, state: int = 2, report: int = 0) -> None:
        """Let a job end."""
        with self._condition:
            self.ends[job] = state, report
            self._condition.notify()

    def named(self, *names: str) -> list[str]:
        """Return the calls of these names, in order."""
        return [call for call in self.calls if call in names]

    def table(self, name: str) -> bytes:
        """Return the last argument of a call."""
        return self.tables[len(self.calls) - 1 - self.calls[::-1].index(name)]

    def open(self, path: Path) -> int:
        self._call("open", b"")
        if path not in self.paths:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        fd = 3 + len(self.calls)
        self.fds[fd] = path
        return fd

    def close(self, fd: int) -> None:
        path = self.fds.pop(fd)
        if path == MMZ:
            self.blocks.clear()
        self._call("close", b"")

    async def ioctl(self, fd: int, request: int, argument: bytearray | int = 0) -> int:
        name = NAMES.get(request)
        if name is None:
            raise OSError(errno.EINVAL, f"unknown call {request:#x}")
        table = bytes(argument) if isinstance(argument, bytearray) else b""
        assert request >> 16 & 0x3FFF in {len(table), 4}, name
        self._call(name, table)
        path = NPU if request >> 8 & 0xFF == ord("n") else MMZ
        assert self.fds[fd] == path, name
        if request in {WAIT, QUERY}:
            assert isinstance(argument, bytearray)
            return await self._tell(argument, waits=request == WAIT)
        if path == NPU:
            return self._npu(request)
        return self._memory(request & 0xFF, argument) if isinstance(argument, bytearray) else 0

    def map(self, fd: int, size: int) -> memoryview:
        raise NotImplementedError

    def memory(self, address: int, size: int) -> memoryview:
        return memoryview(self.blocks[self.mapped[address]])[:size]

    def nodes(self, directory: Path) -> Sequence[str]:
        return sorted(path.name for path in self.paths if path.parent == directory)

    def process(self) -> int:
        return self.pid

    def _call(self, name: str, table: bytes) -> None:
        self.calls.append(name)
        self.tables.append(table)
        number = errno.EIO if len(self.calls) == self.nth else 0
        if self.fail.get(name):
            number = self.fail[name].pop(0)
        if number:
            raise OSError(number, os.strerror(number))

    def _npu(self, request: int) -> int:
        if request == CREATE:
            self._resetting = False
            self.last = self.last if self.queue else 0
            self.queue = True
        elif request in {RESET, DESTROY}:
            self.queue, self._resetting = False, True
            self.ends.clear()
            self.behind.clear()
            if self._out:
                self.wrong.append("somebody waits for a job of a queue that is dropped")
        elif request == SUBMIT:
            self._demand_queue()
            self.last += 1
            return self.last
        return 7 if request == CAPABILITY else 0

    async def _tell(self, table: bytearray, *, waits: bool) -> int:
        job = word(table, 0)
        if self._resetting:
            self.wrong.append(f"somebody asks for job {job} of a queue that was dropped")
        self._demand_queue()
        if job > self.last:
            raise OSError(errno.EFAULT, "no such job")
        if not waits and self.unheard is not None:
            self.end(*self.unheard)
            self.unheard = None
        timeout = int.from_bytes(table[16:24], "little") / 1000 if waits else 0.0
        assert timeout or not waits, "this would wait for ever"
        self._out += 1
        try:
            end = await self._condition.wait(
                lambda: self.ends.pop(job, None), timeout=timeout, next_event=lambda: math.inf
            )
        finally:
            self._out -= 1
        if end is None and waits:
            raise OSError(errno.EAGAIN, "not yet")
        state, report = end or (0 if job in self.behind else 1, 0)
        table[4:12] = state.to_bytes(4, "little") + report.to_bytes(4, "little")
        return 0

    def _demand_queue(self) -> None:
        if not self.queue:
            raise OSError(errno.EFAULT, "no queue")

    def _memory(self, nr: int, table: bytearray) -> int:
        address = word(table, 0)
        if nr == ALLOC:
            assert word(table, 20) == 0x103, "to read and to write, shared"
            address = 0x42000000 + 0x100000 * len(self.calls)
            self.blocks[address] = bytearray(b"\xaa" * word(table, 8))
            table[:4] = address.to_bytes(4, "little")
        elif nr in {REMAP, REMAP_CACHED}:
            virtual = address + 0x70000000
            self.mapped[virtual] = address
            table[16:20] = virtual.to_bytes(4, "little")
        elif nr == UNMAP:
            assert self.mapped.pop(word(table, 16)) == address
        elif nr == FREE:
            assert address not in self.mapped.values(), "unmap comes first"
            del self.blocks[address]
        return 0


def made(name: str = "net", *, codes: Sequence[int] = (20,), params: int = 40) -> Loadable:
    """Return a model of two inputs (10 and 3 bytes) and one output (5), whose bytes count from 1 on."""
    data = bytes(range(1, sum(codes) + params + 1))
    starts = [sum(codes[:index]) for index in range(len(codes))]
    inputs = (_tensor("a", Region.INPUT, 0, 10), _tensor("b", Region.INPUT, 16, 3))
    outputs = (_tensor("y", Region.OUTPUT, 0, 5),)
    network = Network(
        name,
        tuple(TensorSpec(each.name, each.dims, np.dtype("uint8")) for each in inputs),
        tuple(TensorSpec(each.name, each.dims, np.dtype("float32")) for each in outputs),
    )
    return Loadable(
        data,
        name,
        tuple(Code(start, size) for start, size in zip(starts, codes, strict=True)),
        (sum(codes), params),
        33,
        inputs,
        outputs,
        0,
        1,
        False,
        network,
    )


def _tensor(name: str, region: Region, offset: int, size: int) -> XmmTensor:
    return XmmTensor(name, region, offset, (size,), (1,), NpuType.UINT8, size)
