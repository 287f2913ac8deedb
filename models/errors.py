"""Every error that Repertory raises: one root, one sentence each about who is at fault."""

from __future__ import annotations

from typing import final

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
    "ModelClosed",
    "NameTaken",
    "NoRoom",
    "QueueFull",
    "RepertoryError",
    "RuntimeClosed",
    "Superseded",
    "UnknownModel",
    "again",
]


class RepertoryError(Exception):
    """The root: `except RepertoryError` catches all that the package raises on purpose."""


@final
class ArtifactError(RepertoryError):
    """The model file is at fault: malformed, foreign, or made for another device.

    Attributes:
        offset: byte at which reading failed, or None where no byte is to blame.
    """

    def __init__(self, message: str, *, offset: int | None = None) -> None:
        super().__init__(message if offset is None else f"{message} (at byte {offset})")
        self.offset = offset


@final
class InvalidInput(RepertoryError):
    """The caller's tensor is at fault: wrong name, shape, dtype or type."""


@final
class ConfigError(RepertoryError):
    """The configuration, an address or an option is at fault."""


@final
class UnknownModel(RepertoryError):
    """The caller names a model that is not loaded, or a network that the file does not hold."""


@final
class NameTaken(RepertoryError):
    """The caller loads a second model under a name that is in use."""


@final
class QueueFull(RepertoryError):
    """Nobody is at fault: more work arrived than the model's queue may hold. Nothing was accepted."""


@final
class Superseded(RepertoryError):
    """Nobody is at fault: a newer frame took this one's place in a `drop_oldest` queue."""


@final
class DeadlineUnreachable(RepertoryError):
    """Nobody is at fault: the deadline could not be met any more, at admission or while it waited."""


@final
class DeadlineExceeded(RepertoryError):
    """Nobody is at fault: the request was admitted and its deadline passed before its answer."""


@final
class ModelClosed(RepertoryError):
    """The caller uses a model after it was unloaded."""


@final
class RuntimeClosed(RepertoryError):
    """The caller uses a runtime after it was closed, in a forked child, or from another thread."""


class DeviceError(RepertoryError):
    """The device, its driver or its link is at fault.

    Attributes:
        status: the vendor's status as its header has it, or None where no call gave one.
        call: the vendor's function that failed, or None.
        family: `memx`, `cpu`, ...
    """

    def __init__(
        self, message: str, *, family: str, call: str | None = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.family = family
        self.call = call
        self.status = status


@final
class DeviceBusy(DeviceError):
    """Another process, thread or service owns the device."""


@final
class DeviceHung(DeviceError):
    """The device took longer than its bound: it may still own the memory it was given."""


@final
class DeviceLost(DeviceError):
    """The device is gone or unusable until it is opened again."""


@final
class NoRoom(RepertoryError):
    """The device's memory does not suffice beside what is resident: evict something, and it may.

    Attributes:
        wanted: bytes, or None where the device did not tell.
        free: likewise.
    """

    def __init__(self, message: str, *, wanted: int | None = None, free: int | None = None) -> None:
        super().__init__(message)
        self.wanted = wanted
        self.free = free


@final
class ContractError(RepertoryError):
    """A device implementation broke the device contract: a bug in that driver."""


def again(error: RepertoryError) -> RepertoryError:
    """Return a copy of `error` to raise: an exception that many tasks raise would share one traceback."""
    copy: RepertoryError = error.__class__.__new__(error.__class__)
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error
    return copy
