"""From statuses of libmemx to errors: each names the call and what the number was seen to mean."""

from __future__ import annotations

from typing import Final

from repertory.models.errors import ArtifactError, DeviceError

from .constants import Status, status_name

__all__ = ["check", "check_file", "check_size", "failure"]

_FILE_AT_FAULT: Final = frozenset(
    {
        Status.DFP_CANNOT_BE_OPENED,
        Status.DFP_READ_ERROR,
        Status.DFP_BAD_CONTENT,
        Status.DFP_VERSION_REFUSED,
        Status.INPUT_REFUSED,
    }
)


def failure(status: int, call: str) -> DeviceError:
    """Return the error for a status of libmemx."""
    return DeviceError(f"{call}: {status_name(status)}", family="memx", call=call, status=status)


def check(status: int, call: str) -> None:
    """Raise unless the status is OK.

    Raises:
        DeviceError: names the call and the status.
    """
    if status != Status.OK:
        raise failure(status, call)


def check_file(status: int, call: str) -> None:
    """Check a download.

    Raises:
        ArtifactError: the library refuses the file.
        DeviceError: it failed otherwise.
    """
    if status in _FILE_AT_FAULT:
        raise ArtifactError(f"libmemx refuses the file: {call}: {status_name(status)}")
    check(status, call)


def check_size(size: tuple[int, ...], wanted: tuple[int, ...], call: str) -> None:
    """Compare what the library has configured with the file: a download can do nothing and return 0.

    Raises:
        DeviceError: they differ, or the library tells nothing.
    """
    check(size[0], call)
    if size[1:] != wanted:
        raise DeviceError(
            f"{call}: the library has {size[1:]}, the file {wanted}: the download did nothing",
            family="memx",
            call=call,
        )
