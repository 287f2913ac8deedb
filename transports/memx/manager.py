"""The vendor's daemon `mxa_manager`: where it serves the card, nobody else may."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Final

from repertory.models.errors import ConfigError, DeviceBusy

__all__ = ["MANAGER_DIR", "check_manager", "manager_answers"]

MANAGER_DIR: Final = "/run/mxa_manager"
"""Where the daemon has its sockets."""

_CONTROL: Final = "10000.sock"
_PATIENCE: Final = 0.5  # seconds; a listening socket takes a connection at once, whatever its owner does
_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED})
_PATH_LIMIT: Final = 107  # bytes in a socket's address, without the NUL


def manager_answers(folder: Path) -> bool:
    """Whether a daemon may serve there: all but a socket that is absent, or was left behind by a dead one.

    Raises:
        ConfigError: the folder's name is too long for a socket's address.
    """
    path = str(folder / _CONTROL)
    if len(os.fsencode(path)) > _PATH_LIMIT:
        raise ConfigError(f"manager_dir={folder}: with /{_CONTROL} it is longer than {_PATH_LIMIT} bytes")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PATIENCE)
        try:
            probe.connect(path)
        except OSError as error:  # without permission, or with its backlog full, it may be there
            return error.errno not in _ABSENT
        return True


def check_manager(folder: Path) -> None:
    """Refuse a card that the daemon serves, or may serve: both at once are known to crash.

    Raises:
        DeviceBusy: it does; says how to go on.
        ConfigError: the folder's name is too long for a socket's address.
    """
    if manager_answers(folder):
        raise DeviceBusy(
            f"the vendor's daemon mxa_manager serves the MX3 cards of this machine ({folder / _CONTROL}); "
            "both at once crash: stop it (sudo systemctl stop mxa-manager), or give force=true "
            "where it keeps off this group",
            family="memx",
        )
