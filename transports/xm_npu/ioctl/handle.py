"""An open node of the driver, bound to the process that opened it; errnos become typed errors here."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from repertory.models.errors import DeviceError, DeviceLost
from repertory.transports.xm_npu.errors import NpuRefusal

from .kernel import Kernel

__all__ = ["LOAD_DRIVER", "Call", "Handle"]

LOAD_DRIVER: Final = "load the driver first: `./load xm7206v11a -i`, which does `insmod xm_npu.ko`"

_GONE: Final = frozenset({errno.ENODEV, errno.ENXIO, errno.EBADF})


@final
@dataclass(frozen=True, slots=True)
class Call:
    """One ioctl.

    Attributes:
        name: for messages.
        code: its number.
        meanings: what an errno says here, beyond its name.
    """

    name: str
    code: int
    meanings: Mapping[int, str] = field(default_factory=dict[int, str])


@final
class Handle:
    """A descriptor of a node.

    Args:
        kernel: the system calls.
        path: of the node.
        forbidden: what a process needs that may not open it.

    Raises:
        DeviceLost: it is not there, or this process may not use it.
    """

    def __init__(self, kernel: Kernel, path: Path, *, forbidden: str) -> None:
        self.path = path
        self._kernel = kernel
        self._process = kernel.process()
        try:
            self._fd: int | None = kernel.open(path)
        except OSError as error:
            raise _not_opened(path, error, forbidden) from error

    @property
    def inherited(self) -> bool:
        """Whether this is a fork of the process that opened it."""
        return self._kernel.process() != self._process

    async def call(self, call: Call, argument: bytearray | int = 0) -> int:
        """Make an ioctl and return its value.

        Raises:
            DeviceLost: the node is closed or gone, or another process has opened it.
            NpuRefusal: the call failed; `status` is the errno.
        """
        if self._fd is None:
            raise DeviceLost(f"{call.name}: {self.path} is closed", family="xm-npu", call=call.name)
        if self.inherited:
            raise DeviceLost(
                f"{call.name}: {self.path} was opened by process {self._process}, this is "
                f"{self._kernel.process()}; open the device in the process that uses it",
                family="xm-npu",
                call=call.name,
            )
        try:
            return await self._kernel.ioctl(self._fd, call.code, argument)
        except OSError as error:
            raise _failed(self.path, call, error) from error

    def close(self) -> None:
        """Close it; any number of times.

        Raises:
            DeviceLost: the kernel reported an error; the descriptor is gone nevertheless.
        """
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            self._kernel.close(fd)
        except OSError as error:
            raise DeviceLost(
                f"close: {self.path}: {_named(error)}", family="xm-npu", call="close", status=error.errno
            ) from error


def _not_opened(path: Path, error: OSError, forbidden: str) -> DeviceLost:
    if error.errno in {errno.ENOENT, *_GONE}:
        why = f"the node is not there; {LOAD_DRIVER}"
    elif error.errno in {errno.EPERM, errno.EACCES}:
        why = f"{_named(error)}: {forbidden}"
    else:
        why = _named(error)
    return DeviceLost(f"{path}: {why}", family="xm-npu", call="open", status=error.errno)


def _failed(path: Path, call: Call, error: OSError) -> DeviceError:
    number = error.errno or 0
    meaning = call.meanings.get(number)
    message = f"{call.name}: {path}: {_named(error)}" + (f": {meaning}" if meaning else "")
    if number in _GONE:
        return DeviceLost(message, family="xm-npu", call=call.name, status=number)
    return NpuRefusal(message, call=call.name, status=number)


def _named(error: OSError) -> str:
    number = error.errno or 0
    return f"{errno.errorcode.get(number, number)} ({os.strerror(number)})"
