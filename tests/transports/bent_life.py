"""Devices that break a clause on bind, probe or close; see `bent.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar
from weakref import WeakSet

import anyio
from anyio.lowlevel import checkpoint

from repertory.models.errors import ArtifactError, DeviceBusy, DeviceLost
from repertory.models.program import Program
from repertory.transports.device import Completed, Completion, Fault, Health, Residency
from repertory.transports.frame import Frame
from repertory.transports.world import World

from .bent import Case, Sound, breaks

__all__ = ["BENT"]

BENT: list[Case] = []


# -- bind


@breaks(BENT, "foreign_program", "did not raise ArtifactError")
class TakingStrangers(Sound):
    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        return await super().bind(program and replace(program, image=None), evict=evict)


@breaks(BENT, "foreign_program", "its program is not resident")
class ForgettingAllOnAFailedBind(Sound):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.bound: list[Program] = []

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        try:
            residency = await super().bind(program, evict=evict)
        except ArtifactError:
            await super().bind(None, evict=self.bound)
            raise
        self.bound += [program] if program else []
        return residency


@breaks(BENT, "foreign_program", "after the failed bind did not raise")
class KeepingTheEvictedOnAFailedBind(Sound):
    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        if program is not None and program.image is not None and not isinstance(program.image, float):
            raise ArtifactError("never")
        return await super().bind(program, evict=evict)


@breaks(BENT, "foreign_program", "broken for good")
class BrokenByAFailedBind(Sound):
    broken = False

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        if self.broken and program is not None and isinstance(program.image, float):
            raise DeviceLost("broken for good", family="bent")
        try:
            return await super().bind(program, evict=evict)
        except ArtifactError:
            self.broken = True
            raise


@breaks(BENT, "shielded_bind", "did not return")
class CancelledBeforeABind(Sound):
    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        await checkpoint()
        return await super().bind(program, evict=evict)


@breaks(BENT, "shielded_bind", "did not return")
class CancelledAfterABind(Sound):
    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        residency = await super().bind(program, evict=evict)
        await checkpoint()
        return residency


@breaks(BENT, "shielded_bind", "returned None")
class SwallowingTheCancellation(Sound):
    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        try:
            await checkpoint()
        except anyio.get_cancelled_exc_class():
            return None
        return await super().bind(program, evict=evict)


@breaks(BENT, "evict", "start of a freed program did not raise")
class NeverFreeing(Sound):
    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        return await super().bind(program, evict=evict) if program else None


@breaks(BENT, "evict", "which was not bound")
class FreeingResidentsOnly(Sound):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.bound: set[str] = set()

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        for gone in evict:
            if gone.key not in self.bound:
                raise KeyError(f"{gone.name}, which was not bound")
        self.bound |= {program.key} if program else set()
        return await super().bind(program, evict=evict)


# -- probe and close


@breaks(BENT, "probe", "it is not well")
class Unwell(Sound):
    async def probe(self) -> Health:
        return Health(well=False)


@breaks(BENT, "probe_beside", "it is not well with frames in flight")
class UnwellAtWork(Sound):
    flying = 0

    def start(self, frame: Frame) -> None:
        super().start(frame)
        self.flying += 1

    def report(self, completions: Sequence[Completion]) -> None:
        self.flying -= len(completions)
        super().report(completions)

    async def probe(self) -> Health:
        return Health(well=not self.flying)


@breaks(BENT, "close_in_flight", "got no completion")
class LosingFramesInAClose(Sound):
    closing = False

    async def close(self, *, bound: float) -> None:
        self.closing = True
        await super().close(bound=bound)

    def report(self, completions: Sequence[Completion]) -> None:
        if not self.closing:
            super().report(completions)


@breaks(BENT, "close_in_flight", "after the close")
class CallingBackAfterTheClose(LosingFramesInAClose):
    def report(self, completions: Sequence[Completion]) -> None:
        if self.closing:
            self.world.loop.call_soon(lambda: self.answer_later(*completions))
        super().report(completions)


@breaks(BENT, "close_in_time", "were given")
class ClosingTooLate(Sound):
    async def close(self, *, bound: float) -> None:
        await super().close(bound=bound)
        await anyio.sleep(2 * bound)


@breaks(BENT, "close_in_time", "TimeoutError")
class NeverClosing(Sound):
    async def close(self, *, bound: float) -> None:
        await anyio.sleep_forever()


@breaks(BENT, "close_again", "was never opened")
class WantingToBeOpenForAClose(Sound):
    opened = False

    async def open(self, completed: Completed, fault: Fault) -> None:
        self.opened = True
        await super().open(completed, fault)

    async def close(self, *, bound: float) -> None:
        if not self.opened:
            raise RuntimeError("it was never opened")
        await super().close(bound=bound)


@breaks(BENT, "close_again", "closed twice")
class ClosingOnce(Sound):
    closed = False

    async def close(self, *, bound: float) -> None:
        if self.closed:
            raise RuntimeError("closed twice")
        self.closed = True
        await super().close(bound=bound)


@breaks(BENT, "closed", "probe did not raise DeviceError")
class WellWhenClosed(Sound):
    async def probe(self) -> Health:
        return Health(well=True)


@breaks(BENT, "closed", "bind raised AssertionError")
class AssertingToBeOpen(Sound):
    opened = False

    async def open(self, completed: Completed, fault: Fault) -> None:
        self.opened = True
        await super().open(completed, fault)

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        if not self.opened:
            raise AssertionError
        return await super().bind(program, evict=evict)


@breaks(BENT, "shielded_close", "got no completion")
class CancelledInAClose(Sound):
    async def close(self, *, bound: float) -> None:
        await checkpoint()
        await super().close(bound=bound)


@breaks(BENT, "close_during_bind", "gone")
class FailingABindInAClose(Sound):
    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        try:
            return await super().bind(program, evict=evict)
        except DeviceLost as error:
            raise AttributeError("gone") from error


@breaks(BENT, "reopen", "DeviceBusy")
class KeepingItsLock(Sound):
    locks: ClassVar[WeakSet[World]] = WeakSet()

    async def open(self, completed: Completed, fault: Fault) -> None:
        if self.world in self.locks:
            raise DeviceBusy("somebody holds the lock", family="bent")
        self.locks.add(self.world)
        await super().open(completed, fault)
