"""The carveout: where buffers lie, and which side sees what when."""

from __future__ import annotations

import numpy as np
import pytest

from repertory.models.errors import DeviceBusy
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.memory import Carveout
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from repertory.transports.virtual import VirtualWorld

from .host import INFER, LOAD, Host
from .modules import double

BASE, MIB = 0xC0000000, 1 << 20
X = np.array([[1, 2, 3, 4]], np.float32)


def carveout(*, coherent: bool = True, first_fit: bool = True, size: int = MIB) -> Carveout:
    return Carveout(size, coherent=coherent, first_fit=first_fit)


def test_buffers_lie_one_behind_the_other_in_whole_pages() -> None:
    memory = carveout()
    sizes = [1, 4096, 4097]
    assert [memory.allocate(size).address - BASE for size in sizes] == [0, 4096, 8192]
    assert [buffer.size for buffer in memory.buffers] == [4096, 4096, 8192]


def test_the_first_gap_that_fits_is_taken() -> None:
    memory = carveout()
    first, second, _ = (memory.allocate(8192) for _ in range(3))
    first.close()
    assert memory.allocate(12288).offset == 24576
    assert memory.allocate(4096).offset == 0
    assert memory.allocate(4096).offset == 4096
    second.close()
    second.close()
    assert memory.allocate(8192).offset == 8192


def test_without_first_fit_the_highest_is_taken() -> None:
    memory = carveout(first_fit=False)
    assert memory.allocate(4096).offset == MIB - 4096
    assert memory.allocate(8192).offset == MIB - 12288
    assert carveout(first_fit=False).allocate(MIB).address == BASE


def test_a_full_carveout_is_busy() -> None:
    memory = carveout()
    held = memory.allocate(MIB - 4096)
    with pytest.raises(DeviceBusy, match=r"no 8192 bytes in one piece; 4096 of 1048576 are free"):
        memory.allocate(4097)
    memory.allocate(4096)
    with pytest.raises(DeviceBusy):
        memory.allocate(1)
    held.close()
    memory.allocate(MIB - 4096)


@pytest.mark.parametrize("coherent", [True, False])
def test_new_memory_is_zero_and_old_bytes_stay_until_then(coherent: bool) -> None:
    memory = carveout(coherent=coherent)
    old = memory.allocate(4096)
    old.view[:4] = b"mine"
    old.flush()
    old.close()
    assert bytes(old.view[:4]) == b"mine"
    new = memory.allocate(4096)
    assert bytes(new.view[:4]) == bytes(4)
    assert memory.read(new.address, 4) == bytes(4)


def test_syncs_are_counted() -> None:
    buffer = carveout().allocate(8192)
    buffer.flush()
    buffer.flush()
    buffer.invalidate()
    assert (buffer.flushes, buffer.invalidates, buffer.synced) == (2, 1, 3 * 8192)


def test_a_coherent_memory_needs_no_sync() -> None:
    memory = carveout()
    buffer = memory.allocate(4096)
    buffer.view[:2] = b"ab"
    assert memory.read(buffer.address, 2) == b"ab"
    memory.write(buffer.address, b"c")
    assert bytes(buffer.view[:2]) == b"cb"


def test_the_dsp_sees_what_was_flushed() -> None:
    memory = carveout(coherent=False)
    first, second = memory.allocate(4096), memory.allocate(4096)
    first.view[100] = second.view[100] = 7
    assert memory.read(first.address + 100, 1) == b"\0"
    first.flush()
    assert memory.read(first.address + 100, 1) == b"\7"
    assert memory.read(second.address + 100, 1) == b"\0"


def test_the_host_sees_what_was_invalidated() -> None:
    memory = carveout(coherent=False)
    buffer = memory.allocate(4096)
    memory.write(buffer.address, b"new")
    assert bytes(buffer.view[:3]) == bytes(3)
    buffer.invalidate()
    assert bytes(buffer.view[:3]) == b"new"


def test_a_flush_carries_only_lines_that_the_host_has_changed() -> None:
    memory = carveout(coherent=False)
    buffer = memory.allocate(4096)
    memory.write(buffer.address, b"dsp" * 50)
    buffer.view[70] = 1
    buffer.flush()
    assert memory.read(buffer.address, 64) == (b"dsp" * 50)[:64]
    assert memory.read(buffer.address + 64, 64) == bytes(6) + b"\1" + bytes(57)


def test_lines_are_clean_after_a_sync() -> None:
    memory = carveout(coherent=False)
    for sync in ("flush", "invalidate"):
        buffer = memory.allocate(4096)
        if sync == "flush":
            buffer.view[0] = 1
            buffer.flush()
        else:
            memory.write(buffer.address, b"\1")
            buffer.invalidate()
        memory.write(buffer.address, b"\2")
        buffer.view[70] = 3
        buffer.flush()
        assert memory.read(buffer.address, 1) == b"\2", sync
        assert memory.read(buffer.address + 70, 1) == b"\3"


def test_an_invalidate_drops_what_the_host_has_not_flushed() -> None:
    memory = carveout(coherent=False)
    buffer = memory.allocate(4096)
    buffer.view[0] = 1
    buffer.invalidate()
    assert buffer.view[0] == 0
    buffer.flush()
    assert memory.read(buffer.address, 1) == b"\0"


def test_a_sync_of_a_large_sparse_buffer_touches_what_was_written() -> None:
    memory = carveout(coherent=False, size=512 * MIB)
    buffer = memory.allocate(512 * MIB)
    buffer.view[300 * MIB] = 9
    buffer.flush()
    memory.write(BASE + 500 * MIB, b"x")
    buffer.invalidate()
    assert (memory.read(BASE + 300 * MIB, 1), buffer.view[500 * MIB]) == (b"\t", ord("x"))


def test_views_outlive_their_dsp() -> None:
    view = carveout().allocate(4096).view
    view[:] = b"x" * 4096
    assert bytes(view[-2:]) == b"xx"


# -- what a forgotten sync does to answers


@pytest.mark.virtual
@pytest.mark.parametrize("wire", [2, 3])
@pytest.mark.parametrize("forgotten", ["", "flush", "invalidate", "both"])
async def test_a_forgotten_sync_changes_answers(wire: int, forgotten: str) -> None:
    async with VirtualWorld() as world:
        params = SimulatedC7x(wire=2 if wire == 2 else 3, coherent=False)
        h = await Host(SimulatedDsp(params, world), wire).open()
        body = h.put_module(double())
        assert (await h.ask(LOAD, body)).status == -9, "the module was not flushed"
        h.buffers[0].flush()
        assert (await h.ask(LOAD, body)).status == 0
        request = h.job(1, h.put([X]))
        if forgotten in {"", "invalidate"}:
            for buffer in h.buffers:
                buffer.flush()
        reply = await h.ask(INFER, request)
        if forgotten in {"", "flush"}:
            for buffer in h.buffers:
                buffer.invalidate()
        right = h.outputs(reply)[0].tolist() == [[2, 4, 6, 8]]
        assert right == (forgotten == "")


@pytest.mark.virtual
async def test_leaks_are_told() -> None:
    async with VirtualWorld() as world:
        dsp = SimulatedDsp(None, world)
        kept, given = dsp.allocate(4096), dsp.allocate(4096)
        given.close()
        assert dsp.leaks == [kept]
