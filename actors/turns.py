"""Turns: the policy is asked, and what it grants is started."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, final

from repertory.transports.device import Device
from repertory.transports.frame import Frame

from .commitment import commitment
from .flightbook import FlightBook
from .grants import Grants
from .policy import Bind, Decision, Grant, GroupState, Policy, Wait
from .stall import StallWatch
from .tenants import Tenants

__all__ = ["MAX_BARREN", "Turns"]

MAX_BARREN: Final = 64
"""Grants in a row that may start nothing: a policy that goes on so is a bug, not a load."""


@final
class Turns:
    """Starts frames by the policy's decisions, as many as the windows take.

    Attributes:
        ask: whether the policy may have changed its mind: set it where something changed.
        grants: those that are open; they go on with the next completion.
        due: the bind that waits for completions, or None.

    Args:
        state: what the policy sees.
        policy: decides.
        flight: where frames are started.
        tenants: whose they are.
        stall: is told when the device begins to work.
        decided: told of each decision, and when.
    """

    def __init__(
        self,
        state: GroupState,
        policy: Policy,
        *,
        flight: FlightBook,
        tenants: Tenants,
        stall: StallWatch,
        decided: Callable[[Decision, float], None],
    ) -> None:
        self.ask = True
        self.grants = Grants()
        self.due: Bind | None = None  # what the policy said last beside the grants
        self._wait: Wait | None = None
        self._asking = True  # it may have more to say
        self._blocked = False
        self._end = math.inf  # of all grants, whatever theirs is
        self._state = state
        self._policy = policy
        self._flight = flight
        self._tenants = tenants
        self._stall = stall
        self._decided = decided
        self._start: Callable[[Frame], None] = _too_early
        self._window = 0

    def open(self, device: Device) -> None:
        """Start frames on this device from now on."""
        self._start, self._window = device.start, device.capabilities.window

    def withdraw(self) -> None:
        """All grants are in question again."""
        if self.grants.all:
            self.grants.withdraw()
        self.due = self._wait = self._state.committed = None
        self._end = math.inf
        self._asking = True

    def end_by(self, until: float) -> None:
        """Let what is granted now go on until that moment, and no longer."""
        self._end = min(self._end, until)

    def advance(self, now: float) -> Bind | Wait | None:
        """Start what may be started. None: only a completion or a change lets more of it.

        Raises:
            RuntimeError: the policy grants again and again what starts nothing.
        """
        if self.ask and self._full:
            return None
        self.ask = self.ask or self._way_is_free()
        barren = 0
        while True:
            if self.ask:
                self.ask = False
                self.withdraw()
            if self._asking:
                decision = self._consult(now)
                if not self.grants.all:
                    return decision
            before = self._state.in_flight
            if not self.grants.fill(self._goes_on, now):
                self._asking = True
                if self._full:
                    self.ask = True
                    return None
                barren = barren + 1 if self._state.in_flight == before else 0
                if barren > MAX_BARREN:
                    raise RuntimeError(f"{self._policy!r} keeps granting turns in which nothing starts")
            elif not self._asking:
                return self.due or self._wait

    def _way_is_free(self) -> bool:
        """Whether a bind that had to wait need not any more: what asks may have changed meanwhile."""
        return self._blocked and self.due is not None and not self._flight.blocks(self.due.evict)

    @property
    def _full(self) -> bool:
        """Whether nothing can be done before a completion, so that it is best decided then."""
        return self._state.in_flight >= self._window and self._state.bind_needs_idle

    def _consult(self, now: float) -> Bind | Wait | None:
        """Ask the policy for one decision; where one program is resident at most, one grant is all it has.

        Return what it is where it is no grant.
        """
        self._end = math.inf
        decision = self._policy.decide(self._state, now)
        self._decided(decision, now)
        self._state.plan = decision.plan
        if isinstance(decision, Bind):
            self._state.committed = None  # not before it begins: until then the policy may be asked again
        else:
            self.commit(decision, now)
        self.due = self._wait = None
        if isinstance(decision, Grant):
            more = self.grants.open(decision, now)
            self._asking = more and self._state.capacity > 1
            return None
        if isinstance(decision, Wait):
            self._wait = decision
        else:
            if self._state.bind_needs_idle:
                self.grants.withdraw()
            self.due = decision
            self._blocked = self._flight.blocks(decision.evict)
        self._asking = False
        return decision

    def commit(self, decision: Decision, now: float) -> None:
        """Tell those who wait behind what was decided: some of their requests may not be met any more."""
        state = self._state
        state.committed = committed = commitment(decision, state, now)
        if committed is None:
            return
        for entry in state.entries:
            if entry.context.waiting and entry.context is not committed.context:
                self._tenants.by_entry[entry].context.review(now)

    def _goes_on(self, grant: Grant, now: float) -> bool:
        """Start frames of a grant; False when it has ended, True when only the windows are full.

        So it is where the model flies as many as it may: some of them elsewhere, perhaps.
        """
        if now >= grant.until or now >= self._end:
            return False
        state, entry, flight = self._state, grant.entry, self._flight
        free = min(self._window - state.in_flight, entry.context.max_in_flight - entry.context.flying)
        if len(state.entries) > 1:
            free = min(free, entry.depth - entry.in_flight)
        count = min(flight.rooms.get(entry.program.key, 0), free, entry.granted)
        if count <= 0:
            return entry.granted > 0
        idle = not state.in_flight
        started = flight.start(self._tenants.by_entry[entry], count, now, self._start)
        if idle and started:
            self._stall.begin(now)
        return started == count and entry.granted > 0


def _too_early(frame: Frame) -> None:
    raise AssertionError(f"{frame!r} was to be started before a device is open")
