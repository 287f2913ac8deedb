"""Workspaces that graphs share: the hardware runs one job at a time, so that each may have all of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import final

from repertory.models.errors import NoRoom

from .buffer import MmzBuffer

__all__ = ["Workspaces"]


@final
class Workspaces:
    """Shared workspaces, each there as long as a graph uses it.

    Args:
        allocate: takes a block of a size.
    """

    def __init__(self, allocate: Callable[[int], Awaitable[MmzBuffer]]) -> None:
        self._allocate = allocate
        self._users: dict[MmzBuffer, int] = {}

    async def take(self, size: int, *, wish: int = 0) -> MmzBuffer:
        """Return one that is large enough: the smallest such, or a new one.

        Args:
            size: bytes that are needed.
            wish: bytes that others may come to need: a new one is as large, if there is room.

        Raises:
            NoRoom: there is no memory for a new one.
        """
        fitting = [each for each in self._users if each.size >= size]
        found = min(fitting, key=lambda each: each.size) if fitting else await self._new(size, wish)
        self._users[found] = self._users.get(found, 0) + 1
        return found

    async def _new(self, size: int, wish: int) -> MmzBuffer:
        if wish > size:
            with suppress(NoRoom):
                return await self._allocate(wish)
        return await self._allocate(size)

    async def leave(self, workspace: MmzBuffer) -> None:
        """Use it no more; the last one frees it."""
        self._users[workspace] -= 1
        if not self._users[workspace]:
            del self._users[workspace]
            await workspace.free()
