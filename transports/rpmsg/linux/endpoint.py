"""An endpoint over a file descriptor: a node of rpmsg_char, or a socket pair that stands for one."""

from __future__ import annotations

import errno
import math
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn, final

from repertory.models.errors import ContractError, DeviceLost
from repertory.transports.rpmsg.endpoint import MTU, Endpoint

from .kernel import Kernel, LinuxKernel

__all__ = ["READ", "FdEndpoint"]

READ: Final = 512
"""Bytes asked for by a read: an rpmsg buffer whole. A shorter read would lose the rest of a message."""

_LONGEST: Final = 3600.0  # seconds of one poll, whose milliseconds are an int
_TROUBLE: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL
_NO_BUFFER: Final = frozenset({errno.EAGAIN, errno.ENOMEM})


@final
class FdEndpoint(Endpoint):
    """Whole messages over one descriptor, which it owns and makes non-blocking.

    Only reading is ever polled for: no kernel reports POLLOUT for rpmsg. Where the kernel still gives out
    what had arrived before a loss (a socket does, rpmsg_char does not), `receive` returns that first.

    Args:
        fd: an open descriptor.
        now: a clock, in seconds.
        empty_is_end: whether a message of no bytes is the end (a socket), or nothing (rpmsg_char).
        on_close: called with the descriptor right before it is closed; must not raise.
        kernel: whom to ask for reads, writes and the close.

    Raises:
        DeviceLost: the descriptor is unusable, or no other is to be had; `fd` stays the caller's.
    """

    def __init__(
        self,
        fd: int,
        *,
        now: Callable[[], float],
        empty_is_end: bool = False,
        on_close: Callable[[int], None] | None = None,
        kernel: Kernel | None = None,
    ) -> None:
        self._fd = fd
        self._now = now
        self._empty_is_end = empty_is_end
        self._on_close = on_close
        self._kernel = LinuxKernel() if kernel is None else kernel
        self._reset: OSError | None = None
        self._loss: tuple[str, str, OSError | None] | None = None
        self._closing = threading.Lock()
        self._closed = False
        try:
            os.set_blocking(fd, False)
            self._alarm = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError as error:
            raise _lost("eventfd", error.strerror) from error
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._poll.register(self._alarm, select.POLLIN)

    def send(self, message: bytes) -> bool:
        if not 0 < len(message) <= MTU:
            raise ContractError(f"a message has 1 to {MTU} bytes, and not {len(message)}")
        self._check()
        while True:
            try:
                self._kernel.write(self._fd, message)
            except InterruptedError:
                continue
            except OSError as error:
                if error.errno in _NO_BUFFER:
                    return False
                self._lose("write", error.strerror, error)
            return True

    async def receive(self, timeout: float | None) -> bytes | None:
        self._check()
        until = math.inf if timeout is None else self._now() + timeout
        trouble = False
        while (message := self._read()) is None:
            if trouble:
                self._lose("poll", "the descriptor reports an error")
            events = self._wait(until)
            if self._fd not in events:
                self._unwake()
                return None
            trouble = bool(events[self._fd] & _TROUBLE)
        return message

    def wake(self) -> None:
        with self._closing:
            if not self._closed:
                os.eventfd_write(self._alarm, 1)

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
            os.close(self._alarm)
        self._loss = self._loss or ("close", "it was closed", None)
        if self._on_close is not None:
            self._on_close(self._fd)
        with suppress(OSError):  # the descriptor is gone whatever close says
            self._kernel.close(self._fd)

    def _read(self) -> bytes | None:
        """Return a message that is there, or None."""
        while True:
            try:
                message = self._kernel.read(self._fd, READ)
            except BlockingIOError:
                return None
            except InterruptedError:
                continue
            except ConnectionResetError as error:
                if self._reset is not None:
                    self._lose("read", error.strerror, error)
                self._reset = error  # what arrived before it is behind it
                continue
            except OSError as error:
                self._lose("read", error.strerror, error)
            if message:
                return message
            if self._empty_is_end:
                self._lose("read", "the other end is closed", self._reset)

    def _wait(self, until: float) -> dict[int, int]:
        """Return what has happened, by descriptor; nothing once `until` has come."""
        while True:
            left = min(until - self._now(), _LONGEST)
            events = dict(self._poll.poll(max(math.ceil(left * 1000), 0)))
            if events or self._now() >= until:
                return events

    def _unwake(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._alarm)

    def _check(self) -> None:
        if self._loss is not None:
            call, reason, cause = self._loss
            raise _lost(call, reason) from cause

    def _lose(self, call: str, reason: str | None, cause: OSError | None = None) -> NoReturn:
        """Note the loss for good, and raise it."""
        self._loss = (call, reason or "for no known reason", cause)
        raise _lost(call, self._loss[1]) from cause


def _lost(call: str, reason: str | None) -> DeviceLost:
    return DeviceLost(f"endpoint lost: {call}: {reason}", family="c7x", call=call)
