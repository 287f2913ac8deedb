"""Memory of the carveout: attached, synced, given back, and first-fit."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from repertory.models.errors import DeviceBusy, DeviceLost
from repertory.transports.rpmsg.linux.heap import PREFERRED, DmaBuffer, find_heap
from repertory.transports.rpmsg.linux.kernel import LinuxKernel

from .conftest import MakeDsp
from .machine import BASE, CARVEOUT, Machine
from .tree import HEAP, Tree

MIB = 1 << 20


@pytest.fixture
def board(tree: Tree) -> Tree:
    tree.dsp(index=2)
    tree.heap()
    return tree


def test_a_buffer_is_rounded_up_and_attached(make_dsp: MakeDsp, board: Tree, machine: Machine) -> None:
    buffer = make_dsp().allocate(5000)
    assert (buffer.size, buffer.address, len(buffer.view)) == (8192, BASE, 8192)
    assert machine.calls == [
        f"open {HEAP}",
        "ioctl 0xc0184800",
        "close",
        "open remoteproc2",
        "ioctl 0xc010b700",
        "map",
    ]
    buffer.close()
    buffer.close()
    assert machine.left == (0, [], 0)


def test_what_is_written_is_in_the_dma_buf(make_dsp: MakeDsp, board: Tree, machine: Machine) -> None:
    buffer = make_dsp().allocate(4096)
    buffer.view[10:13] = b"abc"
    (shared,) = machine.buffers
    assert os.pread(shared.fd, 3, 10) == b"abc"
    os.pwrite(shared.fd, b"xyz", 20)
    assert bytes(buffer.view[20:23]) == b"xyz"
    buffer.close()


def test_syncs(make_dsp: MakeDsp, board: Tree, machine: Machine) -> None:
    buffer = make_dsp().allocate(4096)
    buffer.flush()
    buffer.invalidate()
    assert machine.buffers[0].syncs == [6, 1]
    buffer.close()


@pytest.mark.parametrize("number", [errno.EINTR, errno.EAGAIN])
def test_an_interrupted_sync_is_made_again(
    number: int, make_dsp: MakeDsp, board: Tree, machine: Machine
) -> None:
    buffer = make_dsp().allocate(4096)
    machine.failures["ioctl 0x40086200"] = [number] * 3
    buffer.flush()
    assert machine.buffers[0].syncs == [6]
    buffer.close()


@pytest.mark.parametrize("numbers", [[errno.ENOTTY], [errno.EAGAIN] * 5000])
def test_a_sync_that_fails(numbers: list[int], make_dsp: MakeDsp, board: Tree, machine: Machine) -> None:
    buffer = make_dsp().allocate(4096)
    machine.failures["ioctl 0x40086200"] = numbers
    with pytest.raises(DeviceLost, match="DMA_BUF_IOCTL_SYNC") as caught:
        buffer.flush()
    assert isinstance(caught.value.__cause__, OSError)
    machine.failures.clear()
    buffer.close()
    with pytest.raises(DeviceLost, match="Bad file descriptor"):
        buffer.invalidate()


def test_buffers_of_an_empty_carveout_lie_one_behind_the_other(
    make_dsp: MakeDsp, board: Tree, machine: Machine
) -> None:
    dsp = make_dsp()
    buffers = [dsp.allocate(size * MIB) for size in (468, 12, 32)]
    assert [buffer.address for buffer in buffers] == [0xC0000000, 0xDD400000, 0xDE000000]
    with pytest.raises(DeviceBusy):
        dsp.allocate(1)
    for buffer in buffers:
        buffer.close()


def test_closing_one_buffer_gives_back_that_one_alone(
    make_dsp: MakeDsp, board: Tree, machine: Machine
) -> None:
    """Each has a descriptor of the remote processor of its own."""
    dsp = make_dsp()
    first, second, third = (dsp.allocate(4096) for _ in range(3))
    second.close()
    assert [bool(each.attached) for each in machine.buffers] == [True, True]
    again = dsp.allocate(4096)
    assert again.address == BASE + 4096
    for buffer in (first, third, again):
        buffer.close()


def test_memory_stays_mapped_while_a_view_lives(make_dsp: MakeDsp, board: Tree, machine: Machine) -> None:
    dsp = make_dsp()
    buffer = dsp.allocate(4096)
    buffer.view[:4] = b"kept"
    array = np.frombuffer(buffer.view[:4], np.uint8)
    buffer.close()
    assert array.tobytes() == b"kept"
    other = dsp.allocate(4096)
    assert other.address == BASE + 4096, "its place is still taken"
    other.close()
    del array
    assert machine.left == (0, [], 0)


def test_a_full_carveout_names_who_may_have_it(make_dsp: MakeDsp, board: Tree, machine: Machine) -> None:
    dsp = make_dsp()
    everything = dsp.allocate(CARVEOUT)
    with pytest.raises(DeviceBusy, match=r"no 4096 bytes are free.*wire version 2 takes all") as caught:
        dsp.allocate(1)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.call == "DMA_HEAP_IOCTL_ALLOC"
    everything.close()


FAILURES = {
    f"open {HEAP}": "open",
    "ioctl 0xc0184800": "DMA_HEAP_IOCTL_ALLOC",
    "map": "mmap",
    "open remoteproc2": "open",
    "ioctl 0xc010b700": "RPROC_IOC_DMA_BUF_ATTACH",
}


@pytest.mark.parametrize("call", FAILURES)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENODEV, errno.EACCES, errno.ENOTTY])
def test_what_fails_is_named_and_gives_everything_back(
    number: int, call: str, make_dsp: MakeDsp, board: Tree, machine: Machine
) -> None:
    machine.failures[call] = [number]
    with pytest.raises(DeviceLost) as caught:
        make_dsp().allocate(4096)
    node = "remoteproc2" if "remoteproc" in call or "b700" in call else HEAP
    assert node in str(caught.value)
    assert caught.value.call == FAILURES[call]
    assert isinstance(caught.value.__cause__, OSError)
    assert ("udev" in str(caught.value)) is (number == errno.EACCES)
    assert machine.left == (0, [], 0)


@pytest.mark.parametrize("call", ["ioctl 0xc0184800", "ioctl 0xc010b700"])
def test_interrupted_calls_are_made_again(
    call: str, make_dsp: MakeDsp, board: Tree, machine: Machine
) -> None:
    make_dsp().allocate(4096).close()
    once = machine.calls.count(call)
    machine.failures[call] = [errno.EINTR, errno.EINTR]
    make_dsp().allocate(4096).close()
    assert (once, machine.calls.count(call)) == (1, once + 3)
    assert machine.failures[call] == []


def test_an_attach_that_finds_no_memory_is_not_a_full_heap(
    make_dsp: MakeDsp, board: Tree, machine: Machine
) -> None:
    machine.failures["ioctl 0xc010b700"] = [errno.ENOMEM]
    with pytest.raises(DeviceLost, match="Cannot allocate memory"):
        make_dsp().allocate(4096)


def test_the_preferred_heap(tree: Tree) -> None:
    assert PREFERRED == HEAP
    for name in ("carveout_a", PREFERRED, "linux,cma"):
        tree.heap(name)
    assert find_heap(tree.dev).name == PREFERRED


def test_the_only_heap(tree: Tree) -> None:
    for name in ("system", "carveout_edgeai_shared-memories", "linux,cma"):
        tree.heap(name)
    assert find_heap(tree.dev).name == "carveout_edgeai_shared-memories"


def test_several_unknown_heaps(tree: Tree) -> None:
    for name in ("carveout_b", "carveout_a"):
        tree.heap(name)
    with pytest.raises(DeviceLost, match=r"several heaps: carveout_a, carveout_b; set heap="):
        find_heap(tree.dev)
    assert find_heap(tree.dev, "carveout_b") == tree.dev / "dma_heap" / "carveout_b"


def test_no_heap(tree: Tree, tmp_path: Path) -> None:
    tree.heap("system")
    for dev in (tree.dev, tmp_path / "nowhere"):
        with pytest.raises(DeviceLost, match=r"dma_heap: no carveout_\* heap"):
            find_heap(dev)


def test_a_heap_by_its_path(tree: Tree) -> None:
    tree.heap("system")
    path = tree.dev / "dma_heap" / "system"
    assert find_heap(Path("/nowhere"), str(path)) == path


@pytest.mark.parametrize("wanted", ["carveout_c", "/carveout_c"])
def test_a_heap_that_is_not_there(wanted: str, tree: Tree) -> None:
    tree.heap()
    with pytest.raises(DeviceLost, match=f"carveout_c: no such heap; of carveouts there are: {HEAP}"):
        find_heap(tree.dev, wanted)


def test_a_dsp_takes_the_heap_that_it_is_told(make_dsp: MakeDsp, board: Tree, machine: Machine) -> None:
    board.heap("carveout_other")
    make_dsp(heap="carveout_other").allocate(1).close()
    assert machine.calls[0] == "open carveout_other"


def test_a_buffer_over_the_real_kernel() -> None:
    """A memfd in the place of a dma-buf: it maps, and refuses to sync, which is told."""
    kernel, before = LinuxKernel(), _open_files()
    fd = os.memfd_create("buffer", os.MFD_CLOEXEC)
    os.truncate(fd, 8192)
    buffer = DmaBuffer(kernel, (fd, os.open(os.devnull, os.O_RDWR)), kernel.map(fd, 8192), BASE)
    buffer.view[:5] = b"hello"
    assert os.pread(fd, 5, 0) == b"hello"
    with pytest.raises(DeviceLost, match="DMA_BUF_IOCTL_SYNC: Inappropriate ioctl"):
        buffer.flush()
    view = buffer.view
    buffer.close()
    assert bytes(view[:5]) == b"hello"
    del view
    assert _open_files() == before


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
