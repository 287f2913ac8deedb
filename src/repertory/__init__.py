"""Serve many neural networks on a few small accelerators: `await model.infer(x)`.

The names below are the public surface; everything else may be imported from the subpackages and may change.
"""

from __future__ import annotations

import logging

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
from repertory.runtime.runtime import Runtime, open_runtime

__all__ = [
    "ArtifactError",
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
    "open_runtime",
    "sketch",
]

logging.getLogger("repertory").addHandler(logging.NullHandler())
