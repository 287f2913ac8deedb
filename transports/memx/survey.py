"""What the MX3 library of this machine sees, asked in a process of its own.

Loading the library probes every device node, and whatever it prints, hangs in or crashes by stays there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from repertory.models.errors import ConfigError, DeviceError, DeviceHung, DeviceLost, RepertoryError
from repertory.transports.isolation.interpreter import command
from repertory.transports.isolation.process import ending
from repertory.transports.world import drive

from .binding import CtypesLibmemx
from .checks import check
from .features import GetFeature, feature_bytes
from .health import read_feature, read_health
from .library import Libmemx
from .manager import MANAGER_DIR, manager_answers

__all__ = ["BOUND", "survey"]

BOUND: Final = 30.0
"""Seconds that the library may take; an admin command that the kernel gives up takes 3."""

_DYING: Final = 1.0  # seconds that a killed process may take to end


def survey(path: str | None = None, *, manager_dir: str = MANAGER_DIR) -> dict[str, Any]:
    """Tell the library's version, which optional functions it exports, and the groups it sees.

    Where the vendor's daemon serves the cards, they are not asked for anything.

    Args:
        path: the library's file; the loader's search path without it.
        manager_dir: where the daemon has its sockets.

    Raises:
        ConfigError: there is no libmemx, or it lacks a function.
        DeviceError: it crashed, hangs, or does not answer.
    """
    status, answer = _ask(command(__name__, manager_dir, *([path] if path else [])))
    if status:
        raise DeviceLost(f"the process that asked libmemx {ending(status)}", family="memx")
    found: dict[str, Any] = msgspec.json.decode(answer)
    if reason := found.get("missing"):
        raise ConfigError(reason)
    if reason := found.get("failed"):
        raise DeviceError(reason, family="memx")
    return found


def _ask(program: list[str]) -> tuple[int, bytes]:
    """Return a program's status and what it printed; one that does not end is killed, and left if need be."""
    pipe = subprocess.PIPE
    child = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=pipe)  # noqa: S603  (our own module)
    try:
        answer, _ = child.communicate(timeout=BOUND)
    except subprocess.TimeoutExpired as error:
        raise DeviceHung(f"libmemx has not answered within {BOUND:g} s", family="memx") from error
    finally:
        _end(child)
    return child.returncode, answer


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill and reap; not where the kernel holds the process in a driver call."""
    child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(_DYING)
    if child.stdout is not None:
        child.stdout.close()


def _look(path: str | None, manager_dir: str) -> dict[str, Any]:
    library = CtypesLibmemx(path)
    found: dict[str, Any] = {"library": library.version, "optional": sorted(library.exports)}
    if manager_answers(Path(manager_dir)):
        return {**found, "manager": manager_dir, "groups": []}
    status, count = drive(library.memx_operation_get_device_count())
    check(status, "memx_operation_get_device_count")
    return {**found, "groups": [_group(library, index) for index in range(count)]}


def _group(library: Libmemx, index: int) -> dict[str, Any]:
    status, chips = drive(library.memx_get_total_chip_count(index))
    check(status, "memx_get_total_chip_count")
    health = drive(read_health(library, index, chips))
    driver = drive(read_feature(library, index, GetFeature.KDRIVER_VERSION)) if health.well else None
    return {
        "address": f"memx://{index}",
        "well": health.well,
        **health.readings,
        "chips": chips,
        "driver": _ascii(driver),
    }


def _ascii(value: int | None) -> str | None:
    if value is None:
        return None
    text = value.to_bytes(feature_bytes(GetFeature.KDRIVER_VERSION), "little")
    return text.rstrip(b"\0").decode("ascii", "replace")


def _main() -> None:
    """Print what was found as JSON where standard output was; the library gets standard error for it."""
    answer = os.dup(1)
    os.dup2(2, 1)
    manager_dir, *path = sys.argv[1:]
    try:
        found = _look(path[0] if path else None, manager_dir)
    except ConfigError as error:
        found = {"missing": str(error)}
    except RepertoryError as error:
        found = {"failed": str(error)}
    with os.fdopen(answer, "wb") as out:
        out.write(msgspec.json.encode(found))
    os._exit(0)  # the library's destructor waits for devices


if __name__ == "__main__":
    _main()
