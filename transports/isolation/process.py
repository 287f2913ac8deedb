"""The child process: started by name, never by a fork that lives on, and gone whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

from repertory.models.errors import ConfigError
from repertory.transports.world import World

__all__ = ["Process", "interpreter"]

_MODULE: Final = f"{__package__}"


def interpreter() -> str:
    """Return what starts a Python process.

    Raises:
        ConfigError: this program has none: it is frozen, or Python is embedded in it.
    """
    if getattr(sys, "frozen", False) or not os.access(sys.executable or "", os.X_OK):
        raise ConfigError(
            f"a device in a process of its own needs a Python interpreter, and sys.executable is"
            f" {sys.executable!r}: open it without isolation"
        )
    return sys.executable


@final
class Process:
    """One child, from its start to the moment when it is reaped.

    The thread that starts it waits for it, so it is reaped as soon as it ends, however late. The kernel
    kills it when that very thread ends, which is not before this process does.

    Args:
        world: runs the thread.
        address: what the child opens.
        environment: what it finds there beside this process's own.

    Attributes:
        name: for messages: with the address as far as people know it by.
        end: our end of the connection.
        pid: set once it runs.
    """

    def __init__(self, world: World, address: str, environment: Mapping[str, str]) -> None:
        self.pid: int | None = None
        self.name = f"the process of {address.partition('?')[0]}"
        self._address = address
        self._environment = environment
        self._child: subprocess.Popen[bytes] | None = None
        self._doomed = False
        self._fate = ""
        self._over = threading.Event()
        self.end, self._theirs = socket.socketpair()
        self._ward = world.spawn(self._live, name=f"repertory: {self.name}")

    def kill(self) -> None:
        """Let the kernel end it, whatever it does; it need not have begun."""
        self._doomed = True
        if self._child is not None:
            self._child.kill()

    async def join(self, bound: float) -> bool:
        """Wait up to `bound` seconds; return whether it has ended and was reaped."""
        return await self._ward.join(bound)

    def autopsy(self, bound: float) -> str:
        """Tell how it ended; waits up to `bound` seconds for that. Blocks: for driver loops."""
        self._over.wait(bound)
        return f"{self.name} {self._fate or 'closed its connection'}"

    async def _live(self) -> None:
        try:
            with self._theirs as theirs:
                self._child = self._start(theirs)
        except OSError as error:
            self._fate = f"could not be started: {error}"
        else:
            self.pid = self._child.pid
            if self._doomed:
                self._child.kill()
            self._fate = _ending(self._child.wait())
        self._over.set()

    def _start(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        command = [interpreter(), "-P", "-m", _MODULE, str(theirs.fileno()), str(os.getpid()), self._address]
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        return subprocess.Popen(  # noqa: S603  (no shell, and nothing in it but an address)
            command,
            stdin=subprocess.DEVNULL,
            stdout=2,  # libraries print there, and what this process prints may be read by a program
            pass_fds=[theirs.fileno()],
            env={**os.environ, **self._environment, "PYTHONPATH": path},
            process_group=0,  # a terminal's Ctrl-C is for the parent, which closes the device in order
        )


def _ending(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
