"""What an NPU finds at the addresses that it was given, and when it stops for it."""

from __future__ import annotations

from typing import Final, final

from repertory.models.errors import ArtifactError
from repertory.models.npu_code import MARK, NpuCode, decode_code, is_twin_code
from repertory.models.spec import Array
from repertory.models.xmm_tensor import ALIGNMENT, aligned

from .memory import Mmz
from .order import REGION, Dfx, Order, Regions, behind

__all__ = ["Stopped", "find_code", "find_regions", "read_at"]

_HEAD: Final = len(MARK) + 4
_MOST_CODES: Final = 16


@final
class Stopped(Exception):
    """The NPU stops.

    Attributes:
        report: for the DFX register.
    """

    def __init__(self, report: int, why: str) -> None:
        super().__init__(f"DFX report {report:#x}: {why}")
        self.report = int(report)


def read_at(memory: Mmz, at: int, size: int) -> Array:
    """Return a copy of what the NPU sees, uint8[size].

    Raises:
        Stopped: there is no memory.
    """
    data = memory.read(at, size)
    if data is None:
        raise Stopped(Dfx.R_RESP, f"no memory of {size} bytes at {at:#x}")
    return data.copy()


def find_code(memory: Mmz, order: Order) -> NpuCode:
    """Return the code that is to run.

    Raises:
        Stopped: there is none.
    """
    _within(order, order.code, order.code_size)
    data = read_at(memory, order.code, order.code_size).data
    if not is_twin_code(data):
        raise Stopped(Dfx.GARBAGE, f"what lies at {order.code:#x} is no code")
    try:
        return decode_code(data)
    except ArtifactError as error:
        raise Stopped(Dfx.DEC_INST, str(error)) from error


def find_regions(memory: Mmz, order: Order, code: NpuCode) -> Regions:
    """Return where a run's regions are.

    Raises:
        Stopped: one is not within the window, or not aligned.
    """
    at = order.regions or behind(_codes_end(memory, order), code)
    sizes, batch = code.sizes, order.batch
    for start, size, report in (
        (at.inputs, sizes.inputs * batch, Dfx.ALIGN_A),
        (at.params, sizes.params, Dfx.ALIGN_B),
        (at.work, sizes.work, Dfx.ALIGN_C),
        (at.outputs, sizes.outputs * batch, Dfx.ALIGN_D),
    ):
        if size:
            _within(order, start, size)
            if start % ALIGNMENT:
                raise Stopped(report, f"{start:#x} is no multiple of {ALIGNMENT}")
    return at


def _within(order: Order, start: int, size: int) -> None:
    if not order.base <= start <= start + size <= order.end:
        where = f"{order.base:#x} to {order.end:#x}"
        raise Stopped(Dfx.OUT_OF_BOUND, f"{size} bytes at {start:#x} are not within {where}")


def _codes_end(memory: Mmz, order: Order) -> int:
    """Return where the codes of a window end: they lie one behind the other from its base on."""
    at = order.base
    for _ in range(_MOST_CODES):
        head = memory.read(at, _HEAD)
        if head is None or not is_twin_code(head.data):
            break
        at = aligned(at + _HEAD + int.from_bytes(head[len(MARK) :].tobytes(), "little"), REGION)
    return max(at, order.code + order.code_size)
