"""Blocks of memory: what their calls are given, what goes wrong, and what they leave behind."""

from __future__ import annotations

import errno
import logging

import numpy as np
import pytest

from repertory.models.errors import ConfigError, DeviceError, DeviceLost
from repertory.transports.virtual import VirtualWorld
from repertory.transports.xm_npu.errors import NpuRefusal
from repertory.transports.xm_npu.ioctl.generation import MMZ_GK7206, MMZ_V500
from repertory.transports.xm_npu.ioctl.mmz import Mmz
from repertory.transports.xm_npu.simulator.board import Board

from .scripted import MMZ, ScriptedKernel, word

pytestmark = pytest.mark.virtual


async def test_a_cached_block_is_written_back_by_its_flush() -> None:
    async with VirtualWorld() as world:
        board = Board(world)
        mmz = Mmz(board.kernel(), MMZ, MMZ_GK7206)
        block = await mmz.alloc("block", 4096, cached=True)
        block.view(100, 4)[:] = b"seen"

        def seen() -> bytes:
            found = board.mmz.read(block.address + 100, 4)
            assert found is not None
            return found.tobytes()

        assert seen() != b"seen"
        await block.flush(100, 0)
        assert seen() != b"seen"
        await block.flush(100, 4)
        assert seen() == b"seen"
        board.mmz.write(block.address + 100, np.frombuffer(b"news", np.uint8))
        assert bytes(block.view(100, 4)) == b"news"
        await block.close()
        await mmz.close()
        assert board.leaks() == []
        assert board.faults == []


async def test_what_a_flush_is_given() -> None:
    async with VirtualWorld() as world:
        kernel = ScriptedKernel(world)
        mmz = Mmz(kernel, MMZ, MMZ_V500)
        plain, block = [await mmz.alloc(name, 4096, cached=name == "b") for name in "ab"]
        await plain.flush(0, 4096)
        assert "FLUSH_DCACHE_DIRTY" not in kernel.calls, "what is not cached needs none"
        await block.flush(64, 128)
        told = kernel.table("FLUSH_DCACHE_DIRTY")
        base = block.address
        assert [word(told, at) for at in (0, 4, 8)] == [base + 64, base + 0x70000000 + 64, 128]
        kernel.fail["FLUSH_DCACHE_DIRTY"] = [errno.EFAULT]
        with pytest.raises(NpuRefusal, match="FLUSH_DCACHE_DIRTY: /dev/mmz_userdev: EFAULT"):
            await block.flush(0, 1)
        assert kernel.named("USER_REMAP", "USER_REMAP_CACHED") == ["USER_REMAP", "USER_REMAP_CACHED"]
        await mmz.close()
        assert (kernel.blocks, kernel.fds, mmz.held) == ({}, {}, 0)


@pytest.mark.parametrize(
    ("call", "number", "meaning"),
    [
        ("ALLOC", errno.EINVAL, "is there a zone 'npu'"),
        ("USER_REMAP", errno.EINVAL, "USER_REMAP"),
        ("UNMAP", errno.EIO, "is not mapped"),
        ("FREE", errno.EBUSY, "block net is mapped elsewhere; it is freed at the last unmap"),
        ("FREE", errno.EPERM, "is unknown to it"),
        ("FREE", errno.ENODEV, "ENODEV"),
    ],
)
async def test_what_the_errnos_of_memory_mean(call: str, number: int, meaning: str) -> None:
    async with VirtualWorld() as world:
        kernel = ScriptedKernel(world)
        mmz = Mmz(kernel, MMZ, MMZ_V500, zone="npu")
        kernel.fail[call] = [number]
        with pytest.raises(DeviceError, match=meaning) as caught:
            await (await mmz.alloc("net", 10, cached=False)).close()
        assert type(caught.value) is (DeviceLost if number == errno.ENODEV else NpuRefusal)
        assert (caught.value.call, caught.value.status) == (call, number)
        assert mmz.held == (10 if call == "UNMAP" else 0), "what could not be unmapped is tried again"
        await mmz.close()
        assert kernel.fds == {}
        assert kernel.blocks == {}


async def test_an_error_at_the_end_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with VirtualWorld() as world:
        kernel = ScriptedKernel(world)
        mmz = Mmz(kernel, MMZ, MMZ_V500)
        await mmz.alloc("net", 10, cached=False)
        kernel.fail |= {"UNMAP": [errno.EIO], "close": [errno.EIO]}
        with caplog.at_level(logging.WARNING):
            await mmz.close()
        assert "UNMAP: /dev/mmz_userdev: EIO" in caplog.text
        assert "close: /dev/mmz_userdev: EIO" in caplog.text
        assert kernel.fds == {}


async def test_what_does_not_lie_within() -> None:
    async with VirtualWorld() as world:
        mmz = Mmz(ScriptedKernel(world), MMZ, MMZ_V500)
        block = await mmz.alloc("net", 10, cached=False)
        for offset, size in ((-1, 1), (0, 11), (10, 1), (0, -1)):
            with pytest.raises(ValueError, match="do not lie within 10"):
                block.view(offset, size)
        await block.close()
        with pytest.raises(ValueError, match="block net was given back"):
            block.view(0, 1)
        await mmz.close()


@pytest.mark.parametrize("zone", ["x" * 32, "a\0b"])
async def test_names_that_are_no_zone(zone: str) -> None:
    async with VirtualWorld() as world:
        kernel = ScriptedKernel(world)
        with pytest.raises(ConfigError, match="no name of a zone"):
            Mmz(kernel, MMZ, MMZ_V500, zone=zone)
        assert kernel.calls == []
