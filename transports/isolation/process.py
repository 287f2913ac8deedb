"""The child process: started by name, never by a fork that lives on, and gone whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping
from typing import Final, final

from repertory.transports.world import World

from .interpreter import command

__all__ = ["Process", "ending"]

_MODULE: Final = f"{__package__}"


@final
class Process:
    """One child, from its start to the moment when it is reaped.

    The thread that starts it waits for it, so it is reaped as soon as it ends, however late. The kernel
    kills it when that very thread ends, which is not before this process does.

    A fork of this process has a copy of this object, and no child: to it `kill` and `join` do nothing.

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
        self._parent = os.getpid()
        self._over = threading.Event()
        self.end, self._theirs = socket.socketpair()
        self._ward = world.spawn(self._live, name=f"repertory: {self.name}")

    def kill(self) -> None:
        """Let the kernel end it, whatever it does; it need not have begun."""
        self._doomed = True
        if self._child is not None and self._ours:
            self._child.kill()

    async def join(self, bound: float) -> bool:
        """Wait up to `bound` seconds; return whether it has ended and was reaped."""
        return not self._ours or await self._ward.join(bound)

    def autopsy(self, bound: float) -> str:
        """Tell how it ended; waits up to `bound` seconds for that. Blocks: for driver loops."""
        self._over.wait(bound)
        return f"{self.name} {self._fate or 'closed its connection'}"

    @property
    def _ours(self) -> bool:
        return os.getpid() == self._parent

    async def _live(self) -> None:
        try:
            with self._theirs as theirs:
                self._child = self._start(theirs)
            self.pid = self._child.pid
            if self._doomed:
                self._child.kill()
            self._fate = ending(self._child.wait())
        except Exception as error:  # noqa: BLE001  (told to whoever waits for the child)
            self._fate = f"could not be started: {error}"
        finally:
            self._over.set()
            self._hang_up()

    def _hang_up(self) -> None:
        """Let our end see the end after what is queued there, whoever else holds the other one.

        That may be a process which a library forked.
        """
        try:
            self.end.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is closed

    def _start(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        arguments = str(theirs.fileno()), str(os.getpid()), self._address
        return subprocess.Popen(  # noqa: S603  (no shell, and nothing in it but an address)
            command(_MODULE, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=2,  # libraries print there, and what this process prints may be read by a program
            pass_fds=[theirs.fileno()],
            env={**os.environ, **self._environment},
            process_group=0,  # a terminal's Ctrl-C is for the parent, which closes the device in order
        )


def ending(status: int) -> str:
    """Tell how a process ended, by what `Popen.wait` returned."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"
