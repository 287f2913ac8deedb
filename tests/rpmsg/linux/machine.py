"""A kernel that answers ioctls by their numbers and bytes, over a tree of sysfs and /dev.

It was written from the kernel's interface and shares no constant with the package. Endpoints are ends of
socket pairs, dma-bufs are memfds, so that polls, reads and maps are real ones.
"""

from __future__ import annotations

import errno
import mmap
import os
import socket
import struct
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from repertory.transports.rpmsg.linux.kernel import Kernel

from .tree import Tree

__all__ = ["BASE", "CARVEOUT", "Channel", "DmaBuf", "Machine"]

BASE = 0xC0000000
CARVEOUT = 512 << 20


def _fail(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@dataclass(eq=False)
class Channel:
    """An endpoint that CREATE_EPT made."""

    directory: Path
    name: str
    source: int
    destination: int
    peer: socket.socket | None = None
    fd: int = -1
    gone: bool = False


@dataclass(eq=False)
class DmaBuf:
    """A dma-buf: it takes its place as long as anything refers to it."""

    address: int
    size: int
    fd: int
    attached: set[int] = field(default_factory=set[int])
    maps: weakref.WeakSet[mmap.mmap] = field(default_factory=weakref.WeakSet[mmap.mmap])
    syncs: list[int] = field(default_factory=list[int])

    @property
    def alive(self) -> bool:
        return self.fd >= 0 or bool(self.attached) or len(self.maps) > 0


class Machine(Kernel):
    """Attributes:
    calls: what was asked, in order.
    step: called before each call.
    served: called after each write, with the endpoint that it came by.
    failures: errnos to raise next, by call (`open rpmsg0`, `ioctl 0xb502`, ...).
    ages: seconds for which nodes have been there already, by their name.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.calls: list[str] = []
        self.step: Callable[[], None] = lambda: None
        self.served: Callable[[Channel], None] = lambda _: None
        self.failures: dict[str, list[int]] = {}
        self.denied: set[str] = set()
        self.ages: dict[str, float] = {}
        self.credits = 256
        self.files: dict[int, Path | DmaBuf | Channel] = {}
        self.channels: list[Channel] = []
        self.buffers: list[DmaBuf] = []

    # -- calls

    def open(self, path: Path) -> int:
        self._call(f"open {path.name}")
        if path.name in self.denied:
            raise _fail(errno.EACCES)
        if not path.exists():
            raise _fail(errno.ENOENT)
        channel = next((each for each in self.channels if each.directory.name == path.name), None)
        if channel is None:
            fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            self.files[fd] = path
            return fd
        if channel.fd >= 0:
            raise _fail(errno.EBUSY)
        ours, channel.peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        channel.fd = ours.detach()
        self.files[channel.fd] = channel
        return channel.fd

    def close(self, fd: int) -> None:
        self._call("close")
        file = self.files.pop(fd)
        os.close(fd)
        if isinstance(file, Channel):
            file.fd = -1
            if file.peer is not None:
                file.peer.close()
        elif isinstance(file, DmaBuf):
            file.fd = -1
        for buffer in self.buffers:
            buffer.attached.discard(fd)
        self._free()

    def ioctl(self, fd: int, request: int, argument: bytearray | None = None) -> None:
        self._call(f"ioctl {request:#x}")
        file = self.files.get(fd)
        if file is None:
            raise _fail(errno.EBADF)
        name = file.name if isinstance(file, Path) else ""
        if request == 0xB502 and isinstance(file, Channel):
            self.drop(file)
        elif request == 0x4028B501 and name.startswith("rpmsg_ctrl") and argument is not None:
            self._create(name, argument)
        elif request == 0xC0184800 and name.startswith("carveout_") and argument is not None:
            self._allocate(argument)
        elif request == 0xC010B700 and name.startswith("remoteproc") and argument is not None:
            self._attach(fd, argument)
        elif request == 0x40086200 and isinstance(file, DmaBuf) and argument is not None:
            self._sync(file, argument)
        else:
            raise _fail(errno.ENOTTY)

    def map(self, fd: int, size: int) -> memoryview:
        self._call("map")
        buffer = self.files[fd]
        assert isinstance(buffer, DmaBuf)
        mapped = mmap.mmap(fd, size)
        buffer.maps.add(mapped)
        return memoryview(mapped)

    def read(self, fd: int, size: int) -> bytes:
        self._call("read")
        channel = self.files[fd]
        if isinstance(channel, Channel) and channel.gone:
            raise _fail(errno.EPIPE)
        return os.read(fd, size)

    def write(self, fd: int, message: bytes) -> None:
        self._call("write")
        channel = self.files[fd]
        assert isinstance(channel, Channel)
        if channel.gone:
            raise _fail(errno.EPIPE)
        if len(message) > 496:
            raise _fail(errno.EMSGSIZE)
        if not self.credits:
            raise _fail(errno.EAGAIN)
        self.credits -= 1
        os.write(fd, message)
        self.served(channel)

    def may_use(self, path: Path) -> bool:
        return path.exists() and path.name not in self.denied

    def changed(self, path: Path) -> float:
        return path.stat().st_ctime - self.ages.get(path.name, 0.0)

    # -- the other side

    def consume(self, channel: Channel) -> bytes:
        """Be the DSP that takes a message, and gives its buffer back."""
        assert channel.peer is not None
        message = channel.peer.recv(512)
        self.credits += 1
        return message

    def drop(self, channel: Channel) -> None:
        """Take an endpoint away: by DESTROY_EPT, or with its bus."""
        channel.gone = True
        if channel in self.channels:
            self.channels.remove(channel)
        if channel.directory.exists():
            self.tree.remove(channel.directory)
        if channel.peer is not None:
            channel.peer.close()

    def stop(self, name: str) -> None:
        """Stop a processor orderly."""
        for channel in list(self.channels):
            if name in channel.directory.parts:
                self.drop(channel)
        self.tree.stop(name)

    def create(self, control: str, name: str) -> None:
        """Be another process that makes an endpoint."""
        self._create(control, bytearray(struct.pack("<32sII", name.encode(), 0xFFFFFFFF, 20)))

    @property
    def left(self) -> tuple[int, list[str], int]:
        """Open files, endpoints and dma-bufs."""
        self._free()
        return len(self.files), [each.name for each in self.channels], len(self.buffers)

    # -- ioctls

    def _create(self, control: str, argument: bytearray) -> None:
        assert len(argument) == 40
        raw, source, destination = struct.unpack("<32sII", argument)
        assert raw[-1] == 0, "the kernel cuts the name"
        taken = {path.name for path in (self.tree.sysfs / "class" / "rpmsg").iterdir()}
        index = next(number for number in range(1 << 20) if f"rpmsg{number}" not in taken)
        parent = (self.tree.sysfs / "class" / "rpmsg" / control).resolve()
        name = raw.rstrip(b"\0").decode()
        self.tree.endpoint(parent, index, name)
        self.channels.append(Channel(parent / f"rpmsg{index}", name, source, destination))

    def _allocate(self, argument: bytearray) -> None:
        assert len(argument) == 24
        size, fd, flags, heap_flags = struct.unpack("<QIIQ", argument)
        if not size or fd or heap_flags or flags & ~(os.O_CLOEXEC | os.O_ACCMODE):
            raise _fail(errno.EINVAL)
        self._free()
        size = -(-size // 4096) * 4096
        start = BASE
        for buffer in sorted(self.buffers, key=lambda each: each.address):
            if start + size <= buffer.address:
                break
            start = buffer.address + buffer.size
        if start + size > BASE + CARVEOUT:
            raise _fail(errno.ENOMEM)
        fd = os.memfd_create("dma-buf")
        os.truncate(fd, size)
        self.files[fd] = made = DmaBuf(start, size, fd)
        self.buffers.append(made)
        struct.pack_into("<I", argument, 8, fd)

    def _attach(self, processor: int, argument: bytearray) -> None:
        assert len(argument) == 16
        buffer = self.files.get(struct.unpack_from("<I", argument)[0])
        if not isinstance(buffer, DmaBuf):
            raise _fail(errno.EBADF)
        buffer.attached.add(processor)
        struct.pack_into("<Q", argument, 8, buffer.address)

    def _sync(self, buffer: DmaBuf, argument: bytearray) -> None:
        assert len(argument) == 8
        (flags,) = struct.unpack("<Q", argument)
        if flags & ~7 or not flags & 3:
            raise _fail(errno.EINVAL)
        buffer.syncs.append(flags)

    def _free(self) -> None:
        self.buffers = [each for each in self.buffers if each.alive]

    def _call(self, call: str) -> None:
        self.step()
        self.calls.append(call)
        if numbers := self.failures.get(call):
            raise _fail(numbers.pop(0))
