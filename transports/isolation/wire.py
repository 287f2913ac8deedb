"""A socket that carries batches of messages, and files beside them."""

from __future__ import annotations

import logging
import os
import socket
from array import array
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar, final

import msgspec

__all__ = ["Wire", "WireClosed"]

Out = TypeVar("Out")
In = TypeVar("In")

_HEAD: Final = 4  # bytes of a batch's length, little endian
_CHUNK: Final = 1 << 16
_BESIDE: Final = socket.CMSG_SPACE(array("i").itemsize)  # a batch brings one file, and a read ends there

_log = logging.getLogger("repertory.isolation")


@final
class WireClosed(Exception):
    """The other side is gone."""


@final
class Wire(Generic[Out, In]):
    """One end of a stream socket; at most one thread sends, and one receives.

    A fork of the process that made it has no business here: to it `send` and `shutdown` do nothing.

    Args:
        end: owned from now on; blocking.
        incoming: the type of a batch that comes: a list of messages.
    """

    def __init__(self, end: socket.socket, incoming: Any) -> None:
        self._files: deque[int] = deque()
        self._socket = end
        self._owner = os.getpid()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[list[In]] = msgspec.msgpack.Decoder(incoming)
        self._buffer = bytearray()

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait on."""
        return self._socket.fileno()

    def send(self, batch: Sequence[Out], files: Sequence[int] = ()) -> None:
        """Send messages that the other side gets together; blocks while it does not read.

        Raises:
            WireClosed: nobody will.
        """
        if os.getpid() != self._owner:
            return
        data = bytearray(_HEAD)
        self._encoder.encode_into(batch, data, _HEAD)
        data[:_HEAD] = (len(data) - _HEAD).to_bytes(_HEAD, "little")
        try:
            sent = socket.send_fds(self._socket, [data], files) if files else 0
            self._socket.sendall(memoryview(data)[sent:])
        except OSError as error:
            raise WireClosed from error

    def receive(self, *, wait: bool) -> list[In]:
        """Return the messages that are there; with `wait`, at least one.

        A batch that cannot be read is logged and passed over.

        Raises:
            WireClosed: no more will come, or a file was lost on the way.
        """
        flags = socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT)
        while not (messages := self._unpack()):
            try:
                data, beside, found, _ = self._socket.recvmsg(_CHUNK, _BESIDE, flags)
            except BlockingIOError:
                break
            except OSError as error:
                raise WireClosed from error
            for _, _, files in beside:
                self._files.extend(array("i", files))
            if (
                found & socket.MSG_CTRUNC
            ):  # this process may open no more, and files belong to messages in turn
                _log.error("a file that came with a message was lost: is there a limit of open files?")
                raise WireClosed
            if not data:
                raise WireClosed
            self._buffer += data
        return messages

    @contextmanager
    def file(self) -> Generator[int]:
        """Take the oldest descriptor that came along; it is closed afterwards."""
        file = self._files.popleft()
        try:
            yield file
        finally:
            os.close(file)

    def shutdown(self) -> None:
        """End both directions: every call that waits on either side returns."""
        if os.getpid() != self._owner:
            return
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it was never connected, or is closed

    def close(self) -> None:
        """Give the descriptors back; nobody may be inside a call."""
        self._socket.close()
        while self._files:
            os.close(self._files.popleft())

    def _unpack(self) -> list[In]:
        """Take the whole batches off the buffer."""
        messages: list[In] = []
        buffer, begin = self._buffer, 0
        while (body := begin + _HEAD) <= len(buffer):
            end = body + int.from_bytes(buffer[begin:body], "little")
            if end > len(buffer):
                break
            try:
                messages += self._decoder.decode(memoryview(buffer)[body:end])
            except msgspec.MsgspecError as error:
                _log.error("a batch of messages was not understood: %s", error)
            begin = end
        del buffer[:begin]
        return messages
