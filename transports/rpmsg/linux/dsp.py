"""A DSP as Linux shows it: an endpoint from its rpmsg bus, memory from its carveout."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, final

from repertory.models.errors import DeviceLost
from repertory.transports.lock import FileLock
from repertory.transports.rpmsg.dsp import Dsp
from repertory.transports.rpmsg.endpoint import Endpoint
from repertory.transports.rpmsg.memory import Buffer

from .checks import find_control, find_processor
from .discovery import Control, Sysfs
from .endpoint import FdEndpoint
from .heap import allocate, find_heap
from .kernel import Kernel, LinuxKernel
from .nodes import NODE_BOUND, Nodes, destroy

__all__ = ["LinuxDsp"]

_waiting: dict[Path, list[str]] = {}  # endpoints that could not be opened, by the lock they were made under
_LOOK: Final = 0.01  # seconds between two looks


@final
class LinuxDsp(Dsp):
    """A DSP of this machine.

    It serves one client at a time, and no kernel guards it: an advisory lock does, between processes that
    run this package.

    Args:
        name: in the device tree.
        now: a clock, in seconds.
        pause: waits that many seconds, in the driver's thread.
        sysfs: where sysfs is mounted.
        dev: where device nodes lie.
        heap: name or path of the dma-heap; the preferred or only carveout without it.
        lock_dir: where the lock file lies; shared by all who use the DSP.
        kernel: whom to ask.
    """

    simulated = False

    def __init__(
        self,
        name: str,
        *,
        now: Callable[[], float],
        pause: Callable[[float], None],
        sysfs: Path = Path("/sys"),
        dev: Path = Path("/dev"),
        heap: str | None = None,
        lock_dir: Path = Path("/run/lock"),
        kernel: Kernel | None = None,
    ) -> None:
        self.name = name
        self._now = now
        self._pause = pause
        self._sysfs = Sysfs(sysfs)
        self._dev = dev
        self._heap = heap
        self._kernel = LinuxKernel() if kernel is None else kernel
        self._lock_file = lock_dir / f"repertory-c7x-{name}.lock"
        self._lock = FileLock(self._lock_file, f"DSP {name}", family="c7x")
        self._waiting = _waiting.setdefault(self._lock_file, [])
        self._locked = False

    async def open_endpoint(self) -> Endpoint:
        with ExitStack() as failed:
            processor = find_processor(self._sysfs, self.name)
            control = find_control(self._sysfs, self._dev, processor, self._kernel)
            if not self._locked:
                self._lock.acquire()
                self._locked = True
                failed.callback(self.close)
            nodes = self._nodes(control)
            fd = self._open(nodes)
            failed.callback(self._kernel.close, fd)
            failed.callback(self._destroy, fd)
            endpoint = FdEndpoint(fd, now=self._now, on_close=self._destroy, kernel=self._kernel)
            failed.pop_all()
        nodes.sweep()
        return endpoint

    def allocate(self, size: int) -> Buffer:
        node = self._dev / find_processor(self._sysfs, self.name).directory.name
        return allocate(self._kernel, find_heap(self._dev, self._heap), node, size)

    def close(self) -> None:
        if self._locked:
            self._locked = False
            self._lock.release()

    def _nodes(self, control: Control) -> Nodes:
        return Nodes(
            control,
            sysfs=self._sysfs,
            dev=self._dev,
            kernel=self._kernel,
            lock=self._lock_file,
            waiting=self._waiting,
        )

    def _open(self, nodes: Nodes) -> int:
        """Open an endpoint, as soon as its node is there and udev has been at it."""
        if (ready := nodes.ready()) is not None:
            return ready
        until = self._now() + NODE_BOUND
        while isinstance(found := nodes.look(), DeviceLost):
            if self._now() >= until:
                raise found
            self._pause(_LOOK)
        return found

    def _destroy(self, fd: int) -> None:
        """Take our endpoint's node away; the kernel keeps it otherwise until the DSP stops."""
        destroy(self._kernel, fd)
