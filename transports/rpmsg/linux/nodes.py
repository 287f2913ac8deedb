"""Endpoints on a DSP's bus and their nodes: made, opened, and taken away again.

The kernel keeps an endpoint that nobody has open until the DSP stops; one is left where its node could not
be opened, or where its process was killed. Whoever holds the DSP's lock opens what it left itself before it
makes another, and takes away the rest.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from repertory.models.errors import DeviceBusy, DeviceError, DeviceLost

from .discovery import FIRMWARE_ENDPOINT, Control, Sysfs
from .kernel import ADDR_ANY, ENDPOINT_INFO, RPMSG_CREATE_EPT, RPMSG_DESTROY_EPT, Kernel
from .permission import forbidden

__all__ = ["LEFT_AFTER", "MOST_SWEPT", "MOST_WAITING", "NODE_BOUND", "Nodes", "destroy"]

NODE_BOUND: Final = 2.0
"""Seconds that a new endpoint's node may take to appear and get its permissions from udev."""
MOST_WAITING: Final = 4
"""Endpoints that one process leaves, at most: with so many waiting to be opened no other is made."""
LEFT_AFTER: Final = 10.0
"""Seconds by which the node of a left endpoint is older than our lock: nobody waits longer than `NODE_BOUND`
to open one. A younger one may be of another container, which does not see our lock."""
MOST_SWEPT: Final = 32
"""Left endpoints that one sweep looks at."""

_PREFIX = "repertory-"
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})


@final
class Nodes:
    """The endpoints of one bus; to be used under the DSP's lock.

    Args:
        control: where they are made.
        sysfs: where they are found.
        dev: where their nodes lie.
        kernel: whom to ask.
        lock: the DSP's lock file, written when the lock was taken.
        waiting: names of those that were made under this lock and not opened yet; kept by the caller.
    """

    def __init__(
        self,
        control: Control,
        *,
        sysfs: Sysfs,
        dev: Path,
        kernel: Kernel,
        lock: Path,
        waiting: list[str],
    ) -> None:
        self._control = control
        self._sysfs = sysfs
        self._dev = dev
        self._kernel = kernel
        self._lock = lock
        self._waiting = waiting

    def ready(self) -> int | None:
        """Return the descriptor of an endpoint that waited, or see that one is made.

        Raises:
            DeviceLost: the control device cannot be used.
        """
        there = self._sysfs.endpoints(self._control)
        self._waiting[:] = [name for name in self._waiting if name in there]
        for name in list(self._waiting):
            with suppress(DeviceLost):
                try:
                    if isinstance(found := self._open(name, there), int):
                        return found
                except DeviceBusy:  # a child process keeps it
                    self._waiting.remove(name)
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append(self._create())
        return None

    def look(self) -> int | DeviceLost:
        """Return the descriptor of one that waits, or what is missing yet.

        Raises:
            DeviceLost: no node can be used, however long we wait.
            DeviceBusy: likewise, for somebody has it open.
        """
        there = self._sysfs.endpoints(self._control)
        missing: DeviceLost | None = None
        failed: DeviceError | None = None
        for name in self._waiting:
            try:
                found = self._open(name, there)
            except (DeviceBusy, DeviceLost) as error:
                failed = error
                continue
            if isinstance(found, int):
                return found
            missing = found
        if missing is None and failed is not None:
            raise failed
        assert missing is not None, "one was made"
        return missing

    def sweep(self) -> None:
        """Take away what was left; what somebody has open is refused to us, and stays."""
        there = self._sysfs.endpoints(self._control)
        left = [node for name, node in there.items() if self._was_left(name, self._dev / node)]
        for node in left[:MOST_SWEPT]:
            with suppress(OSError):
                fd = self._kernel.open(self._dev / node)
                destroy(self._kernel, fd)
                self._kernel.close(fd)

    def _was_left(self, name: str, node: Path) -> bool:
        if name in self._waiting:
            return True
        with suppress(OSError):
            age = self._kernel.changed(self._lock) - self._kernel.changed(node)
            return name.startswith(_PREFIX) and age >= LEFT_AFTER
        return False

    def _create(self) -> str:
        """Make an endpoint towards the firmware; the kernel tells nothing of it but success."""
        name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        node = self._dev / self._control.directory.name
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
        return name

    def _open(self, name: str, there: Mapping[str, str]) -> int | DeviceLost:
        node_name = there.get(name)
        if node_name is None:
            return DeviceLost(
                f"{self._control.directory}: no endpoint {name} has appeared within {NODE_BOUND:g} s;"
                " `modprobe rpmsg_char` may be missing",
                family="c7x",
                call="RPMSG_CREATE_EPT_IOCTL",
            )
        node = self._dev / node_name
        try:
            fd = self._kernel.open(node)
        except OSError as error:
            refused = _refused(node, "open", error)
            if isinstance(refused, DeviceLost) and error.errno in {errno.ENOENT, *_FORBIDDEN}:
                refused.__cause__ = error
                return refused
            raise refused from error
        self._waiting.remove(name)
        return fd


def destroy(kernel: Kernel, fd: int) -> None:
    """Take an endpoint and its node away; the descriptor stays to be closed."""
    with suppress(OSError):  # it went with the DSP
        kernel.ioctl(fd, RPMSG_DESTROY_EPT)


def _refused(node: Path, call: str, error: OSError) -> DeviceLost | DeviceBusy:
    if error.errno in _FORBIDDEN:
        return forbidden(node, call=call)
    if error.errno == errno.EBUSY:
        return DeviceBusy(f"{node}: another process has it open", family="c7x", call=call)
    return DeviceLost(f"{node}: {call}: {error.strerror or error}", family="c7x", call=call)
