"""What a status of the library means for a user of it: nothing, a refusal, no room, or a lost device."""

from __future__ import annotations

from typing import Final

from repertory.models.errors import DeviceLost, NoRoom
from repertory.transports.xm_npu.errors import ClStatus, NpuRefusal, SysStatus, cl_refusal, sys_refusal

from .loader import NODE_HINT

__all__ = [
    "MEMORY_HINT",
    "MEMORY_NODE",
    "check",
    "check_load",
    "check_sys",
    "misuse",
    "no_memory_node",
    "no_node",
]

MEMORY_NODE: Final = "/dev/mmz_userdev"
"""What the library takes memory for models from."""

MEMORY_HINT: Final = f"{MEMORY_NODE} must be there, and opening it needs CAP_SYS_RAWIO: run as root"
"""What helps where it gives nothing at all."""


def misuse(stage: int, call: str, why: str) -> NpuRefusal:
    """Return the error for a call that was not made, for it would have been wrong."""
    return NpuRefusal(f"stage {stage}, {call}: {why}", call=call, stage=stage)


def no_node(call: str, status: int, *, stage: int, node: str) -> DeviceLost:
    """Return the error for a driver that is not there."""
    shown = status if abs(status) < 1 << 16 else f"{status & 0xFFFFFFFF:#010x}"
    return DeviceLost(
        f"stage {stage}, {call}: no NPU at {node} ({shown}); {NODE_HINT}",
        family="xm-npu",
        call=call,
        status=status,
    )


def no_memory_node(call: str) -> DeviceLost:
    """Return the error for memory that gives not even one page."""
    return DeviceLost(f"stage 4, {call}: no memory for models; {MEMORY_HINT}", family="xm-npu", call=call)


def check(call: str, status: int, *, stage: int, node: str = "", why: str = "") -> None:
    """Raise what a status of `xmedia_cl_*` means, if anything.

    Raises:
        DeviceLost: there is no NPU.
        NpuRefusal: every other status than 0.
    """
    if status == ClStatus.INVALID_DEVICE and node:
        raise no_node(call, status, stage=stage, node=node)
    if status:
        raise cl_refusal(call, status, stage=stage, why=why)


def check_load(call: str, status: int, *, wanted: int, node: str) -> None:
    """Raise what a status of a load means, if anything.

    Raises:
        NoRoom: the library found no memory; `wanted` is at least what it looked for.
        DeviceLost, NpuRefusal: as `check`.
    """
    if status == ClStatus.OUT_OF_HOST_MEMORY:
        raise NoRoom(f"stage 5, {call}: OUT_OF_HOST_MEMORY (-6)", wanted=wanted)
    check(call, status, stage=5, node=node)


def check_sys(call: str, status: int, *, stage: int, node: str = "") -> None:
    """Raise what a status of `xmedia_sys_*` or `xmedia_mmz_*` means, if anything.

    Raises:
        DeviceLost: a node is missing.
        NpuRefusal: every other status than 0.
    """
    if status == SysStatus.OPEN_FAILED and node:
        raise no_node(call, status, stage=stage, node=node)
    if status:
        raise sys_refusal(call, status, stage=stage)
