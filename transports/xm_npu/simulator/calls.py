"""What the calls of the simulated library have in common."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from repertory.models.xmm import Xmm
from repertory.transports.xm_npu.cl.library import XmediaCl
from repertory.transports.xm_npu.errors import ClStatus

from .block import Block
from .holdings import Event, HeldGraph
from .machine import NpuMachine
from .process import Process

__all__ = ["LibraryCalls"]

T = TypeVar("T")


class LibraryCalls(XmediaCl):
    """The state, and how it is touched.

    Args:
        machine: what stands behind the driver.
    """

    simulated = True

    def __init__(self, machine: NpuMachine) -> None:
        self.exports = machine.params.exports
        self._machine = machine
        self._process = Process(machine)
        self._locked: dict[int, int] = {}
        self._last_read: Xmm | None = None

    def _call(self, operation: Callable[[float], T]) -> T:
        """Do something that does not wait."""

        def pumped(now: float) -> T:
            self._process.pump(now)
            return operation(now)

        return self._machine.call(pumped)

    async def _wait(self, ready: Callable[[float], T]) -> T:
        """Wait without a bound, as the library does it."""

        def pumped(now: float) -> T:
            self._process.pump(now)
            return ready(now)

        return await self._machine.wait(pumped, until=self._process.next_event)

    def _note(self, text: str) -> None:
        self._machine.notes.append(text)

    def _graph(self, handle: int) -> HeldGraph | None:
        found = self._process.graphs.get(handle)
        if found is None and handle:
            self._note(f"graph {handle:#x} is used, and is none")
        return found

    def _event(self, handle: int) -> Event | None:
        """Return an event that may be used; none where it was released, or is locked by this very thread."""
        found = self._process.events.get(handle)
        if found is None and handle:
            self._note(f"event {handle:#x} is used after its release")
        if found is not None and self._locked.get(threading.get_ident()) == handle:
            self._note(
                f"event {handle:#x} is used in its own callback, where it is locked: the library hangs"
            )
            return None
        return found

    def _at(self, address: int) -> tuple[Block, int] | None:
        """Return the block that the host sees at an address, and the offset in it."""
        return self._machine.mmz.mapped_at(address, real=True) if address else None

    def _phys(self, address: int) -> tuple[int, ClStatus]:
        """Return the physical address of a buffer, and whether the NPU takes it."""
        found = self._at(address)
        if found is None:
            return 0, ClStatus.INVALID_VALUE
        phys = found[0].phys + found[1]
        return phys, ClStatus.ERROR_ADDR_ALIGN if phys % 8 else ClStatus.SUCCESS
