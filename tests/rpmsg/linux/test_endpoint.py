"""The endpoint over real descriptors: socket pairs, real polls, a real eventfd; and what a kernel may say."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from repertory.models.errors import ContractError, DeviceLost
from repertory.transports.real import RealWorld
from repertory.transports.rpmsg.endpoint import MTU
from repertory.transports.rpmsg.linux.endpoint import FdEndpoint
from repertory.transports.rpmsg.linux.kernel import Kernel, LinuxKernel
from repertory.transports.world import drive

BOUND = 10.0


class Pair(NamedTuple):
    endpoint: FdEndpoint
    peer: socket.socket


def _make(kernel: Kernel | None = None, *, empty_is_end: bool = True) -> Pair:
    ours, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    endpoint = FdEndpoint(ours.detach(), now=time.monotonic, empty_is_end=empty_is_end, kernel=kernel)
    return Pair(endpoint, peer)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = _make()
    yield made
    made.endpoint.close()
    made.peer.close()


def _receive(endpoint: FdEndpoint, timeout: float | None = BOUND) -> bytes | None:
    return drive(endpoint.receive(timeout))


def _lost(endpoint: FdEndpoint) -> DeviceLost:
    """Return the error that a receive ends with, which every call from then on raises too."""
    with pytest.raises(DeviceLost, match=r"^endpoint lost: ") as caught:
        _receive(endpoint)
    for call in (lambda: _receive(endpoint), lambda: endpoint.send(b"x")):
        with pytest.raises(DeviceLost) as again:
            call()
        assert str(again.value) == str(caught.value)
        assert again.value.__cause__ is caught.value.__cause__
    assert caught.value.family == "c7x"
    return caught.value


def test_messages_are_whole_and_in_order(pair: Pair) -> None:
    messages = [b"a", bytes(range(256)), b"z" * MTU]
    for message in messages:
        assert pair.endpoint.send(message)
    assert [pair.peer.recv(1000) for _ in messages] == messages
    for message in messages:
        pair.peer.send(message)
    assert [_receive(pair.endpoint) for _ in messages] == messages


def test_a_message_of_a_whole_buffer_is_not_cut(pair: Pair) -> None:
    pair.peer.send(b"x" * 512)
    assert _receive(pair.endpoint) == b"x" * 512


@pytest.mark.parametrize("size", [0, MTU + 1, 512])
def test_a_message_that_is_none(size: int, pair: Pair) -> None:
    with pytest.raises(ContractError, match=f"1 to 496 bytes, and not {size}"):
        pair.endpoint.send(bytes(size))
    pair.peer.setblocking(False)
    with pytest.raises(BlockingIOError):
        pair.peer.recv(1000)
    assert pair.endpoint.send(b"all is well")


def test_no_buffer_is_free(pair: Pair) -> None:
    sent = 0
    while pair.endpoint.send(b"x" * MTU):
        sent += 1
    assert sent > 1
    for _ in range(sent):
        pair.peer.recv(1000)
    assert pair.endpoint.send(b"x")


@pytest.mark.parametrize("timeout", [0, 0.0004, 0.0123, 0.03])
def test_a_timeout_is_never_early(timeout: float, pair: Pair) -> None:
    start = time.monotonic()
    assert _receive(pair.endpoint, timeout) is None
    assert time.monotonic() - start >= timeout


@pytest.mark.parametrize(
    ("timeout", "milliseconds"), [(0.0301, [31]), (0.0004, [1]), (0.03, [30]), (0, [0]), (-1, [0])]
)
def test_a_timeout_is_rounded_up_and_polled_once(
    timeout: float, milliseconds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = _count_polls(monkeypatch, instantly=True)
    ours, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    endpoint = FdEndpoint(ours.detach(), now=lambda: sum(polls) / 1000)
    assert _receive(endpoint, timeout) is None
    assert polls == milliseconds
    endpoint.close()
    peer.close()


class Polls(list[int]):
    """The timeouts of polls, and all events that were ever asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.events = 0


def _count_polls(monkeypatch: pytest.MonkeyPatch, *, instantly: bool = False) -> Polls:
    made, polls = select.poll, Polls()

    class Poll:
        def __init__(self) -> None:
            self._poll = made()

        def register(self, fd: int, events: int) -> None:
            polls.events |= events
            self._poll.register(fd, events)

        def poll(self, timeout: int) -> list[tuple[int, int]]:
            polls.append(timeout)
            return self._poll.poll(0 if instantly else timeout)

    monkeypatch.setattr(select, "poll", Poll)
    return polls


