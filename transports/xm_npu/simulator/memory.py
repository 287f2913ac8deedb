"""MMZ: physical memory in pages, given, mapped, flushed and taken back, as its driver does it."""

from __future__ import annotations

import errno
import os
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NoReturn, final

from repertory.models.spec import Array

from .block import Block, pages
from .cache import Flushed
from .faults import Faults
from .parameters import Zone

__all__ = ["Mmz", "refuse"]

_FIRST_VIRT: Final = 0xA0000000
_ZONE_NAME, _BLOCK_NAME = 31, 15
_U32: Final = 1 << 32


def refuse(number: int, why: str) -> NoReturn:
    """Fail as a system call does."""
    raise OSError(number, f"{os.strerror(number)}: {why}")


@final
class Mmz:
    """All zones, and the blocks that are out. Methods raise OSError with the errno of the driver.

    Args:
        zones: of memory.
        faults: switches.
        note: told what hosts did wrong and no errno told.

    Attributes:
        blocks: those that are out, by their physical address.
        leaked: for each block that its owner left behind, what the driver says.
    """

    def __init__(self, zones: tuple[Zone, ...], faults: Faults, note: Callable[[str], None]) -> None:
        self.blocks: dict[int, Block] = {}
        self.leaked: list[str] = []
        self._zones = {zone.name.encode(): zone for zone in zones}
        self._faults = faults
        self._note = note
        self._bases: list[int] = []
        self._serial = 0
        self._virt = _FIRST_VIRT

    @property
    def used(self) -> int:
        """Bytes that are out."""
        return sum(block.size for block in self.blocks.values())

    def alloc(self, zone: bytes, name: bytes, size: int, owner: int) -> Block:
        """Give the first pages that fit, in one piece.

        Raises:
            OSError: ENOMEM, there are none, or no such zone; EINVAL, of 0 bytes.
        """
        place = self._zones.get(zone[:_ZONE_NAME] or b"anonymous")
        if not 0 < size < _U32:
            refuse(errno.EINVAL, f"ALLOC of {size} bytes")
        size = pages(size)
        phys = None if place is None or self._faults.full else self._fit(place, size)
        if phys is None:
            refuse(errno.ENOMEM, f"no {size} bytes in one piece in zone {zone.decode(errors='replace')}")
        self._serial += 1
        kept = zone[:_ZONE_NAME] or b"anonymous"
        block = Block(phys, size, name=name[:_BLOCK_NAME], zone=kept, owner=owner, serial=self._serial)
        self.blocks[phys] = block
        insort(self._bases, phys)
        return block

    def free(self, phys: int, owner: int) -> None:
        """Take a block back.

        Raises:
            OSError: EPERM, none of this owner's begins there; EBUSY, it is mapped, and goes when it no longer
                is.
        """
        block = self.blocks.get(phys)
        if block is None or block.owner != owner:
            refuse(errno.EPERM, f"FREE of {phys:#x}, where no block of this process begins")
        if block.mappings or block.refs:
            block.doomed = True
            refuse(errno.EBUSY, f"FREE of {block!r}, which is in use")
        self._forget(block)

    def map(self, phys: int, size: int, *, cached: bool) -> Block:
        """Map a block, or count one mapping more.

        Raises:
            OSError: EPERM, no block begins there; EINVAL, it is smaller, or mapped with another cache type.
        """
        block = self.blocks.get(phys)
        if block is None or block.doomed:
            refuse(errno.EPERM, f"REMAP of {phys:#x}, where no block begins")
        if size > block.size:
            refuse(errno.EINVAL, f"REMAP of {size} bytes of {block!r}")
        if block.mappings and block.cached != cached:
            refuse(errno.EINVAL, f"REMAP of {block!r} with another cache type than it is mapped with")
        block.map(cached=cached)
        if not block.virt:
            block.virt, self._virt = self._virt, self._virt + block.size
        return block

    def unmap(self, block: Block) -> None:
        """Count one mapping less; its lines are cleaned and invalidated.

        Raises:
            OSError: EIO, it is not mapped.
        """
        if not block.mappings:
            refuse(errno.EIO, f"UNMAP of {block!r}, which is not mapped")
        block.unmap()
        if block.looked_at and not block.mappings:
            self._note(f"{block!r} is unmapped, and the host still looks at it")
        self._go(block)

    def refer(self, phys: int, count: int) -> None:
        """Count uses of a block besides its mappings.

        Raises:
            OSError: EPERM, no block begins there, or it has no uses left.
        """
        block = self.blocks.get(phys)
        if block is None or block.refs + count < 0:
            refuse(errno.EPERM, f"reference to {phys:#x}")
        block.refs += count
        self._go(block)

    def flush(self, phys: int, size: int, *, offset: int) -> None:
        """Clean and invalidate the lines of a stretch.

        Args:
            phys: its address.
            size: bytes.
            offset: of the host's address in the mapping that the host means.

        Raises:
            OSError: EFAULT, it lies in no block that is mapped, or reaches beyond one, or its two addresses
                do not belong together.
        """
        block = self.block(phys, 1)
        if block is None or not block.mappings:
            refuse(errno.EFAULT, f"FLUSH at {phys:#x}, where nothing is mapped")
        start = phys - block.phys
        if start != offset or size < 0 or start + size > block.size:
            refuse(errno.EFAULT, f"FLUSH of {size} bytes at {phys:#x} of {block!r}, offset {offset}")
        self._tell(block.flush(start, size), f"at {phys:#x} of {block!r}")

    def flush_all(self) -> None:
        """Clean and invalidate everything."""
        for block in list(self.blocks.values()):
            if block.mappings:
                self.flush(block.phys, block.size, offset=0)

    def close(self, owner: int) -> None:
        """Free what an owner left behind, and say so, as the driver does when its descriptor is closed."""
        for block in [block for block in self.blocks.values() if block.owner == owner]:
            self.leaked.append(f"MMB LEAK(pid={owner}): {block!r}")
            while block.mappings:
                block.unmap()
            if block.phys in self.blocks:
                self._forget(block)

    def block(self, phys: int, size: int) -> Block | None:
        """Return the block that a stretch lies in, wholly."""
        at = bisect_right(self._bases, phys) - 1
        if at < 0:
            return None
        block = self.blocks[self._bases[at]]
        return block if phys + size <= block.phys + block.size else None

    def mapped_at(self, address: int, *, real: bool) -> tuple[Block, int] | None:
        """Return the block that is mapped at the host's address, and the offset; `real` or as handed out."""
        for block in self.blocks.values():
            if block.mappings:
                offset = address - (block.address if real else block.virt)
                if 0 <= offset < block.size:
                    return block, offset
        return None

    def read(self, phys: int, size: int) -> Array | None:
        """Return what the NPU sees, uint8[size], not copied; None where there is no block."""
        block = self.block(phys, size)
        return None if block is None else block.memory[phys - block.phys :][:size]

    def write(self, phys: int, data: Array) -> None:
        """Let the NPU write; nothing happens where there is no block any more."""
        if (block := self.block(phys, data.size)) is not None:
            block.write(phys - block.phys, data)

    def write_results(self, parts: Iterable[tuple[int, Array]]) -> None:
        """Let the NPU write what a host is to read, by address."""
        found: dict[Block, list[tuple[int, Array]]] = {}
        for phys, data in parts:
            if (block := self.block(phys, data.size)) is not None:
                found.setdefault(block, []).append((phys - block.phys, data))
        for block, here in found.items():
            block.write_results(here)

    def _tell(self, flushed: Flushed, where: str) -> None:
        """Note what a flush shows that a host did wrong."""
        if flushed.overwritten:
            self._note(f"{flushed.overwritten} dirty lines were flushed over results {where}")
        if flushed.hidden:
            self._note(f"{flushed.hidden} lines were flushed after a run to see results {where}")
        if flushed.again:
            self._note(f"{flushed.again} lines of results were flushed twice, so once after the run, {where}")

    def _go(self, block: Block) -> None:
        if block.doomed and not block.mappings and not block.refs:
            self._forget(block)

    def _forget(self, block: Block) -> None:
        del self.blocks[block.phys]
        self._bases.remove(block.phys)

    def run_begins(self, phys: int, size: int) -> None:
        """Note that the NPU is about to write results."""
        if (block := self.block(phys, size)) is not None:
            block.run_begins(phys - block.phys, size)

    def _fit(self, zone: Zone, size: int) -> int | None:
        at = zone.base
        for block in self._within(zone):
            if block.phys - at >= size:
                return at
            at = block.phys + block.size
        return at if at + size <= zone.base + zone.size else None

    def _within(self, zone: Zone) -> Iterator[Block]:
        for phys in self._bases:
            if zone.base <= phys < zone.base + zone.size:
                yield self.blocks[phys]
