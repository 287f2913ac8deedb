"""What an NPU, its library and its driver answer when they refuse or fail, by name."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, final

from repertory.models.errors import DeviceError

__all__ = [
    "DFX",
    "ClStatus",
    "NpuAborted",
    "NpuRefusal",
    "SysStatus",
    "cl_refusal",
    "dfx_names",
    "sys_refusal",
]


@final
class ClStatus(IntEnum):
    """Statuses of `xmedia_cl_*`; another space than `SysStatus`."""

    SUCCESS = 0
    FAILURE = -1
    OUT_OF_HOST_MEMORY = -6
    INVALID_VALUE = -30
    INVALID_DEVICE_TYPE = -31
    INVALID_PLATFORM = -32
    INVALID_DEVICE = -33
    INVALID_CONTEXT = -34
    INVALID_COMMAND_QUEUE = -36
    INVALID_HOST_PTR = -37
    INVALID_MEM_OBJECT = -38
    INVALID_BINARY = -42
    INVALID_PROGRAM = -44
    INVALID_PROGRAM_EXECUTABLE = -45
    INVALID_KERNEL_NAME = -46
    INVALID_KERNEL = -48
    INVALID_ARG_INDEX = -49
    INVALID_ARG_VALUE = -50
    INVALID_ARG_SIZE = -51
    INVALID_KERNEL_ARGS = -52
    WAIT_EVENT_FAILED = -56
    INVALID_EVENT_WAIT_LIST = -57
    INVALID_EVENT = -58
    INVALID_OPERATION = -59
    INVALID_UNINIT = -60
    INVALID_BUFFER_SIZE = -61
    INVALID_USER_FUNC = -62
    ALREADY_INIT = -63
    INVALID_MODEL = -64
    READ_MODEL_FAIL = -65
    INSUFFICIENT_SIZE = -66
    CALL_INTERFUNC_ERR = -67
    ERROR_MODEL_TYPE = -68
    ERROR_ADDR_ALIGN = -69
    UNSUPPORT_DYNAMIC_OUTPUT = -70
    MODEL_DECOMPRESS_FAIL = -71
    ERROR_COMPRESS_TYPE = -72
    ERROR_PROC_TYPE = -73
    OUT_OF_MAX_BATCH = -74
    NOT_FIND_FILE = -75
    CONTEXT_WORKSPACE_FAIL = -76
    PRIVATE_DATA_NULL = -77
    PRIVATE_DATA_SIZE_ERROR = -78
    UNSUPPORT_INFO_TYPE = -79


_SYS: Final = -0x7FFF0000  # 0x80010000 as a signed number of 32 bits


@final
class SysStatus(IntEnum):
    """Statuses of `xmedia_sys_*` and `xmedia_mmz_*`: 0x8001xxxx, as signed numbers of 32 bits."""

    SUCCESS = 0
    FAILURE = -1
    INVALID_PARAM = _SYS + 0x1
    NULL_PTR = _SYS + 0x2
    NOT_ENOUGH_MEMORY = _SYS + 0x3
    NOT_INIT = _SYS + 0x4
    NOT_SUPPORT = _SYS + 0x5
    TIMEOUT = _SYS + 0x6
    BAD_ADDRESS = _SYS + 0x7
    OPEN_FAILED = _SYS + 0x8
    CLOSE_FAILED = _SYS + 0x9
    CREATE_FAILED = _SYS + 0xA
    DESTROY_FAILED = _SYS + 0xB
    BUFFER_EMPTY = _SYS + 0xC
    BUFFER_FULL = _SYS + 0xD
    NO_BUFFER_FREE = _SYS + 0xE
    NOT_PERMITTED = _SYS + 0xF
    EXIST = _SYS + 0x10
    NOT_EXIST = _SYS + 0x11
    NOT_READY = _SYS + 0x12
    BUSY = _SYS + 0x13
    COPY_DATA_ERROR = _SYS + 0x14
    TYPE_ERROR = _SYS + 0x15
    CHN_FULL = _SYS + 0x16


DFX: Final = MappingProxyType[int, str](
    {
        0x000001: "sram_dma_acc",
        0x000080: "dec_inst",
        0x000400: "dma_addr",
        0x000800: "lut_align_16",
        0x001000: "align_8 (bit 12)",
        0x002000: "align_8 (bit 13)",
        0x004000: "align_8 (bit 14)",
        0x008000: "align_8 (bit 15)",
        0x010000: "rwddr_out_of_bound",
        0x040000: "dma_r_resp",
        0x200000: "wddr_out_of_stct_size",
        0x400000: "pool_online",
    }
)
"""Bits of the report that the NPU leaves when it aborts, as far as they are public.

Of `lut_align_16` and the `align_8` only the meaning is, that an address is not aligned; the names are ours.
"""


def dfx_names(report: int) -> Sequence[str]:
    """Name the bits of a report; those that nobody has published by their number."""
    names = [name for bit, name in DFX.items() if report & bit]
    unknown = report & ~sum(DFX)
    return [*names, *([f"{unknown:#x}"] if unknown else [])]


@final
class NpuRefusal(DeviceError):
    """A call was refused, by the library or by the driver; the NPU is well.

    Attributes:
        stage: of the eight of the vendor's page, in whose course it was made, or None.
    """

    def __init__(
        self, message: str, *, call: str, status: int | None = None, stage: int | None = None
    ) -> None:
        super().__init__(message, family="xm-npu", call=call, status=status)
        self.stage = stage


@final
class NpuAborted(DeviceError):
    """The NPU stopped in the middle of a job.

    Attributes:
        report: the DFX report; 0 where the way to the NPU does not tell it.
        names: of its bits.
    """

    def __init__(self, message: str, *, call: str, report: int = 0) -> None:
        self.report = report
        self.names = tuple(dfx_names(report))
        told = f": DFX report {report:#x} ({', '.join(self.names)})" if report else ""
        super().__init__(message + told, family="xm-npu", call=call, status=report or None)


def cl_refusal(call: str, status: int, *, stage: int | None = None, why: str = "") -> NpuRefusal:
    """Return the error for a status of a CL call."""
    return _refusal(call, status, _named(ClStatus, status, str(status)), stage, why)


def sys_refusal(call: str, status: int, *, stage: int | None = None, why: str = "") -> NpuRefusal:
    """Return the error for a status of a system or MMZ call."""
    return _refusal(call, status, _named(SysStatus, status, f"{status & 0xFFFFFFFF:#010x}"), stage, why)


def _named(space: type[ClStatus | SysStatus], status: int, number: str) -> str:
    known = status in {each.value for each in space}
    return f"{space(status).name if known else 'unknown status'} ({number})"


def _refusal(call: str, status: int, name: str, stage: int | None, why: str) -> NpuRefusal:
    at = f"stage {stage}, " if stage is not None else ""
    more = f": {why}" if why else ""
    return NpuRefusal(f"{at}{call}: {name}{more}", call=call, status=status, stage=stage)