def test_only_reading_is_ever_polled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel never reports POLLOUT for rpmsg: who waits for it waits for ever."""
    polls = _count_polls(monkeypatch)
    endpoint, peer = _make()
    while endpoint.send(b"x" * MTU):
        pass
    assert polls == []
    assert _receive(endpoint, 0) is None
    assert polls.events == select.POLLIN
    endpoint.close()
    peer.close()


def test_a_wait_without_end_is_polled_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    polls = _count_polls(monkeypatch)
    endpoint, peer = _make()
    endpoint.wake()
    assert _receive(endpoint, None) is None
    endpoint.wake()
    assert _receive(endpoint, 1e9) is None
    assert polls == [3_600_000, 3_600_000]
    endpoint.close()
    peer.close()


def test_a_wake_is_kept_for_the_next_receive(pair: Pair) -> None:
    pair.endpoint.wake()
    pair.endpoint.wake()
    assert _receive(pair.endpoint, None) is None
    start = time.monotonic()
    assert _receive(pair.endpoint, 0.02) is None
    assert time.monotonic() - start >= 0.02, "both wakes are spent"
    pair.peer.send(b"x")
    assert _receive(pair.endpoint) == b"x"


def test_what_has_arrived_comes_before_a_wake(pair: Pair) -> None:
    pair.peer.send(b"first")
    pair.peer.send(b"second")
    pair.endpoint.wake()
    assert [_receive(pair.endpoint), _receive(pair.endpoint)] == [b"first", b"second"]
    assert _receive(pair.endpoint, None) is None


@pytest.mark.realtime
async def test_a_wake_from_another_thread_ends_a_wait(anyio_backend: object) -> None:
    endpoint, peer = _make()
    got: list[bytes | None] = []

    async def loop() -> None:
        got.append(await endpoint.receive(None))
        got.append(await endpoint.receive(BOUND))

    async with RealWorld() as world:
        driver = world.spawn(loop, name="reader")
        endpoint.wake()
        peer.send(b"x")
        assert await driver.join(BOUND)
        assert driver.error is None
    assert got in ([None, b"x"], [b"x", None])
    endpoint.close()
    peer.close()


def test_a_wake_after_the_close_touches_nobody_elses_descriptor() -> None:
    endpoint, peer = _make()
    endpoint.close()
    reused = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(8)]
    endpoint.wake()
    for fd in reused:
        with pytest.raises(BlockingIOError):
            os.eventfd_read(fd)
        os.close(fd)
    peer.close()


def test_wakes_and_a_close_at_once() -> None:
    endpoint, peer = _make()
    start = threading.Barrier(3)

    def wake() -> None:
        start.wait()
        for _ in range(2000):
            endpoint.wake()

    threads = [threading.Thread(target=wake) for _ in range(2)]
    for thread in threads:
        thread.start()
    start.wait()
    endpoint.close()
    reused = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(8)]
    for thread in threads:
        thread.join()  # pytest fails a test whose thread raises
    for fd in reused:
        with pytest.raises(BlockingIOError):
            os.eventfd_read(fd)
        os.close(fd)
    peer.close()


def test_a_close_is_told_of_first_and_leaves_nothing_open() -> None:
    before = _open_files()
    ours, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    told: list[bool] = []
    fd = ours.detach()
    endpoint = FdEndpoint(fd, now=time.monotonic, on_close=lambda each: told.append(_is_open(each)))
    endpoint.close()
    endpoint.close()
    peer.close()
    assert told == [True]
    assert _open_files() == before
    with pytest.raises(DeviceLost, match="it was closed"):
        endpoint.send(b"x")
    with pytest.raises(DeviceLost, match="it was closed"):
        _receive(endpoint)


def _is_open(fd: int) -> bool:
    return Path(f"/proc/self/fd/{fd}").exists()


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_the_other_end_closes_behind_its_last_message(pair: Pair) -> None:
    pair.peer.send(b"first")
    pair.peer.send(b"last")
    pair.peer.close()
    assert [_receive(pair.endpoint), _receive(pair.endpoint)] == [b"first", b"last"]
    assert "the other end is closed" in str(_lost(pair.endpoint))


def test_the_other_end_closes_with_messages_unread(pair: Pair) -> None:
    """Then a socket resets the connection, and still has what had arrived before."""
    pair.endpoint.send(b"never read")
    pair.peer.send(b"first")
    pair.peer.send(b"last")
    pair.peer.close()
    assert [_receive(pair.endpoint), _receive(pair.endpoint)] == [b"first", b"last"]
    assert isinstance(_lost(pair.endpoint).__cause__, ConnectionResetError)


def test_a_send_to_nobody(pair: Pair) -> None:
    pair.peer.close()
    with pytest.raises(DeviceLost, match="endpoint lost: write: Broken pipe") as caught:
        pair.endpoint.send(b"x")
    assert isinstance(caught.value.__cause__, BrokenPipeError)
    assert caught.value.call == "write"
    assert "write: Broken pipe" in str(_lost(pair.endpoint))


def test_a_descriptor_that_is_not_open() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    os.close(writer)
    before = _open_files()
    with pytest.raises(DeviceLost, match="Bad file descriptor"):
        FdEndpoint(reader, now=time.monotonic)
    assert _open_files() == before


def test_a_descriptor_that_somebody_closes_meanwhile() -> None:
    ours, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    endpoint = FdEndpoint(ours.fileno(), now=time.monotonic)
    ours.close()
    assert "read: Bad file descriptor" in str(_lost(endpoint))
    endpoint.close()
    peer.close()


class Scripted(Kernel):
    """Says what it is told to; then it is the real one."""

    def __init__(self, *answers: int | bytes) -> None:
        self._answers = list(answers)
        self._real = LinuxKernel()

    def _next(self) -> bytes | None:
        if not self._answers:
            return None
        answer = self._answers.pop(0)
        if isinstance(answer, bytes):
            return answer
        raise OSError(answer, os.strerror(answer))

    def read(self, fd: int, size: int) -> bytes:
        answer = self._next()
        return self._real.read(fd, size) if answer is None else answer

    def write(self, fd: int, message: bytes) -> None:
        self._next()
        self._real.write(fd, message)

    def close(self, fd: int) -> None:
        self._real.close(fd)

    def open(self, path: Path) -> NoReturn:
        raise NotImplementedError

    def ioctl(self, fd: int, request: int, argument: bytearray | None = None) -> NoReturn:
        raise NotImplementedError

    def map(self, fd: int, size: int) -> NoReturn:
        raise NotImplementedError

    def may_use(self, path: Path) -> NoReturn:
        raise NotImplementedError

    def changed(self, path: Path) -> NoReturn:
        raise NotImplementedError


ENDS = (errno.EPIPE, errno.ENETRESET, errno.ENODEV, errno.EBADF, errno.ENXIO, 512)


@pytest.mark.parametrize("number", ENDS)
def test_a_read_that_tells_the_end(number: int) -> None:
    endpoint, peer = _make(Scripted(number))
    peer.send(b"lost with it")
    error = _lost(endpoint)
    assert error.call == "read"
    assert isinstance(error.__cause__, OSError)
    assert error.__cause__.errno == number
    endpoint.close()
    peer.close()


@pytest.mark.parametrize("number", [*ENDS, errno.ECONNRESET, errno.EMSGSIZE])
def test_a_write_that_tells_the_end(number: int) -> None:
    endpoint, peer = _make(Scripted(number))
    with pytest.raises(DeviceLost, match="endpoint lost: write: ") as caught:
        endpoint.send(b"x")
    assert isinstance(caught.value.__cause__, OSError)
    _lost(endpoint)
    endpoint.close()
    peer.close()


def test_a_reset_for_good() -> None:
    endpoint, peer = _make(Scripted(errno.ECONNRESET, errno.ECONNRESET))
    assert "Connection reset" in str(_lost(endpoint))
    endpoint.close()
    peer.close()


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM])
def test_a_write_that_finds_no_buffer(number: int) -> None:
    endpoint, peer = _make(Scripted(number))
    assert not endpoint.send(b"x")
    assert endpoint.send(b"y")
    assert peer.recv(10) == b"y"
    endpoint.close()
    peer.close()


def test_what_arrives_together_with_a_wake_comes_first_too() -> None:
    endpoint, peer = _make(Scripted(errno.EAGAIN))
    peer.send(b"x")
    endpoint.wake()
    assert _receive(endpoint) == b"x"
    assert _receive(endpoint, None) is None
    endpoint.close()
    peer.close()


def test_interrupted_calls_are_made_again() -> None:
    endpoint, peer = _make(Scripted(errno.EINTR, errno.EINTR, b"answer", errno.EINTR))
    assert _receive(endpoint) == b"answer"
    assert endpoint.send(b"x")
    endpoint.close()
    peer.close()


def test_an_empty_message_of_rpmsg_char_is_nothing() -> None:
    endpoint, peer = _make(Scripted(b"", b"", b"answer", b""), empty_is_end=False)
    assert _receive(endpoint) == b"answer"
    assert _receive(endpoint, 0) is None
    endpoint.close()
    peer.close()


def test_an_error_that_only_poll_sees_is_no_spin() -> None:
    endpoint, peer = _make(Scripted(*[errno.EAGAIN] * 3))
    peer.close()
    error = _lost(endpoint)
    assert error.call == "poll"
    endpoint.close()
