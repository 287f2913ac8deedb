"""How a group spends its time."""

from __future__ import annotations

from typing import Final, final

import msgspec

from .policy import GroupState

__all__ = ["TimeSheet", "TimeSplit"]


_OUT: Final = 0
_WORK: Final = 1
_SWAP: Final = 2
_IDLE_WITH_WORK: Final = 3
_IDLE: Final = 4


@final
class TimeSplit(msgspec.Struct, frozen=True):
    """Seconds, which sum up to `seconds`.

    Attributes:
        seconds: since the group was made.
        compute: frames were in flight and the device computed; what has not completed counts in whole.
        transfer: frames were in flight, and the device computed none: tensors were moved.
        swap: a bind went on and no frame was in flight.
        idle_with_work: neither, and frames waited for a model that this group serves.
        idle: there was nothing to do.
        out_of_service: the device was not open.
    """

    seconds: float
    compute: float
    transfer: float
    swap: float
    idle_with_work: float
    idle: float
    out_of_service: float


@final
class TimeSheet:
    """Adds up at the few moments at which the use of the time may change, not with each frame.

    Args:
        state: the group's.
        now: when it was made, on the loop's clock.
    """

    def __init__(self, state: GroupState, now: float) -> None:
        self._state = state
        self._made = self._since = now
        self._open = False
        self._use = _OUT
        self._spent = [0.0] * (_IDLE + 1)
        self._computed = 0.0
        self._told = self.look

    def opened(self, now: float) -> None:
        """The device is open."""
        self._open = True
        self.look(now)

    def closed(self, now: float) -> None:
        """The device is not in service."""
        self._open = False
        self.look(now)

    def landed(self, busy: float, now: float) -> None:
        """Frames have completed, for which the device computed so long since the landing before."""
        self._computed += busy
        if not self._state.in_flight:
            self.look(now)

    def look(self, now: float) -> None:
        """The use of the time may change now."""
        self._spent[self._use] += now - self._since
        self._since = now
        self._use = self._present()

    def split(self, now: float) -> TimeSplit:
        """Return the sums up to now."""
        spent = self._spent.copy()
        spent[self._use] += now - self._since
        computed = self._computed
        if self._use == _WORK:
            computed += now - self._state.progress
        return TimeSplit(
            seconds=now - self._made,
            compute=computed,
            transfer=max(0.0, spent[_WORK] - computed),
            swap=spent[_SWAP],
            idle_with_work=spent[_IDLE_WITH_WORK],
            idle=spent[_IDLE],
            out_of_service=spent[_OUT],
        )

    def _present(self) -> int:
        state = self._state
        if not self._open:
            return _OUT
        if state.in_flight:
            return _WORK
        if state.binding is not None:
            return _SWAP
        for entry in state.entries:
            if entry.context.waiting:
                entry.context.watchers[self._told] = None
                return _IDLE_WITH_WORK
        return _IDLE
