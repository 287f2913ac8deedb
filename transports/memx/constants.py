"""The numbers of libmemx: statuses, download types, limits.

The vendor's header names two statuses only. The others were observed on libmemx 2.11.2; their labels are
ours.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from types import MappingProxyType
from typing import Final

__all__ = [
    "CHIP_GENERATION",
    "CONTEXTS",
    "DEFAULT_QUEUE_SIZE",
    "FLOWS",
    "GROUP_CONFIGS",
    "HALVES_CONFIG",
    "QUEUE_SIZES",
    "TIMEOUT_LIMIT_MS",
    "DownloadType",
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

GROUP_CONFIGS: Final = (4, 4, 1, 3, 2, 8, 12, 16)
"""Chips that a group needs for each MEMX_MPU_GROUP_CONFIG, by its number; all work on one model, but for
HALVES_CONFIG."""

HALVES_CONFIG: Final = 1
"""The configuration that makes two halves of a group, each with a model of its own."""


class DownloadType(IntFlag):
    """What `memx_download_model` brings to the chips, and where it finds it."""

    WEIGHTS = 0x01
    MODEL = 0x02
    WEIGHTS_AND_MODEL = 0x03
    FROM_BUFFER = 0x80
    """`file_path` is the content itself; the library learns no length, and reads during the call only."""


class Status(IntEnum):
    """What a `memx_*` call returned, as an unsigned 32-bit number."""

    OK = 0x00000000
    GENERIC_FAILURE = 0x00000001
    BAD_ARGUMENT = 0x00000002
    ADMIN_TIMEOUT = 0x00000005
    NULL_POINTER = 0x0000000A
    BAD_MODEL_ID = 0x11000000
    CONTEXT_NOT_OPEN = 0x11000001
    NOTHING_DOWNLOADED = 0x11000002
    CONTEXT_ON_OTHER_GROUP = 0x11000003
    BAD_GROUP_ID = 0x12000000
    FIRMWARE_TOO_OLD = 0x12000001
    GROUP_IN_USE = 0x12000002
    LOCK_FILE_UNUSABLE = 0x12000003
    BAD_ENGINE = 0x13000002
    BAD_COMMAND = 0x13000005
    INPUT_FLOW_NOT_CONFIGURED = 0x13000006
    OUTPUT_FLOW_NOT_CONFIGURED = 0x13000007
    INPUT_REFUSED = 0x13000008
    SIZE_UNKNOWN = 0x1300000C
    RANGE_CONVERT_UNKNOWN = 0x1300000D
    HPOC_UNKNOWN = 0x1300000E
    DOWNLOAD_FAILED = 0x1300000F
    BAD_FLOW_ID = 0x13000015
    OUTPUT_TIMEOUT = 0x1300001D
    INPUT_TIMEOUT = 0x13000022
    BAD_QUEUE_SIZE = 0x13000024
    DEQUEUE_INPUT_TIMEOUT = 0x13000027
    DEQUEUE_OUTPUT_TIMEOUT = 0x13000028
    DFP_CANNOT_BE_OPENED = 0x13020000
    DFP_READ_ERROR = 0x13020001
    DFP_BAD_CONTENT = 0x13020002
    DFP_VERSION_REFUSED = 0x13020003
    TRANSPORT_OPEN_FAILED = 0x14000000
    NOT_ENOUGH_CHIPS = 0x14000003
    IOCTL_FAILED = 0x15000002

    @property
    def label(self) -> str:
        """The status in words."""
        return _LABELS.get(self, self.name.replace("_", " ").lower())


_LABELS: Final = MappingProxyType(
    {
        Status.CONTEXT_ON_OTHER_GROUP: "context bound to other group",
        Status.LOCK_FILE_UNUSABLE: "lock file cannot be opened",
        Status.BAD_ENGINE: "bad engine or buffer",
        Status.INPUT_REFUSED: "input shape or format refused",
        Status.INPUT_TIMEOUT: "input timeout (queue full)",
        Status.DEQUEUE_INPUT_TIMEOUT: "dequeue input buffer timeout",
        Status.DEQUEUE_OUTPUT_TIMEOUT: "dequeue output buffer timeout",
        Status.DFP_CANNOT_BE_OPENED: "DFP cannot be opened",
        Status.DFP_READ_ERROR: "DFP read error",
        Status.DFP_BAD_CONTENT: "DFP bad content",
        Status.DFP_VERSION_REFUSED: "DFP version not accepted",
    }
)
"""Where the name alone does not say it."""

_KNOWN: Final = MappingProxyType({int(status): status for status in Status})


def status_name(status: int) -> str:
    """Return a status for people: its label and its number, `output timeout (0x1300001D)`."""
    label = _KNOWN[status].label if status in _KNOWN else "unknown status"
    return f"{label} (0x{status:08X})"
