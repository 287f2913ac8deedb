"""What an NPU is told to run, and where all of it lies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, final

from repertory.models.npu_code import NpuCode
from repertory.models.xmm_tensor import aligned

__all__ = ["REGION", "Dfx", "Order", "Regions", "behind"]

REGION: Final = 16
"""Bytes to which the regions of one window are aligned."""


@final
class Dfx(IntEnum):
    """Reports of an NPU that stopped, as far as this one makes them."""

    DEC_INST = 0x80
    ALIGN_A = 0x1000
    ALIGN_B = 0x2000
    ALIGN_C = 0x4000
    ALIGN_D = 0x8000
    OUT_OF_BOUND = 0x10000
    R_RESP = 0x40000
    GARBAGE = 0x50000


@final
@dataclass(frozen=True, slots=True)
class Regions:
    """Physical addresses of what a run uses; 0 where it needs none."""

    params: int
    work: int
    inputs: int
    outputs: int


@final
@dataclass(frozen=True, slots=True)
class Order:
    """A job as it is submitted.

    Attributes:
        code: physical address of the code.
        code_size: bytes.
        base: where the window begins that the NPU may use.
        end: behind its last byte.
        regions: where they are not those behind the code; see `behind`.
        batch: items.
    """

    code: int
    code_size: int
    base: int
    end: int
    regions: Regions | None = None
    batch: int = 1


def behind(start: int, code: NpuCode) -> Regions:
    """Return the regions of a window: parameters, workspace, inputs, outputs, one behind the other."""
    sizes = code.sizes
    places = list[int]()
    at = aligned(start, REGION)
    for size in (sizes.params, sizes.work, sizes.inputs, sizes.outputs):
        places.append(at)
        at = aligned(at + size, REGION)
    return Regions(*places)
