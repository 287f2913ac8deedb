"""Endpoints on a DSP's bus and their nodes: made, opened, and taken away again.

The kernel keeps an endpoint that nobody has open until the DSP stops; one is left where its node could not
be opened, or where its process was killed. Whoever holds the DSP's lock uses those of its own again, and
takes away the others.
"""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from repertory.models.errors import DeviceBusy, DeviceLost

from .discovery import FIRMWARE_ENDPOINT, Control, Sysfs
from .kernel import ADDR_ANY, ENDPOINT_INFO, RPMSG_CREATE_EPT, RPMSG_DESTROY_EPT, Kernel
from .permission import forbidden

__all__ = ["MOST_SWEPT", "MOST_WAITING", "NODE_BOUND", "Nodes", "destroy"]

NODE_BOUND: Final = 2.0
"""Seconds that a new endpoint's node may take to appear and get its permissions from udev."""
MOST_WAITING: Final = 4
"""Endpoints of this process that wait for their nodes; with so many no other is made."""
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
    """

    def __init__(self, control: Control, *, sysfs: Sysfs, dev: Path, kernel: Kernel) -> None:
        self._control = control
        self._sysfs = sysfs
        self._dev = dev
        self._kernel = kernel
        self._own = f"{_PREFIX}{os.getpid()}-"
        self._names: list[str] = []

    def ready(self) -> int | None:
        """Return the descriptor of an endpoint to the firmware, making one first unless enough wait.

        Endpoints that this process made before, and nobody has open, are opened first.

        Raises:
            DeviceLost: the control device or a node cannot be used.
            DeviceBusy: likewise, for somebody has it open.
        """
        self._names = [name for name in self._left() if name.startswith(self._own)]
        for name in list(self._names):
            try:
                found = self._open(name)
            except DeviceBusy:
                self._names.remove(name)
                continue
            if isinstance(found, int):
                return found
        if len(self._names) < MOST_WAITING:
            self._names.append(self._create())
        return None

    def look(self) -> int | DeviceLost:
        """Return the descriptor of one of those that wait, or what is missing yet.

        Raises:
            DeviceLost: a node cannot be used.
            DeviceBusy: likewise, for somebody has it open.
        """
        found: int | DeviceLost = 0
        for name in reversed(self._names):
            found = self._open(name)
            if isinstance(found, int):
                break
        return found

    def sweep(self) -> None:
        """Take away what was left of others; one that somebody has open is refused to us, and stays."""
        for name in self._left()[:MOST_SWEPT]:
            node = self._sysfs.endpoints(self._control).get(name)
            with suppress(OSError):
                if node is not None:
                    fd = self._kernel.open(self._dev / node)
                    destroy(self._kernel, fd)
                    self._kernel.close(fd)

    def _left(self) -> list[str]:
        return [name for name in self._sysfs.endpoints(self._control) if name.startswith(_PREFIX)]

    def _create(self) -> str:
        """Make an endpoint towards the firmware; the kernel tells nothing of it but success."""
        name = f"{self._own}{secrets.token_hex(4)}"
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

    def _open(self, name: str) -> int | DeviceLost:
        node_name = self._sysfs.endpoints(self._control).get(name)
        if node_name is None:
            return DeviceLost(
                f"{self._control.directory}: no endpoint {name} has appeared within {NODE_BOUND:g} s;"
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
