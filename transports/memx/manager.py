"""The vendor's daemon `mxa_manager`: where it serves the card, nobody else may."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

from repertory.models.errors import DeviceBusy

__all__ = ["MANAGER_DIR", "check_manager", "manager_answers"]

MANAGER_DIR: Final = "/run/mxa_manager"
"""Where the daemon has its sockets."""

_CONTROL: Final = "10000.sock"
_PATIENCE: Final = 0.5  # seconds; a listening socket takes a connection at once, whatever its owner does


def manager_answers(folder: Path) -> bool:
    """Whether a daemon takes connections there; a socket that was left behind takes none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PATIENCE)
        try:
            probe.connect(str(folder / _CONTROL))
        except TimeoutError:
            return True  # it is there, and its backlog is full
        except OSError:
            return False
        return True


def check_manager(folder: Path) -> None:
    """Refuse a card that the daemon serves: both at once are known to crash.

    Raises:
        DeviceBusy: it does; says how to go on.
    """
    if manager_answers(folder):
        raise DeviceBusy(
            f"the vendor's daemon mxa_manager serves the MX3 cards of this machine ({folder / _CONTROL}); "
            "both at once crash: stop it (sudo systemctl stop mxa-manager), or give force=true "
            "where it keeps off this group",
            family="memx",
        )
