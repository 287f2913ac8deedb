"""What a group has started and not seen completed, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import final

from repertory.models.errors import (
    ContractError,
    DeviceError,
    DeviceHung,
    DeviceLost,
    RepertoryError,
    again,
)
from repertory.models.program import Program
from repertory.transports.device import Completion, Residency
from repertory.transports.frame import Fate, Frame, Outcome

from .context import ModelContext
from .policy import Entry, GroupState
from .tenants import Tenant
from .timesheet import TimeSheet

__all__ = ["FlightBook"]


@final
class FlightBook:
    """Frames in flight with their tenants, and how many more each resident program may have there.

    Attributes:
        completed: frames that the device has completed, over all incarnations.
        busy: seconds of device time that they took.
        rooms: how many more frames of each resident program may be started, by key.
        fault: why the device is out of service: what its frames are told; None while it is in service.
        hours: how the group spends its time.

    Args:
        state: the policy's view, kept up to date here where it is about frames.
        now: on the loop's clock.
    """

    def __init__(self, state: GroupState, now: float) -> None:
        self.hours = TimeSheet(state, now)
        self.completed = 0
        self.busy = 0.0
        self.fault: DeviceError | None = None
        self._state = state
        self._frames: dict[Frame, Tenant] = {}
        self.rooms: dict[str, int] = {}
        self._lone: Frame | None = None  # the last one that found the device idle

    def __contains__(self, frame: Frame) -> bool:
        return frame in self._frames

    def settle_in(self, residency: Residency) -> None:
        """A program is resident, with none of its frames in flight."""
        self._state.residents[residency.program.key] = residency.program
        self.rooms[residency.program.key] = residency.window

    def evict(self, programs: Iterable[Program]) -> None:
        """Programs are not resident any more."""
        for program in programs:
            self._state.residents.pop(program.key, None)
            self.rooms.pop(program.key, None)

    def blocks(self, evict: Collection[Program]) -> bool:
        """Whether a bind that evicts these would change what a frame in flight needs."""
        state = self._state
        if state.bind_needs_idle:
            return state.in_flight > 0
        keys = {program.key for program in evict}
        return any(frame.program is not None and frame.program.key in keys for frame in self._frames)

    def check(self) -> None:
        """Raise the fault, if there is one."""
        if self.fault is not None:
            raise self.fault

    def start(self, tenant: Tenant, count: int, now: float, start: Callable[[Frame], None]) -> int:
        """Take up to `count` frames from a tenant and start them; return how many there were."""
        take, frames, state = tenant.context.take, self._frames, self._state
        entry, program, network = tenant.entry, tenant.entry.program, tenant.network
        started, service = 0, entry.service.value
        busy, transit = state.busy_for(now), entry.transit.value
        needed = busy if entry.stale(now) else busy + service + transit
        idle = not state.in_flight
        try:
            while started < count and (frame := take(now, needed)) is not None:
                frame.program = program
                if network is not None:
                    frame.network = network
                frames[frame] = tenant
                if idle and not started:
                    self._lone = frame
                started += 1
                needed = busy + (started + 1) * service + transit
                start(frame)
        finally:
            entry.in_flight += started
            entry.context.flying += started
            entry.granted -= started
            entry.turn_frames += started
            if started:
                entry.served = now
                state.flying[entry] = None
                if not state.in_flight:
                    state.progress = now
            self.rooms[program.key] -= started
            state.in_flight += started
            if started and state.in_flight == started:
                self.hours.look(now)
        return started

    def land(self, completions: Sequence[Completion], now: float) -> ContractError | None:
        """Settle what the device has completed; return in what it broke its contract, if it did."""
        frames, rooms, state = self._frames, self.rooms, self._state
        busy = worth = 0.0
        breach: ContractError | None = None
        for completion in completions:
            frame = completion.frame
            tenant = frames.pop(frame, None)
            if tenant is None:
                breach = ContractError(f"{frame!r} was completed, and is not in flight")
                continue
            tenant.entry.in_flight -= 1
            tenant.context.landed()
            worth += tenant.entry.worth
            state.in_flight -= 1
            if frame.program is not None and frame.program.key in rooms:
                rooms[frame.program.key] += 1
            outputs = completion.outputs
            if completion.fate is Fate.DONE and len(outputs) != len(frame.network.outputs):
                breach = ContractError(f"{frame!r} came with {len(outputs)} outputs")
                frame.settle(Outcome.FAILED, error=again(breach))
            elif completion.fate is Fate.DONE:
                if completion.release is not None:  # lent: a caller that asked for no lease gets its own
                    outputs = tuple(array.copy() for array in outputs)
                    completion.release()
                frame.settle(Outcome.ANSWERED, outputs)
                frame.inputs = ()
            else:
                self._not_done(completion, frame, tenant.context)
            busy += completion.busy
            self._learn(completion, tenant.entry, now)
            if not tenant.entry.in_flight:
                state.flying.pop(tenant.entry, None)
        self.busy += busy
        busy = min(busy, now - state.progress)
        state.load.add(now, busy, worth)
        self.hours.landed(busy, now)
        state.progress = now
        self.completed += len(completions)
        return breach

    def _learn(self, completion: Completion, entry: Entry, now: float) -> None:
        """Learn what a frame takes: on the device, and, where it found that idle, on its way."""
        frame, busy = completion.frame, completion.busy
        if busy:
            entry.service.add(busy)
        if frame is self._lone:
            self._lone = None
            if busy and frame.started is not None:
                entry.transit.add(now - frame.started - busy)
        entry.learned()

    def clear(self, lost: DeviceError, now: float) -> None:
        """The device is gone: what a broken one left in flight goes back to its context."""
        self.land([Completion(frame, Fate.UNDONE, error=lost) for frame in self._frames], now)
        self._lone = None
        self.rooms.clear()
        self._state.residents.clear()

    def _not_done(self, completion: Completion, frame: Frame, context: ModelContext) -> None:
        """Give the frame its second chance, or its error.

        A frame that somebody waits for comes back undone and lost only from a device that is going down. So
        that is the fault, whether it was reported or will be: nothing more is started there.
        """
        error = completion.error
        wanted = completion.fate is Fate.UNDONE and frame.outcome is None
        if wanted and self.fault is None and isinstance(error, DeviceLost | DeviceHung):
            self.fault = error
        if completion.fate is Fate.UNDONE and context.undo(frame):
            return
        frame.settle(Outcome.FAILED, error=self._blame(completion))
        frame.inputs = ()

    def _blame(self, completion: Completion) -> RepertoryError:
        if self.fault is not None:
            return again(self.fault)
        if completion.error is not None:
            return again(completion.error)
        return DeviceLost(f"{completion.frame!r} was not run", family="group")
