"""`python -m repertory.transports.isolation <descriptor> <parent's pid> <address>`: the child process."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys

import anyio

from .host import Host

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve one device; never returns.

    It leaves without the exits that libraries have registered: those of a hung one never return.
    """
    descriptor, parent, address = sys.argv[1:]
    os.set_inheritable(int(descriptor), False)  # programs that a library starts must not hold it open
    _die_with(int(parent))
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # the parent ends this process when its time has come
    status = 1
    try:
        anyio.run(Host(socket.socket(fileno=int(descriptor)), address).serve)
        status = 0
    except BaseException as error:  # noqa: BLE001  (there is nobody above; the parent learns the status)
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(status)


def _die_with(parent: int) -> None:
    """Let the kernel kill this process with its parent, even while it hangs in a library."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before
        os._exit(1)


if __name__ == "__main__":
    main()
