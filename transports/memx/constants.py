"""The numbers of libmemx: statuses, download types, limits.

The vendor's header names two statuses only. The others were observed on libmemx 2.11.2; their labels are
ours.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final, NamedTuple, Self

__all__ = [
    "CHIP_GENERATION",
    "CONTEXTS",
    "DEFAULT_QUEUE_SIZE",
    "FLOWS",
    "GROUP_CONFIGS",
    "QUEUE_SIZES",
    "TIMEOUT_LIMIT_MS",
    "DownloadType",
    "GroupConfig",
    "Status",
    "status_name",
]

CHIP_GENERATION: Final = 31.0
"""MEMX_DEVICE_CASCADE_PLUS, the MX3; `memx_open` has ignored it for long."""

CONTEXTS: Final = 32
"""Model contexts of a process: model ids 0 to 31."""

FLOWS: Final = 32
"""Input flows of a context, and as many output flows."""

DEFAULT_QUEUE_SIZE: Final = 4
"""Slots of a flow's queue where none was set; a queue of N slots holds N - 1 frames."""

QUEUE_SIZES: Final = range(1, 1001)
"""Sizes that `memx_set_*_queue_size` accepts."""

TIMEOUT_LIMIT_MS: Final = 21_474_836
"""Timeouts from here on are refused, as negative ones are."""


class GroupConfig(NamedTuple):
    """One MEMX_MPU_GROUP_CONFIG: chips that the group must have, and chips that work on one model."""

    needs: int
    chips: int


GROUP_CONFIGS: Final = tuple(
    GroupConfig(*pair) for pair in ((4, 4), (4, 2), (1, 1), (3, 3), (2, 2), (8, 8), (12, 12), (16, 16))
)
"""By their numbers; number 1 makes two halves of two chips."""


class DownloadType(IntFlag):
    """What `memx_download_model` brings to the chips, and where it finds it."""

    WEIGHTS = 0x01
    MODEL = 0x02
    WEIGHTS_AND_MODEL = 0x03
    FROM_BUFFER = 0x80
    """`file_path` is the content itself; the library learns no length, and reads during the call only."""


class Status(IntEnum):
    """What a `memx_*` call returned, as an unsigned 32-bit number."""

    label: str

    def __new__(cls, value: int, label: str) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.label = label
        return member

    OK = 0x00000000, "ok"
    GENERIC_FAILURE = 0x00000001, "generic failure"
    BAD_ARGUMENT = 0x00000002, "bad argument"
    ADMIN_TIMEOUT = 0x00000005, "admin timeout"
    NULL_POINTER = 0x0000000A, "null pointer"
    BAD_MODEL_ID = 0x11000000, "bad model id"
    CONTEXT_NOT_OPEN = 0x11000001, "context not open"
    NOTHING_DOWNLOADED = 0x11000002, "nothing downloaded"
    CONTEXT_ON_OTHER_GROUP = 0x11000003, "context bound to other group"
    BAD_GROUP_ID = 0x12000000, "bad group id"
    FIRMWARE_TOO_OLD = 0x12000001, "firmware too old"
    GROUP_IN_USE = 0x12000002, "group in use"
    LOCK_FILE_UNUSABLE = 0x12000003, "lock file cannot be opened"
    BAD_ENGINE = 0x13000002, "bad engine or buffer"
    BAD_COMMAND = 0x13000005, "bad command"
    INPUT_FLOW_NOT_CONFIGURED = 0x13000006, "input flow not configured"
    OUTPUT_FLOW_NOT_CONFIGURED = 0x13000007, "output flow not configured"
    INPUT_REFUSED = 0x13000008, "input shape or format refused"
    SIZE_UNKNOWN = 0x1300000C, "size unknown"
    RANGE_CONVERT_UNKNOWN = 0x1300000D, "range convert unknown"
    HPOC_UNKNOWN = 0x1300000E, "hpoc unknown"
    DOWNLOAD_FAILED = 0x1300000F, "download failed"
    BAD_FLOW_ID = 0x13000015, "bad flow id"
    OUTPUT_TIMEOUT = 0x1300001D, "output timeout"
    INPUT_TIMEOUT = 0x13000022, "input timeout (queue full)"
    BAD_QUEUE_SIZE = 0x13000024, "bad queue size"
    DEQUEUE_INPUT_TIMEOUT = 0x13000027, "dequeue input buffer timeout"
    DEQUEUE_OUTPUT_TIMEOUT = 0x13000028, "dequeue output buffer timeout"
    DFP_CANNOT_BE_OPENED = 0x13020000, "DFP cannot be opened"
    DFP_READ_ERROR = 0x13020001, "DFP read error"
    DFP_BAD_CONTENT = 0x13020002, "DFP bad content"
    DFP_VERSION_REFUSED = 0x13020003, "DFP version not accepted"
    TRANSPORT_OPEN_FAILED = 0x14000000, "transport open failed"
    NOT_ENOUGH_CHIPS = 0x14000003, "not enough chips"
    IOCTL_FAILED = 0x15000002, "ioctl failed"


def status_name(status: int) -> str:
    """Return a status for people: its label and its number, `output timeout (0x1300001D)`."""
    label = _LABELS.get(status, "unknown status")
    return f"{label} (0x{status:08X})"


_LABELS: Final[dict[int, str]] = {int(status): status.label for status in Status}
