"""The rotation as what it is: a function of a group's state."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repertory.actors.policy import Bind, ContextState, Decision, Entry, Grant, GroupState, Wait
from repertory.models.program import Program
from repertory.runtime.rotation import Rotation

QUANTUM = 4


def _program(name: str) -> Program:
    return Program(f"key of {name}", name, (), footprint=1, scratch=0, image=None)


def _entry(name: str, waiting: int = 0, *, since: float = 0.0, served: float = -math.inf) -> Entry:
    ready_since = since if waiting else math.inf
    return Entry(ContextState(name, waiting, ready_since), _program(name), served=served)


def _group(*entries: Entry, residents: str = "", pinned: str = "", capacity: int = 1) -> GroupState:
    programs = {entry.context.name: entry.program for entry in entries}
    state = GroupState("group", capacity, list(entries))
    state.residents = {programs[name].key: programs[name] for name in residents}
    state.pinned = {programs[name].key for name in pinned}
    return state


def _in_turn(state: GroupState, number: int, *, frames: int, since: float = 1.0) -> GroupState:
    state.turn, state.turn_frames, state.turn_since = state.entries[number], frames, since
    return state


def _decide(state: GroupState) -> tuple[str, str, int | str]:
    """Return what was decided, for whom, and how many frames or which evictions."""
    match Rotation(QUANTUM).decide(state, 10.0):
        case Grant(entry=entry, frames=frames):
            return "grant", entry.context.name, frames
        case Bind(entry=entry, evict=evict):
            return "bind", entry.context.name, "".join(program.name for program in evict)
        case Wait():
            return "wait", "", ""


@pytest.mark.parametrize(
    ("state", "decision"),
    [
        (_group(), ("wait", "", "")),
        (_group(_entry("a"), residents="a"), ("wait", "", "")),
        (_group(_entry("a", 2)), ("bind", "a", "")),
        (_group(_entry("a", 2), residents="a"), ("grant", "a", 2)),
        (_group(_entry("a", 9), residents="a"), ("grant", "a", QUANTUM)),
        (_group(_entry("a"), _entry("b", 1), residents="a"), ("bind", "b", "a")),
        (_group(_entry("a"), _entry("b", 1), residents="a", capacity=2), ("bind", "b", "")),
        (_group(_entry("a", 1, since=2), _entry("b", 1, since=1)), ("bind", "b", "")),
        (_group(_entry("a", 1, served=2), _entry("b", 1, served=1)), ("bind", "b", "")),
        (_group(_entry("a", 1, served=5), _entry("b", 1)), ("bind", "b", "")),
    ],
)
def test_who_is_next(state: GroupState, decision: tuple[str, str, int | str]) -> None:
    assert _decide(state) == decision


@pytest.mark.parametrize(
    ("state", "decision"),
    [
        (_in_turn(_group(_entry("a", 99), residents="a"), 0, frames=50), ("grant", "a", 99)),
        (_in_turn(_group(_entry("a", 99), _entry("b", 1), residents="a"), 0, frames=1), ("grant", "a", 3)),
        (_in_turn(_group(_entry("a", 2), _entry("b", 1), residents="a"), 0, frames=1), ("grant", "a", 2)),
        (_in_turn(_group(_entry("a", 9), _entry("b", 1), residents="a"), 0, frames=4), ("bind", "b", "a")),
        (_in_turn(_group(_entry("a", 9), _entry("b", 1), residents="a"), 0, frames=9), ("bind", "b", "a")),
        (
            _in_turn(_group(_entry("a", 9, since=5), _entry("b", 1), residents="a"), 0, frames=1),
            ("bind", "b", "a"),
        ),
        (_in_turn(_group(_entry("a", 9), _entry("b", 1)), 0, frames=1), ("bind", "a", "")),
    ],
    ids=["alone", "rest of the quantum", "what waits", "quantum over", "long alone", "ran empty", "evicted"],
)
def test_how_long_a_turn_goes_on(state: GroupState, decision: tuple[str, str, int | str]) -> None:
    assert _decide(state) == decision


def test_least_recently_bound_program_is_evicted_unless_it_is_pinned() -> None:
    entries = [_entry("a"), _entry("b"), _entry("c", 1)]
    assert _decide(_group(*entries, residents="ba", capacity=2)) == ("bind", "c", "b")
    assert _decide(_group(*entries, residents="ba", pinned="b", capacity=2)) == ("bind", "c", "a")
    assert _decide(_group(*entries, residents="ba", pinned="ab", capacity=2)) == ("wait", "", "")


@pytest.mark.parametrize("turn", [None, 0])
def test_model_that_does_not_fit_beside_what_is_pinned_stops_nobody_else(turn: int | None) -> None:
    state = _group(_entry("a", 9, served=1), _entry("b", 1), residents="a", pinned="a")
    if turn is not None:
        _in_turn(state, turn, frames=QUANTUM)
    kind, name, _ = _decide(state)
    assert (kind, name) == ("grant", "a")


# -- a simulated group -----------------------------------------------------------------------------


@final
@dataclass
class Simulation:
    """Does what the policy says, and counts the turns that each model waited through."""

    state: GroupState
    now: float = 0.0
    waited: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    turn_while_others: int = 0

    def arrive(self, entry: Entry, frames: int) -> None:
        self.now += 1
        if not entry.context.waiting:
            entry.context.ready_since = self.now
            self.waited[entry.context.name] = Counter()
        entry.context.waiting += frames

    def step(self) -> None:
        self.now += 1
        decision = Rotation(QUANTUM).decide(self.state, self.now)
        self._check(decision)
        match decision:
            case Grant(entry=entry, frames=frames):
                self._run(entry, frames)
            case Bind(entry=entry, evict=evict):
                for program in evict:
                    del self.state.residents[program.key]
                self.state.residents[entry.program.key] = entry.program
                self._pass_turn(entry)
            case Wait():
                pass

    def _check(self, decision: Decision) -> None:
        state = self.state
        if isinstance(decision, Wait):
            assert not any(entry.context.waiting for entry in state.entries)
            return
        entry = decision.entry
        assert entry.context.waiting, "only a ready model gets anything"
        if isinstance(decision, Grant):
            assert entry.program.key in state.residents
            assert 1 <= decision.frames <= entry.context.waiting
            return
        assert entry.program.key not in state.residents
        evicted = {program.key for program in decision.evict}
        assert evicted <= state.residents.keys() - state.pinned
        assert len(state.residents) - len(evicted) < state.capacity

    def _pass_turn(self, entry: Entry) -> None:
        state, name = self.state, entry.context.name
        if state.turn is entry:
            return
        if state.turn is not None:
            state.turn.served = self.now
        state.turn, state.turn_frames, state.turn_since = entry, 0, self.now
        self.turn_while_others = 0
        for other, turns in self.waited.items():
            if other != name:
                turns[name] += 1
                assert turns[name] <= 1, f"{other} waits while {name} has a second turn"

    def _run(self, entry: Entry, frames: int) -> None:
        """Start one frame of the grant at a time: the policy may be asked at any moment."""
        state, name = self.state, entry.context.name
        self._pass_turn(entry)
        self.waited.pop(name, None)
        others = any(e.context.waiting for e in state.entries if e is not entry)
        self.turn_while_others += others
        assert self.turn_while_others <= QUANTUM
        state.turn_frames += 1
        entry.context.waiting -= 1
        if entry.context.waiting:
            self.waited[name] = Counter()


STEPS = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 4), st.integers(1, 9))), max_size=60)


@given(steps=STEPS, models=st.integers(1, 5), capacity=st.integers(1, 3), pinned=st.integers(0, 2))
def test_nobody_waits_longer_than_one_turn_of_each_other(
    steps: list[tuple[int, int] | None], models: int, capacity: int, pinned: int
) -> None:
    entries = [_entry(name) for name in "abcde"[:models]]
    fixed = "abcde"[: min(pinned, capacity - 1, models)]
    simulation = Simulation(_group(*entries, residents=fixed, pinned=fixed, capacity=capacity))
    for step in steps:
        if step is not None:
            simulation.arrive(entries[step[0] % models], step[1])
        else:
            simulation.step()
    for _ in range(10 * sum(entry.context.waiting for entry in entries)):
        simulation.step()
    assert not any(entry.context.waiting for entry in entries)
    assert simulation.state.pinned <= simulation.state.residents.keys()
