"""Serve many neural networks on a few small accelerators: `await model.infer(x)`.

The names below are the public surface; everything else may be imported from the subpackages and may change.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from repertory.actors.context import Limits, Overflow
from repertory.models.errors import (
    ArtifactError,
    ConfigError,
    ContractError,
    DeadlineExceeded,
    DeadlineUnreachable,
    DeviceBusy,
    DeviceError,
    DeviceHung,
    DeviceLost,
    InvalidInput,
    ModelClosed,
    NameTaken,
    QueueFull,
    RepertoryError,
    RuntimeClosed,
    Superseded,
    UnknownModel,
)
from repertory.models.sketch import sketch
from repertory.models.spec import Quantisation, TensorSpec
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.runtime.runtime import Runtime

if TYPE_CHECKING:
    from repertory.transports.memx.mxa.module import mxa
    from repertory.transports.rpmsg.vm import namespace as c7x
    from repertory.transports.rpmsg.vm.machine import C7xVirtualMachine
    from repertory.transports.xm_npu.cl.stages import ComputeLibrary

__all__ = [
    "ArtifactError",
    "C7xVirtualMachine",
    "ComputeLibrary",
    "ConfigError",
    "ContractError",
    "DeadlineExceeded",
    "DeadlineUnreachable",
    "DeviceBusy",
    "DeviceError",
    "DeviceHung",
    "DeviceLost",
    "InvalidInput",
    "Limits",
    "Model",
    "ModelClosed",
    "NameTaken",
    "Overflow",
    "Quantisation",
    "QueueFull",
    "RepertoryError",
    "Runtime",
    "RuntimeClosed",
    "Superseded",
    "TensorSpec",
    "UnknownModel",
    "c7x",
    "mxa",
    "open_runtime",
    "sketch",
]

logging.getLogger("repertory").addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    """Import what stands for a vendor's module only for those who ask for it."""
    match name:
        case "mxa":
            from repertory.transports.memx.mxa.module import mxa  # noqa: PLC0415

            return mxa
        case "c7x":
            from repertory.transports.rpmsg.vm import namespace  # noqa: PLC0415

            return namespace
        case "C7xVirtualMachine":
            from repertory.transports.rpmsg.vm.machine import C7xVirtualMachine  # noqa: PLC0415

            return C7xVirtualMachine
        case "ComputeLibrary":
            from repertory.transports.xm_npu.cl.stages import ComputeLibrary  # noqa: PLC0415

            return ComputeLibrary
        case _:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
