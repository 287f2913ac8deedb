"""The memory that the NPU reads and writes: physically contiguous blocks, mapped into this process."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Final, final

from repertory.models.errors import ConfigError, DeviceError, NoRoom
from repertory.transports.xm_npu.errors import NpuRefusal
from repertory.transports.xm_npu.views import Views

from .generation import FLUSH_RANGE, MmzLayout
from .handle import Call, Handle
from .kernel import Kernel

__all__ = ["Block", "Mmz"]

_READ_WRITE: Final = 3  # PROT_READ | PROT_WRITE; without them a block can only be read
_SHARED: Final = 1 << 8  # MAP_SHARED, above the 8 bits of the protection
_BLOCK_NAME: Final = 15  # bytes, beside the NUL
_ZONE_NAME: Final = 31

_log = logging.getLogger("repertory.xm_npu")


@final
class Block:
    """Memory of one zone, mapped in one way for as long as it lives.

    Attributes:
        name: as `/proc/media-mem` shows it.
        address: physical, of its first byte.
        size: bytes.
        cached: whether the CPU sees it through its cache; decided when it is made, for the kernel refuses a
            second way.
    """

    def __init__(self, mmz: Mmz, name: str, address: int, size: int, *, cached: bool) -> None:
        self.name = name
        self.address = address
        self.size = size
        self.cached = cached
        self.mapped = 0  # address in this process, or 0
        self._mmz = mmz
        self._views = Views(lambda: mmz.memory(self))

    def view(self, offset: int, size: int) -> memoryview:
        """Return a stretch of its bytes, writable; it can be used until the block is closed."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ValueError(f"{size} bytes at {offset} do not lie within {self.size}")
        if not self.mapped:
            raise ValueError(f"block {self.name} was given back")
        return self._views.take(offset, size)

    async def flush(self, offset: int, size: int) -> None:
        """Write back what the CPU has in its cache of these bytes, and drop it there; never after a run.

        Without effect where the block is not cached.
        """
        if self.cached and size:
            await self._mmz.flush(self, offset, size)

    async def close(self) -> None:
        """Unmap it, then free it; any number of times.

        Raises:
            NpuRefusal: EBUSY, it is mapped elsewhere, and the kernel frees it at the last unmap; or another.
        """
        try:
            self._views.revoke()
        except BufferError as error:
            raise NpuRefusal(
                f"UNMAP: block {self.name} is still looked at here; it is given back when its node is closed",
                call="UNMAP",
                status=errno.EBUSY,
            ) from error
        await self._mmz.give_back(self)


@final
class Mmz:
    """`/dev/mmz_userdev`, opened; needs CAP_SYS_RAWIO, and serves the process that opened it only.

    Args:
        kernel: the system calls.
        path: of the node.
        layout: of its table.
        zone: where blocks come from; `anonymous` without one.

    Raises:
        ConfigError: the zone's name is too long.
        DeviceLost: the node is not there, or may not be used.
    """

    def __init__(self, kernel: Kernel, path: Path, layout: MmzLayout, *, zone: str | None = None) -> None:
        self._zone = _zone_name(zone or "")
        self._kernel = kernel
        self._layout = layout
        self._blocks: dict[Block, None] = {}
        self._handle = Handle(kernel, path, forbidden="this process lacks CAP_SYS_RAWIO; be root")

    @property
    def inherited(self) -> bool:
        """Whether this is a fork of the process that opened it."""
        return self._handle.inherited

    @property
    def held(self) -> int:
        """Bytes of blocks that are ours."""
        return sum(block.size for block in self._blocks)

    async def alloc(self, name: str, size: int, *, cached: bool) -> Block:
        """Take a block and map it.

        Args:
            name: for people; its first 15 bytes are told to the kernel.
            size: bytes; the kernel rounds up to pages.
            cached: how it is mapped.

        Raises:
            NoRoom: the zone has no such stretch free.
            NpuRefusal, DeviceLost: the kernel refused; nothing stays behind.
        """
        info = self._info(size=size, name=_block_name(name))
        call = Call("ALLOC", self._layout.alloc, {errno.EINVAL: f"is there a zone {self._zone.decode()!r}?"})
        try:
            await self._handle.call(call, info)
        except NpuRefusal as refusal:
            if refusal.status == errno.ENOMEM:
                raise NoRoom(f"{refusal}; {size} bytes were wanted", wanted=size) from refusal
            raise
        block = Block(self, name, self._layout.info.unpack(info)[0], size, cached=cached)
        self._blocks[block] = None
        try:
            await self._map(block)
        except BaseException:
            await self.drop(block)
            raise
        return block

    async def flush(self, block: Block, offset: int, size: int) -> None:
        """See `Block.flush`."""
        argument = bytearray(FLUSH_RANGE.pack(block.address + offset, block.mapped + offset, size))
        meanings = {errno.EFAULT: "address and mapping do not belong together, or no block is there"}
        await self._handle.call(Call("FLUSH_DCACHE_DIRTY", self._layout.flush_range, meanings), argument)

    async def give_back(self, block: Block) -> None:
        """See `Block.close`."""
        if block not in self._blocks:
            return
        if block.mapped:
            meanings = {errno.EIO: "it is not mapped", errno.ENOMEM: "no block is there"}
            await self._handle.call(
                Call("UNMAP", self._layout.unmap, meanings),
                self._info(block.address, size=block.size, mapped=block.mapped),
            )
            block.mapped = 0
        del self._blocks[block]
        meanings = {
            errno.EBUSY: f"block {block.name} is mapped elsewhere; it is freed at the last unmap",
            errno.EPERM: f"block {block.name} is unknown to it",
        }
        await self._handle.call(Call("FREE", self._layout.free, meanings), self._info(block.address))

    async def drop(self, block: Block) -> None:
        """Give a block back, and only log what goes wrong with it."""
        try:
            await block.close()
        except DeviceError as error:
            _log.warning("%s", error)

    def memory(self, block: Block) -> memoryview:
        """Return the bytes of a mapped block."""
        return self._kernel.memory(block.mapped, block.size)

    async def close(self) -> None:
        """Give back what is left, and close the node. Never raises.

        A fork leaves the blocks to the process that took them.
        """
        if not self._handle.inherited:
            for block in list(self._blocks):
                await self.drop(block)
        self._blocks.clear()
        try:
            self._handle.close()
        except DeviceError as error:
            _log.warning("%s", error)

    async def _map(self, block: Block) -> None:
        name, code = (
            ("USER_REMAP_CACHED", self._layout.remap_cached)
            if block.cached
            else ("USER_REMAP", self._layout.remap)
        )
        info = self._info(block.address, size=block.size)
        await self._handle.call(Call(name, code), info)
        block.mapped = self._layout.info.unpack(info)[4]

    def _info(self, address: int = 0, *, size: int = 0, mapped: int = 0, name: bytes = b"") -> bytearray:
        modes = _READ_WRITE | _SHARED
        return bytearray(self._layout.info.pack(address, 0, size, 0, mapped, modes, name, self._zone, 0))


def _zone_name(zone: str) -> bytes:
    data = zone.encode()
    if len(data) > _ZONE_NAME or b"\0" in data:
        raise ConfigError(f"zone {zone!r}: no name of a zone, which has up to {_ZONE_NAME} bytes")
    return data


def _block_name(name: str) -> bytes:
    return name.encode("ascii", "replace").replace(b"\0", b"?")[:_BLOCK_NAME]
