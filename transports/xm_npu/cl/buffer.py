"""Stage 4: memory that the NPU can reach, in blocks of whole pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from repertory.models.errors import ConfigError, NoRoom
from repertory.models.xmm_tensor import ALIGNMENT, aligned
from repertory.transports.xm_npu.views import Views

from .asked import block_name, block_size
from .library import XmediaCl
from .process import Process
from .statuses import check_sys, misuse

__all__ = ["LINE", "PAGE", "MmzBuffer", "Span", "allocate", "pages", "zone_name"]

PAGE: Final = 4096
"""Bytes in which memory is given."""

LINE: Final = 64
"""Bytes of a line of the cache, and so of what a flush works on."""

_STAGE: Final = 4
_FREE: Final = "xmedia_mmz_free"
_ZONE_NAME = 31  # bytes, without the NUL


@final
class MmzBuffer:
    """A mapped block; made by `allocate`.

    Attributes:
        name: of the block.
        phy: physical address of its first byte.
        virt: address in this process.
        size: bytes that were asked for.
        cached: whether it is mapped through the cache.
    """

    def __init__(self, library: XmediaCl, name: str, *, phy: int, virt: int, size: int, cached: bool) -> None:
        self._library = library
        self._process = Process()
        self._views = Views(lambda: library.memory(virt, size))
        self._users: list[str] = []
        self._results: Span | None = None
        self._freed = False
        self.name = name
        self.phy = phy
        self.virt = virt
        self.size = size
        self.cached = cached

    def __repr__(self) -> str:
        state = "freed" if self._freed else f"{self.size} bytes at {self.phy:#x}"
        return f"<MmzBuffer {self.name}: {state}>"

    @property
    def freed(self) -> bool:
        """Whether it was given back."""
        return self._freed

    @property
    def data(self) -> memoryview:
        """Its bytes, writable, until `free`; see `view`."""
        return self.view(0, self.size)

    def view(self, offset: int, size: int) -> memoryview:
        """Return a part of its bytes, writable.

        It is released by `free`. That is refused while a part or an array lives that was made of it.

        Raises:
            NpuRefusal: it is no part of it, or it was freed.
            DeviceLost: this is a forked child.
        """
        self.span(offset, size)
        return self._views.take(offset, size)

    def span(self, offset: int = 0, size: int | None = None) -> Span:
        """Return a part of it.

        Raises:
            NpuRefusal: it is no part of it, or it was freed.
        """
        self._check("xmedia_mmz_map")
        size = self.size - offset if size is None else size
        if offset < 0 or size < 0 or offset + size > self.size:
            raise misuse(_STAGE, "xmedia_mmz_map", f"{size} bytes at {offset} are not within {self!r}")
        return Span(self, offset, size)

    async def flush(self, offset: int = 0, size: int | None = None) -> None:
        """Write cached bytes back, and forget them; nothing is to be done where it is not cached.

        Raises:
            NpuRefusal: it was freed; the part is not within it; or outputs of a graph are bound here, whose
                runs flush them when that is right.
        """
        if self._results is not None and _meet(self._results, self.span(offset, size)):
            why = f"{self!r} holds outputs of a graph: they are never flushed after a run"
            raise misuse(7, "xmedia_mmz_flush_cache", why)
        await self.flush_lines(offset, size)

    async def flush_lines(self, offset: int = 0, size: int | None = None) -> None:
        """Flush before a run, when that is right for outputs too."""
        part = self.span(offset, size)
        if self.cached and part.size:
            status = await self._library.xmedia_mmz_flush_cache(part.phy, part.virt, part.size)
            check_sys("xmedia_mmz_flush_cache", status, stage=7)

    @property
    def in_use(self) -> bool:
        """Whether a graph uses it."""
        return bool(self._users)

    def hold(self, user: str) -> None:
        """Note that somebody uses it; for graphs."""
        self._users.append(user)

    def drop(self, user: str) -> None:
        """Note that they no longer do."""
        if user in self._users:
            self._users.remove(user)

    def results(self, where: Span | None) -> None:
        """Note where in it a graph writes its outputs, if anywhere."""
        self._results = where

    async def free(self) -> None:
        """Give it back; any number of times.

        Raises:
            NpuRefusal: a graph uses it, which must be unloaded first; `revoke`; or the driver refuses.
            DeviceLost: this is a forked child.
        """
        if self._freed:
            return
        self._process.check()
        if self._users:
            raise misuse(8, _FREE, f"{self!r} is in use by {self._users[0]}: unload that first")
        self.revoke()
        self._freed = True
        try:
            unmapped = await self._library.xmedia_mmz_unmap(self.virt)
        finally:
            freed = await self._library.xmedia_mmz_free(self.phy)
        check_sys("xmedia_mmz_unmap", unmapped, stage=8)
        check_sys(_FREE, freed, stage=8)

    def revoke(self) -> None:
        """Release all views of it.

        Raises:
            NpuRefusal: a part or an array lives that was made of one, and would read memory that is gone.
        """
        try:
            self._views.revoke()
        except BufferError as error:
            raise misuse(8, _FREE, f"{self!r} has an array on it: drop that first") from error

    def _check(self, call: str) -> None:
        self._process.check()
        if self._freed:
            raise misuse(_STAGE, call, f"{self!r} is used after it was freed")


@final
@dataclass(frozen=True, slots=True)
class Span:
    """A part of a buffer.

    Attributes:
        buffer: which.
        offset: of its first byte.
        size: bytes.
    """

    buffer: MmzBuffer
    offset: int
    size: int

    @property
    def phy(self) -> int:
        """Physical address of the first byte."""
        return self.buffer.phy + self.offset

    @property
    def virt(self) -> int:
        """Address of the first byte in this process."""
        return self.buffer.virt + self.offset

    @property
    def data(self) -> memoryview:
        """Its bytes, writable."""
        return self.buffer.view(self.offset, self.size)

    def part(self, offset: int, size: int) -> Span:
        """Return a part of it."""
        return self.buffer.span(self.offset + offset, size)

    def meets(self, other: Span) -> bool:
        """Whether the two share a line of the cache."""
        return self.buffer is other.buffer and _meet(self, other)

    def check(self, stage: int, call: str, what: str, size: int) -> None:
        """Check that it can hold something.

        Raises:
            NpuRefusal: it was freed, is too small, or does not begin at a multiple of 8.
        """
        if self.buffer.freed:
            raise misuse(stage, call, f"{what}: {self.buffer!r} is used after it was freed")
        if self.size < size:
            raise misuse(
                stage, call, f"{what}: {size} bytes are needed, {self.buffer.name} gives {self.size}"
            )
        if self.phy % ALIGNMENT:
            raise misuse(stage, call, f"{what}: {self.phy:#x} is no multiple of {ALIGNMENT}")

    async def flush(self) -> None:
        """Flush it before a run."""
        await self.buffer.flush_lines(self.offset, self.size)


def _meet(one: Span, other: Span) -> bool:
    """Whether two parts of one block share a line of the cache."""
    return (
        one.offset // LINE * LINE < other.offset + other.size
        and other.offset // LINE * LINE < one.offset + one.size
    )


def zone_name(zone: str | None) -> bytes | None:
    """Return a zone's name for the library.

    Raises:
        ConfigError: there can be no such zone.
    """
    name = None if zone is None else zone.encode()
    if name is not None and (not name or len(name) > _ZONE_NAME or b"\0" in name):
        raise ConfigError(f"zone {zone!r}: a name of 1 to {_ZONE_NAME} bytes is wanted")
    return name


def pages(size: int) -> int:
    """Round up to whole pages, in which memory is given."""
    return aligned(size, PAGE)


async def allocate(
    library: XmediaCl, name: str, size: int, *, cached: bool = True, zone: bytes | None = None
) -> MmzBuffer:
    """Take and map a block.

    Args:
        library: whose memory.
        name: of the block, 1 to 15 bytes.
        size: bytes, above 0.
        cached: whether to map it through the cache.
        zone: None for the zone `anonymous`.

    Raises:
        NoRoom: there is none of this size in one piece.
        NpuRefusal: the name or the size can be none, or mapping was refused.
    """
    call, told, size = "xmedia_mmz_alloc", block_name(name), block_size(name, size)
    if not size:
        raise misuse(_STAGE, call, f"{name}: 0 bytes; where a model needs none, pass none")
    phy = await library.xmedia_mmz_alloc(zone, told, size)
    if not phy:
        raise NoRoom(f"stage 4, {call}: no {size} bytes in one piece for {name}", wanted=size)
    try:
        virt = await library.xmedia_mmz_map(phy, size, cached)
    except BaseException:
        await library.xmedia_mmz_free(phy)
        raise
    if not virt:
        await library.xmedia_mmz_free(phy)
        raise misuse(_STAGE, "xmedia_mmz_map", f"{name}: {size} bytes at {phy:#x} were not mapped")
    return MmzBuffer(library, name, phy=phy, virt=virt, size=size, cached=cached)
