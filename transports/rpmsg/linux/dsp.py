"""A DSP as Linux shows it: an endpoint from its rpmsg bus, memory from its carveout."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, final

from repertory.models.errors import DeviceBusy, DeviceLost
from repertory.transports.lock import FileLock
from repertory.transports.rpmsg.dsp import Dsp
from repertory.transports.rpmsg.endpoint import Endpoint
from repertory.transports.rpmsg.memory import Buffer

from .checks import find_control, find_processor
from .discovery import FIRMWARE_ENDPOINT, Control, Sysfs
from .endpoint import FdEndpoint
from .heap import allocate, find_heap
from .kernel import ADDR_ANY, ENDPOINT_INFO, RPMSG_CREATE_EPT, RPMSG_DESTROY_EPT, Kernel, LinuxKernel
from .permission import forbidden

__all__ = ["NODE_BOUND", "LinuxDsp"]

NODE_BOUND: Final = 2.0
"""Seconds that a new endpoint's node may take to appear and get its permissions from udev."""

_LOOK: Final = 0.01  # seconds between two looks
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})


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
        self._lock = FileLock(lock_dir / f"repertory-c7x-{name}.lock", f"DSP {name}", family="c7x")
        self._locked = False

    async def open_endpoint(self) -> Endpoint:
        with ExitStack() as failed:
            processor = find_processor(self._sysfs, self.name)
            control = find_control(self._sysfs, self._dev, processor, self._kernel)
            if not self._locked:
                self._lock.acquire()
                self._locked = True
                failed.callback(self.close)
            name = f"repertory-{os.getpid()}-{secrets.token_hex(4)}"
            self._create(control, name)
            fd = self._open(control, name)
            failed.callback(self._kernel.close, fd)
            failed.callback(self._destroy, fd)
            endpoint = FdEndpoint(fd, now=self._now, on_close=self._destroy, kernel=self._kernel)
            failed.pop_all()
        return endpoint

    def allocate(self, size: int) -> Buffer:
        node = self._dev / find_processor(self._sysfs, self.name).directory.name
        return allocate(self._kernel, find_heap(self._dev, self._heap), node, size)

    def close(self) -> None:
        if self._locked:
            self._locked = False
            self._lock.release()

    def _create(self, control: Control, name: str) -> None:
        """Make an endpoint towards the firmware; the kernel tells nothing of it but success."""
        node = self._dev / control.directory.name
        argument = bytearray(ENDPOINT_INFO.pack(name.encode(), ADDR_ANY, FIRMWARE_ENDPOINT))
        call = "open"
        try:
            fd = self._kernel.open(node)
            call = "RPMSG_CREATE_EPT_IOCTL"
            try:
                self._kernel.ioctl(fd, RPMSG_CREATE_EPT, argument)
            finally:
                self._kernel.close(fd)
        except OSError as error:
            raise _refused(node, call, error) from error

    def _open(self, control: Control, name: str) -> int:
        """Open the node of our endpoint, as soon as it is there and udev has been at it."""
        until = self._now() + NODE_BOUND
        while isinstance(found := self._try_open(control, name), DeviceLost):
            if self._now() >= until:
                raise found
            self._pause(_LOOK)
        return found

    def _try_open(self, control: Control, name: str) -> int | DeviceLost:
        """Return a descriptor, or what is missing yet."""
        node_name = self._sysfs.endpoint(control, name)
        if node_name is None:
            return DeviceLost(
                f"{control.directory}: no endpoint {name} has appeared within {NODE_BOUND:g} s;"
                " `modprobe rpmsg_char` may be missing",
                family="c7x",
                call="RPMSG_CREATE_EPT_IOCTL",
            )
        node = self._dev / node_name
        try:
            return self._kernel.open(node)
        except OSError as error:
            refused = _refused(node, "open", error)
            if isinstance(refused, DeviceLost) and error.errno in {errno.ENOENT, *_FORBIDDEN}:
                refused.__cause__ = error
                return refused
            raise refused from error

    def _destroy(self, fd: int) -> None:
        """Take our endpoint's node away; the kernel keeps it otherwise until the DSP stops."""
        with suppress(OSError):  # it went with the DSP
            self._kernel.ioctl(fd, RPMSG_DESTROY_EPT)


def _refused(node: Path, call: str, error: OSError) -> DeviceLost | DeviceBusy:
    if error.errno in _FORBIDDEN:
        return forbidden(node, call=call)
    if error.errno == errno.EBUSY:
        return DeviceBusy(f"{node}: another process has it open", family="c7x", call=call)
    return DeviceLost(f"{node}: {call}: {error.strerror or error}", family="c7x", call=call)
