"""The scheduler of HailoRT, rule by rule: a baseline.

A model that is *active* on a device goes on sending while it has frames; it stops once its burst is spent
and another one, of no less priority, is ready. Only when the device has drained, the next ready model of the
highest priority is activated, round robin.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, final

import msgspec

from repertory.actors.policy import Bind, Decision, Entry, Grant, GroupState, Policy, Wait
from repertory.actors.room import making_room
from repertory.models.checks import is_a
from repertory.models.errors import ConfigError

from .activity import NEVER, active_contexts, actives, last_lost, last_turns

__all__ = ["QUEUE", "HailoModel", "HailoRt"]

QUEUE: Final = 16
"""Frames of a burst where no batch is set: the queue of a device, 2 to 32 there by the size of a frame."""

_LOOK: Final = 0.001  # seconds: nobody tells when a backlog reaches a threshold
_NOTHING: Final = Wait("nothing waits")
_SENDING: Final = Wait("whoever may send has a grant")
_NO_PLACE: Final = Wait("no ready model fits beside what is pinned or sending")


@final
class HailoModel(msgspec.Struct, frozen=True):
    """Parameters of one model; None leaves what the policy says, and the priority that it was loaded with."""

    threshold: int | None = None
    timeout: float | None = None
    burst: int | None = None
    priority: int | None = None


@final
class HailoRt(Policy):
    """Strict priorities, round robin inside each; lower ones starve, and deadlines are not known.

    A model is ready when frames wait, and they are `threshold` or more, or `timeout` has passed since it
    last lost a device with frames waiting. Where several programs may be resident, which the original does
    not know, each of them has a model that sends, and room is made at the cost of those that do not.

    Args:
        threshold: frames that make a model ready.
        timeout: seconds after which fewer do; with 0 the threshold has no effect.
        burst: frames that a model sends before others of its priority come; `QUEUE` where it is None.
        idle_optimisation: whether a device with nothing else to do ignores the threshold (as 4.23 does, and
            5.2 does not).
        models: parameters of single models, by name.

    Raises:
        ConfigError: a parameter is of the wrong kind, or out of its range.
    """

    keeps_deadlines = False

    def __init__(
        self,
        threshold: int = 0,
        timeout: float = 0.0,
        burst: int | None = None,
        *,
        idle_optimisation: bool = True,
        models: Mapping[str, HailoModel] = MappingProxyType({}),
    ) -> None:
        default = _Rules(threshold, timeout, QUEUE if burst is None else burst)
        self._default = _checked(default, "every model")
        self._optimises = idle_optimisation
        self._models = {name: _checked(_rules(model, default), name) for name, model in models.items()}

    def decide(self, state: GroupState, now: float) -> Decision:
        waiting = [entry for entry in state.entries if entry.ready]
        if not waiting:
            return _NOTHING
        for entry in actives(state):
            if entry.ready and not entry.granted and (grant := self._stream(state, entry, now)):
                return grant
        sending = {entry.program.key for entry in state.entries if entry.granted}
        rest = [entry for entry in waiting if entry.program.key not in sending]
        if not rest or (sending and state.capacity == 1):
            return _SENDING
        ready = [entry for entry in rest if self._ready(state, entry, now)]
        if not ready and not self._optimises:
            return self._patience(state, rest, now)
        return self._switch(state, ready or rest, sending) or _NO_PLACE

    def _stream(self, state: GroupState, entry: Entry, now: float) -> Grant | None:
        """Let an active model go on, unless it should stop."""
        frames, rules = entry.context.waiting, self._of(entry)
        left = rules.burst - entry.turn_frames
        if frames < rules.threshold:
            owed = min(_activated(entry), left)
            return Grant(entry, owed, "{} frames were there before it", figures=(owed,)) if owed > 0 else None
        if left > 0:
            return Grant(entry, min(frames, left), "{} frames of its burst are left", figures=(left,))
        others = [each for each in state.entries if each.ready and each is not entry]
        if self._gives_way(state, entry, others, now):
            return None
        return Grant(entry, 1 if others else frames, "its burst is spent, and nobody else is ready")

    def _gives_way(self, state: GroupState, entry: Entry, others: Sequence[Entry], now: float) -> bool:
        """Whether a model whose burst is spent stops for one of these."""
        active = active_contexts(state) if others else ()
        return any(
            self._priority(other) >= self._priority(entry)
            and other.context not in active
            and self._ready(state, other, now)
            for other in others
        )

    def _switch(self, state: GroupState, ready: Sequence[Entry], sending: Collection[str]) -> Decision | None:
        """Activate the next one; the group waits until the device has drained, and asks again."""
        for entry in self._round(state, ready):
            if entry.program.key in state.residents:
                frames = min(entry.context.waiting, self._of(entry).burst)
                return Grant(entry, frames, "it is next, and resident", fresh=True)
            evict = making_room(state, entry.program, keep=sending)
            if evict is not None:
                return Bind(entry, evict, "it is next of priority {}", (self._priority(entry),))
        return None

    def _round(self, state: GroupState, ready: Sequence[Entry]) -> Iterator[Entry]:
        """Go through priorities, high to low, and round each of them from the one after the last turn."""
        turns = last_turns(state)
        for priority in sorted({self._priority(entry) for entry in ready}, reverse=True):
            ring = [entry for entry in state.entries if self._priority(entry) == priority]
            latest = max(ring, key=lambda entry: turns[entry.context])
            begin = 0 if turns[latest.context] == NEVER else ring.index(latest) + 1
            yield from (entry for entry in ring[begin:] + ring[:begin] if entry in ready)

    def _patience(self, state: GroupState, short: Sequence[Entry], now: float) -> Wait:
        """Wait until a timeout makes a model ready, and look meanwhile whether its threshold does."""
        until = min(self._due(state, entry) for entry in short)
        return Wait("no backlog has reached its threshold", until=min(until, now + _LOOK))

    def _ready(self, state: GroupState, entry: Entry, now: float) -> bool:
        frames = entry.context.waiting
        return frames > 0 and (frames >= self._of(entry).threshold or now >= self._due(state, entry))

    def _due(self, state: GroupState, entry: Entry) -> float:
        """Return when fewer frames than the threshold make a model ready."""
        timeout = self._of(entry).timeout
        return timeout if timeout == math.inf else last_lost(state, entry.context) + timeout

    def _of(self, entry: Entry) -> _Rules:
        return self._models.get(entry.context.name, self._default)

    def _priority(self, entry: Entry) -> int:
        own = self._of(entry).priority
        return entry.context.priority if own is None else own


def _activated(entry: Entry) -> int:
    """Return how many frames it was activated with that it has not sent: no threshold holds these back."""
    waiting = entry.context.waiting
    arrivals = entry.context.arrivals(waiting)
    if not arrivals:
        return 0 if entry.turn_frames else waiting
    return sum(came <= entry.turn_since for came in arrivals)


@final
class _Rules(msgspec.Struct, frozen=True):
    threshold: int
    timeout: float
    burst: int
    priority: int | None = None


def _rules(model: HailoModel, default: _Rules) -> _Rules:
    """Fill in what a model leaves open."""
    return _Rules(
        default.threshold if model.threshold is None else model.threshold,
        default.timeout if model.timeout is None else model.timeout,
        default.burst if model.burst is None else model.burst,
        model.priority,
    )


def _checked(rules: _Rules, whose: str) -> _Rules:
    for name, kinds, least in (("threshold", (int,), 0), ("timeout", (int, float), 0), ("burst", (int,), 1)):
        value = getattr(rules, name)
        if not is_a(value, *kinds) or not value >= least:
            raise ConfigError(f"hailort: a {name} of {value!r} came for {whose}, at least {least} is wanted")
    if rules.priority is not None and not is_a(rules.priority, int):
        raise ConfigError(f"hailort: a priority of {rules.priority!r} came for {whose}, no whole number")
    return rules
