"""What all calls of the simulated library stand on: the state, who guards it, and how they wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from repertory.transports.memx.constants import Status
from repertory.transports.memx.library import REQUIRED, Libmemx

from .admin import Admin
from .board import Halt
from .border import Bordered, Record
from .core import Core
from .downloads import Downloads
from .ferry import Ferry
from .image import Images
from .locks import GroupLocks

if TYPE_CHECKING:
    from repertory.transports.world import World

    from .parameters import SimulatedMx3

__all__ = ["Machine"]

T = TypeVar("T")


class Machine(Bordered):
    """A simulated machine with its groups.

    Args:
        world: where it runs; entered before.
        mx3: what is simulated.
        record: see `Bordered`.
    """

    def __init__(self, world: World, mx3: SimulatedMx3, record: Record | None) -> None:
        super().__init__(Libmemx.__abstractmethods__ - REQUIRED - mx3.hidden, record)
        self._world = world
        self._now = world.now
        self._core = Core(mx3)
        self._downloads = Downloads(self._core)
        self._admin = Admin(self._core)
        self._locks = GroupLocks(mx3)
        self._images = Images(mx3)
        self._guard()

    def _guard(self) -> None:
        self._condition = self._world.condition()
        self._ferry = Ferry(self._condition, self._now, self._core.mx3.patience)

    def forked(self) -> None:
        """Let nothing move, and wait for nothing that a lost thread may have held."""
        self._guard()
        for group in self._core.groups:
            group.halts.add(Halt.FORKED)

    def _read(self, look: Callable[[float], T]) -> T:
        """Look at the state as it is now."""
        with self._condition:
            return look(self._now())

    def _do(self, step: Callable[[float], object]) -> int:
        """Change the state, now."""
        with self._condition:
            step(self._now())
            self._condition.notify()
        return Status.OK

    async def _until(self, ready: Callable[[float], bool], *, step: float | None = None) -> None:
        """Wait for the state to become `ready`; with `step`, look that often, for the world outside."""
        await self._condition.wait(
            lambda: ready(self._now()),
            timeout=None,
            next_event=lambda: self._core.next_event(self._now()) if step is None else self._now() + step,
        )

    async def _command(self, group_id: int) -> None:
        """Wait as long as a group's firmware takes."""
        if seconds := self._read(lambda _: self._admin.seconds(group_id)):
            until = self._now() + seconds
            await self._condition.wait(lambda: self._now() >= until, timeout=None, next_event=lambda: until)
