"""Errors across the process border: the same class, message and fields on the other side."""

from __future__ import annotations

from typing import Final

from repertory.models import errors
from repertory.models.errors import DeviceError, DeviceLost, RepertoryError

from .messages import Failure

__all__ = ["as_device_error", "pack", "unpack"]

_KINDS: Final[dict[str, type[RepertoryError]]] = {
    kind.__name__: kind
    for kind in (
        errors.ArtifactError,
        errors.ConfigError,
        errors.ContractError,
        errors.DeviceBusy,
        errors.DeviceError,
        errors.DeviceHung,
        errors.DeviceLost,
        errors.InvalidInput,
        errors.NoRoom,
        errors.UnknownModel,
    )
}


def pack(error: Exception) -> Failure:
    """Return what travels of an error; one of a family's own becomes the nearest kind that all families know.

    One that is none of ours becomes DeviceLost.
    """
    known = [kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS]
    if not known:
        error, known = DeviceLost(f"the device's code failed: {error!r}", family="isolation"), ["DeviceLost"]
    fields = {name: value for name, value in vars(error).items() if isinstance(value, str | int | None)}
    return Failure(known[0], str(error), fields)


def unpack(failure: Failure) -> RepertoryError:
    """Return the error; of a kind that nobody knows, DeviceLost."""
    kind = _KINDS.get(failure.kind)
    if kind is None:
        return DeviceLost(f"{failure.kind}: {failure.message}", family="isolation")
    error: RepertoryError = kind.__new__(kind)  # as it was: constructors would word the message again
    error.args = (failure.message,)
    error.__dict__.update(failure.fields)
    return error


def as_device_error(failure: Failure) -> DeviceError:
    """Return the error where only one of the device can stand."""
    error = unpack(failure)
    return error if isinstance(error, DeviceError) else DeviceLost(str(error), family="isolation")
