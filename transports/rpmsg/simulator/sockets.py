"""An endpoint over a real descriptor: a socket pair, with the firmware in a thread at its other end."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias, final

from repertory.models.errors import DeviceLost
from repertory.transports.rpmsg.endpoint import Endpoint
from repertory.transports.rpmsg.linux.endpoint import READ, FdEndpoint
from repertory.transports.world import Condition, drive

from .board import Board, Port

__all__ = ["SocketEndpoint"]

_Step: TypeAlias = Callable[[], None]


def _end() -> None:
    """What the thread gets instead of something to compute."""


@final
class SocketEndpoint(Endpoint):
    """The endpoint that hardware has too, with what a socket does otherwise made up for.

    Sends are counted, as rpmsg has a fixed number of buffers; and when the core is stopped, what had
    arrived is lost, as rpmsg_char does it.

    Raises:
        DeviceBusy: somebody is connected.
        DeviceLost: the core is stopped, or this process has no descriptors left.
    """

    def __init__(self, board: Board, condition: Condition, now: Callable[[], float], name: str) -> None:
        self._board = board
        self._condition = condition
        self._now = now
        with condition:
            self._port = board.open_port(now(), inline=False)
        try:
            self._inner, theirs = _connected(now)
            self._core = _served(board, self._port, condition, now, ends=(self._inner, theirs), name=name)
        except BaseException:
            with condition:
                board.close_port(self._port)
                condition.notify()
            raise

    def send(self, message: bytes) -> bool:
        with self._condition:
            self._board.advance(self._now())
            self._port.check()
            if not self._board.accepts() or not self._inner.send(message):
                return False
            self._core.pull()  # it arrives now, however late the thread wakes
            self._condition.notify()
            return True

    async def receive(self, timeout: float | None) -> bytes | None:
        try:
            message = await self._inner.receive(timeout)
        except DeviceLost:
            self._port.check()
            raise
        self._port.check()
        if self._core.backlog:
            with self._condition:
                self._condition.notify()
        return message

    def wake(self) -> None:
        self._inner.wake()

    def close(self) -> None:
        with self._condition:
            self._board.advance(self._now())
            self._board.close_port(self._port)
            self._condition.notify()
        self._inner.close()


def _connected(now: Callable[[], float]) -> tuple[FdEndpoint, socket.socket]:
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise DeviceLost(f"no socket pair: {error.strerror}", family="c7x", call="socketpair") from error
    try:
        endpoint = FdEndpoint(ours.fileno(), now=now, empty_is_end=True)
    except BaseException:
        ours.close()
        theirs.close()
        raise
    ours.detach()
    return endpoint, theirs


def _served(
    board: Board,
    port: Port,
    condition: Condition,
    now: Callable[[], float],
    *,
    ends: tuple[FdEndpoint, socket.socket],
    name: str,
) -> _Core:
    """Start the thread; both ends are closed where it cannot be."""
    inner, theirs = ends
    try:
        core = _Core(board, port, condition, now, theirs)
        threading.Thread(target=core.run, name=f"simulated {name}", daemon=True).start()
    except RuntimeError as error:
        inner.close()
        theirs.close()
        raise DeviceLost(f"no thread: {error}", family="c7x", call="open") from error
    except BaseException:
        inner.close()
        theirs.close()
        raise
    return core


@final
class _Core:
    """The thread: messages in, time on, messages out, and twins computed while nothing is held.

    Attributes:
        backlog: replies that the socket had no room for; rpmsg always has.
    """

    def __init__(
        self, board: Board, port: Port, condition: Condition, now: Callable[[], float], end: socket.socket
    ) -> None:
        end.setblocking(False)
        self.backlog: deque[bytes] = deque()
        self._board = board
        self._port = port
        self._condition = condition
        self._now = now
        self._end = end

    def run(self) -> None:
        """Serve until the connection ends."""
        with self._end:
            drive(self._serve())

    def pull(self) -> None:
        """Take what has been sent. The condition is held."""
        if self._port.loss is not None:
            return
        with suppress(OSError):
            while message := self._end.recv(READ):
                self._board.deliver(self._port, message, self._now())

    async def _serve(self) -> None:
        step: _Step | None = None
        while step is not _end:
            if step is not None:
                step()
                with self._condition:
                    self._condition.notify()  # the connection may have ended meanwhile, and another begun
            step = await self._condition.wait(self._step, timeout=None, next_event=self._board.next_event)

    def _step(self) -> _Step | None:
        self.pull()
        self._board.advance(self._now())
        if self._port.loss is not None:
            return _end
        self._push()
        return self._board.firmware.claim()

    def _push(self) -> None:
        while (message := self._port.take(self._now())) is not None:
            self.backlog.append(message)
        with suppress(OSError):
            while self.backlog:
                self._end.send(self.backlog[0])
                self.backlog.popleft()
