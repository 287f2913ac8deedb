"""Binding: what is resident changes, and what goes for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, final

from repertory.models.errors import ArtifactError, NoRoom
from repertory.models.program import Program
from repertory.transports.device import Device, Residency
from repertory.transports.loop import Loop

from .budget import Budget
from .flightbook import FlightBook
from .policy import Bind, Entry, GroupState
from .room import least_valuable

__all__ = ["TRIES", "Binding"]

TRIES: Final = 3
"""Binds of a program that may find no room with nothing left to evict; then the group serves it no more."""


@final
class Binding:
    """Makes programs resident, on one device after another.

    Attributes:
        swaps: binds that succeeded, over all devices.
        evictions: programs that had to make room for another, likewise.
        swapped: the binds by the programs' keys, as long as somebody uses them.
        evicted: the evictions, likewise.

    Args:
        state: the group's.
        flight: what is in flight, and has to land before its program goes.
        budget: is told where the device finds no room.
        loop: for the clock.
        landing: waits until something has landed.
        tell_swap: told of a program that is resident now: when its bind began, and when it ended.
        tell_eviction: told of a program that goes, and for what.
    """

    def __init__(
        self,
        state: GroupState,
        flight: FlightBook,
        budget: Budget,
        loop: Loop,
        *,
        landing: Callable[[], Awaitable[None]],
        tell_swap: Callable[[Program, float, float], None],
        tell_eviction: Callable[[Program, str], None],
    ) -> None:
        self.swaps = 0
        self.evictions = 0
        self.swapped: Counter[str] = Counter()
        self.evicted: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()
        self._state = state
        self._flight = flight
        self._budget = budget
        self._loop = loop
        self._landing = landing
        self._tell_swap = tell_swap
        self._tell_eviction = tell_eviction

    def open(self) -> None:
        """Another device is open: it may have room where the last one had none."""
        self._tries.clear()

    def forget(self, program: Program) -> None:
        """Nobody uses a program any more."""
        for counter in (self.swapped, self.evicted, self._tries):
            counter.pop(program.key, None)

    async def for_turn(self, device: Device, bind: Bind) -> ArtifactError | None:
        """Bind for frames that wait; return why they are never served here, where that is so.

        Where the device finds no room, and nothing is left to evict, the lack may pass: the frames wait until
        the group counts on all of its memory again, and it is tried again, `TRIES` times in all.
        """
        program = bind.entry.program
        try:
            await self.bind(device, bind.entry, bind.evict)
        except ArtifactError as error:
            return error
        except NoRoom as error:
            self._tries[program.key] += 1
            if self._tries[program.key] >= TRIES:
                return self.no_room(program, error)
        return None

    async def bind(self, device: Device, entry: Entry, evict: Sequence[Program]) -> None:
        """Swap, which begins a turn of the entry.

        Raises:
            ArtifactError: the device refuses the program.
            NoRoom: the device finds no room for it, and nothing is left to evict.
        """
        program, state = entry.program, self._state
        state.binding, state.bind_began = entry, self._loop.now()
        self._flight.hours.look(state.bind_began)
        try:
            residency = await self._residency(device, program, evict)
        finally:
            began, ended = state.bind_began, self._loop.now()
            state.binding = None
        self._flight.settle_in(residency)
        entry.swap.add(ended - began)
        entry.learned()
        state.swap.add(ended - began)
        state.load.add(ended, ended - began, 0)
        self.swaps += 1
        self.swapped[program.key] += 1
        self._tries.pop(program.key, None)
        entry.turn_since, entry.turn_frames = ended, 0
        self._tell_swap(program, began, ended)

    async def landed(self, evict: Sequence[Program]) -> None:
        """Wait until a bind that evicts these changes nothing that a frame in flight needs.

        Raises:
            DeviceError: the fault that came meanwhile.
        """
        self._flight.check()
        while self._flight.blocks(evict):
            await self._landing()
            self._flight.check()

    def no_room(self, program: Program, cause: NoRoom) -> ArtifactError:
        """Say that a program finds no room, with the numbers."""
        error = ArtifactError(
            f"{program.name} ({program.footprint} bytes, {program.scratch} shared) finds no room on"
            f" {self._state.name}, and nothing is left to evict: {cause}"
        )
        error.__cause__ = cause
        return error

    async def _residency(self, device: Device, program: Program, evict: Sequence[Program]) -> Residency:
        """Bind; while the device finds no room, evict one program more, and try again."""
        why = f"for {program.name}"
        while True:
            self._evict(evict, why)
            try:
                residency = await device.bind(program, evict=evict)
            except NoRoom as error:
                evict = least_valuable(self._state)[:1]
                self._budget.no_room(program, last=not evict)
                if not evict:
                    raise
                why = f"for {program.name}, which found no room: {error}"
                await self.landed(evict)
            else:
                assert residency is not None, "a bind of a program returns its residency"
                return residency

    def _evict(self, programs: Sequence[Program], why: str) -> None:
        """Programs make room."""
        gone = [program for program in programs if program.key in self._state.residents]
        self._flight.evict(programs)
        now = self._loop.now()
        for program in gone:
            self.evictions += 1
            self.evicted[program.key] += 1
            self._tell_eviction(program, why)
            for entry in self._state.entries:
                if entry.program.key == program.key:
                    entry.left = now
                    if entry.context.waiting:
                        entry.lost = now
