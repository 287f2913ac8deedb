"""The real kernel's calls, on files and devices that every Linux has."""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from repertory.transports.rpmsg.linux.kernel import LinuxKernel
from tests.memx.nobody import nobody


@pytest.fixture
def shared() -> Iterator[Path]:
    """Give a folder that everybody may look into, unlike pytest's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_node_is_opened_to_read_and_write_without_blocking(tmp_path: Path) -> None:
    path = tmp_path / "node"
    path.touch()
    fd = LinuxKernel().open(path)
    assert fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_NONBLOCK) == os.O_RDWR | os.O_NONBLOCK
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    LinuxKernel().close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        LinuxKernel().close(fd)


@pytest.mark.parametrize(("mode", "may"), [(0o666, True), (0o444, False), (0o222, False), (0, False)])
def test_permission_is_asked_for_who_we_are_to_the_kernel(mode: int, may: bool, shared: Path) -> None:
    path = shared / "node"
    path.touch()
    path.chmod(mode)
    with nobody():
        assert LinuxKernel().may_use(path) is may
    assert not LinuxKernel().may_use(shared / "none")


def test_when_a_file_was_changed_last(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).touch()
    first, second = (LinuxKernel().changed(tmp_path / name) for name in ("first", "second"))
    assert 0 <= second - first < 10
    with pytest.raises(FileNotFoundError):
        LinuxKernel().changed(tmp_path / "none")


def test_an_ioctl_changes_its_argument() -> None:
    """FIONREAD tells how many bytes wait in a pipe."""
    reader, writer = os.pipe()
    os.write(writer, b"five!")
    argument = bytearray(4)
    LinuxKernel().ioctl(reader, 0x541B, argument)
    assert struct.unpack("<i", argument) == (5,)
    os.close(reader)
    os.close(writer)


def test_an_ioctl_without_an_argument() -> None:
    """FIONCLEX clears close-on-exec."""
    fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    LinuxKernel().ioctl(fd, 0x5450)
    assert os.get_inheritable(fd)
    os.close(fd)


def test_a_request_that_the_file_does_not_know() -> None:
    fd = os.memfd_create("no heap", os.MFD_CLOEXEC)
    with pytest.raises(OSError, match="Inappropriate ioctl"):
        LinuxKernel().ioctl(fd, 0xC0184800, bytearray(24))
    os.close(fd)


def test_a_map_is_shared_and_lives_as_long_as_a_view() -> None:
    kernel = LinuxKernel()
    fd = os.memfd_create("map", os.MFD_CLOEXEC)
    os.truncate(fd, 4096)
    view = kernel.map(fd, 4096)
    part = view[100:104]
    part[:] = b"here"
    assert os.pread(fd, 4, 100) == b"here"
    os.close(fd)
    del view
    assert bytes(part) == b"here"
