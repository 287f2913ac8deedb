"""What the firmware answers when it refuses, apart from what the kernel says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import final

from repertory.models.errors import DeviceError

__all__ = ["DspRefusal", "OutOfMemory", "Status"]


@final
class Status(IntEnum):
    """Statuses of c7x_compute. One number means another thing as an errno: -12 is no ENOMEM here."""

    OK = 0
    GENERIC = -1
    INVALID = -2
    NO_MEMORY = -3
    BUSY = -4
    TIMEOUT = -5
    ADDRESS = -6
    SIZE = -7
    OPERATION = -8
    LOAD = -9
    SYMBOL = -10
    CALL = -11
    HANDLE = -12
    WEIGHTS = -13
    TENSOR = -14


@final
@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """What the DSP's heap lacked, in bytes."""

    requested: int
    free: int
    total: int


@final
class DspRefusal(DeviceError):
    """The firmware answered that it does not do this; the DSP is well.

    Attributes:
        status: a negative number of the firmware's; `Status` names the known ones.
        oom: what was lacking, where the status is NO_MEMORY.
        required: bytes of a result that did not fit (wire version 3, status SIZE), or None.
    """

    def __init__(
        self,
        message: str,
        *,
        call: str,
        status: int,
        oom: OutOfMemory | None = None,
        required: int | None = None,
    ) -> None:
        known = Status(status).name if status in list(Status) else "unknown status"
        lacking = f"; {oom.requested} bytes wanted, {oom.free} of {oom.total} free" if oom else ""
        super().__init__(f"{message}: {known} ({status}){lacking}", family="c7x", call=call, status=status)
        self.oom = oom
        self.required = required
