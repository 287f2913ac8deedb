"""The books that every driver keeps: what is resident, what is in flight, what went wrong for good."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import final

from repertory.models.errors import ContractError, DeviceError, DeviceLost
from repertory.models.program import Program

from .device import Completed, Completion, Fault, Residency
from .frame import Fate, Frame

__all__ = ["Flight"]


@final
class _Seat:
    """A resident program and how many of its frames are in flight."""

    __slots__ = ("residency", "taken")

    def __init__(self, residency: Residency) -> None:
        self.residency = residency
        self.taken = 0


@final
class Flight:
    """Keeps three promises of the device contract in one place.

    Each started frame gets exactly one completion; a fault comes once, after the last of them; and once a
    device has failed, every later call raises the same error.

    Args:
        family: for errors.
        working: told how many more (or fewer) frames are out, where driver threads serve them.
    """

    def __init__(self, family: str, working: Callable[[int], None] | None = None) -> None:
        self._family = family
        self._working = working
        self._completed: Completed
        self._fault: Fault
        self._frames: dict[Frame, _Seat] = {}
        self._seats: dict[str, _Seat] = {}
        self._error: DeviceError | None = DeviceLost("the device is not open", family=family)

    def open(self, completed: Completed, fault: Fault) -> None:
        """The device is open, and reports to these."""
        self._completed = completed
        self._fault = fault
        self._error = None

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def residents(self) -> tuple[Residency, ...]:
        """What is resident, in the order of binding."""
        return tuple(seat.residency for seat in self._seats.values())

    def check(self) -> None:
        """Raise what made the device unusable, if anything did."""
        if self._error is not None:
            raise self._error

    def settle_in(self, residency: Residency) -> Residency:
        """Note that a program is resident."""
        seat = self._seats.setdefault(residency.program.key, _Seat(residency))
        seat.residency = residency
        return residency

    def evict(self, programs: Sequence[Program]) -> None:
        """Note that programs are not resident any more; those that were not are passed over.

        Raises:
            ContractError: frames of one are in flight; all stay.
        """
        for program in programs:
            if program.key in self._seats and self._seats[program.key].taken:
                raise ContractError(f"{program.name} was evicted with frames in flight")
        for program in programs:
            self._seats.pop(program.key, None)

    def start(self, frame: Frame) -> Residency:
        """Note a started frame; the device completes it from now on.

        Raises:
            ContractError: its program is not resident, or its window is full.
            DeviceError: the device has failed or is closed.
        """
        if self._error is not None:
            raise self._error
        seat = self._seats.get(frame.program.key) if frame.program is not None else None
        if seat is None:
            raise ContractError(f"{frame} was started, and its program is not resident")
        if seat.taken >= seat.residency.window:
            raise ContractError(f"{frame} was started, and the window of {seat.taken} frames is full")
        seat.taken += 1
        self._frames[frame] = seat
        if self._working is not None:
            self._working(1)
        return seat.residency

    def complete(self, completions: Iterable[Completion]) -> None:
        """Report completions upwards; those of frames that were completed before are dropped."""
        batch: list[Completion] = []
        frames = self._frames
        for completion in completions:
            seat = frames.pop(completion.frame, None)
            if seat is not None:
                seat.taken -= 1
                batch.append(completion)
        if not batch:
            return
        if self._working is not None:
            self._working(-len(batch))
        self._completed(batch)

    def lose(self, error: DeviceError, fate: Fate = Fate.FAILED) -> None:
        """The device is unusable: complete what is in flight with `fate`, then report the fault once."""
        if self._error is None:
            self._error = error
            self._abort(fate, error)
            self._fault(error)

    def close(self) -> None:
        """The device is closed: what is in flight certainly had no effect."""
        gone = DeviceLost("the device is closed", family=self._family)
        if self._error is None:
            self._error = gone
        self._abort(Fate.UNDONE, gone)
        self._seats.clear()

    def _abort(self, fate: Fate, error: DeviceError) -> None:
        self.complete([Completion(frame, fate, error=error) for frame in self._frames])
