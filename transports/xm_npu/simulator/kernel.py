"""System calls on the nodes of a simulated NPU."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

from repertory.transports.xm_npu.ioctl.kernel import Kernel

from .machine import NpuMachine
from .memory import refuse
from .mmz_node import MmzNode
from .npu_node import NpuNode

__all__ = ["MMZ_NODE", "NPU_NODE", "SimulatedKernel"]

NPU_NODE: Final = Path("/dev/npu.0")
MMZ_NODE: Final = Path("/dev/mmz_userdev")

_FIRST_FD: Final = 3


@final
class SimulatedKernel(Kernel):
    """The system calls of one process.

    Args:
        machine: what stands behind the nodes.

    Attributes:
        pid: of the process; set another one to be a child that was forked.
        trouble: asked with the name of each call (`open`, `close`, `map`, or of an ioctl) before it is made;
            an errno makes it fail. `close` closes all the same.
        calls: names of all calls so far.
    """

    bits = 32

    def __init__(self, machine: NpuMachine) -> None:
        self.pid = machine.owner()
        self.trouble: Callable[[str], int | None] | None = None
        self.calls: list[str] = []
        self._machine = machine
        self._nodes: dict[int, NpuNode | MmzNode] = {}
        self._next = _FIRST_FD

    @property
    def descriptors(self) -> int:
        """How many are open."""
        return len(self._nodes)

    def open(self, path: Path) -> int:
        self._ask("open")
        if path.name not in self.nodes(path.parent):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        if path == MMZ_NODE and not self._machine.params.privileged:
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        kind = NpuNode if path == NPU_NODE else MmzNode
        fd, self._next = self._next, self._next + 1
        self._nodes[fd] = kind(self._machine, self.pid)
        return fd

    def close(self, fd: int) -> None:
        node = self._node(fd)
        del self._nodes[fd]
        node.release()
        self._ask("close")

    async def ioctl(self, fd: int, request: int, argument: bytearray | int = 0) -> int:
        node = self._node(fd)
        self._ask(node.name(request))
        return await node.ioctl(request, argument, self.pid)

    def map(self, fd: int, size: int) -> memoryview:
        node = self._node(fd)
        self._ask("map")
        return node.map(size)

    def memory(self, address: int, size: int) -> memoryview:
        with self._machine.condition:
            found = self._machine.mmz.mapped_at(address, real=False)
            if found is None:
                raise ValueError(f"nothing is mapped at {address:#x}: a process that looks there dies")
            return found[0].view(found[1], size)

    def nodes(self, directory: Path) -> Sequence[str]:
        known = [MMZ_NODE] if self._machine.core.gone else [MMZ_NODE, NPU_NODE]
        there = known if self._machine.params.present else []
        return sorted(path.name for path in there if path.parent == directory)

    def process(self) -> int:
        return self.pid

    def interrupt(self) -> None:
        """Send a signal: waits end with EAGAIN."""
        for node in self._nodes.values():
            if isinstance(node, NpuNode):
                node.interrupt()

    def die(self) -> None:
        """End the process, as a kill does: its descriptors are closed."""
        while self._nodes:
            self._nodes.popitem()[1].release()

    def _node(self, fd: int) -> NpuNode | MmzNode:
        if fd not in self._nodes:
            refuse(errno.EBADF, f"descriptor {fd}")
        return self._nodes[fd]

    def _ask(self, call: str) -> None:
        self.calls.append(call)
        if self.trouble is not None and (number := self.trouble(call)) is not None:
            refuse(number, f"{call} was made to fail")
