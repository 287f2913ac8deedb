"""The rotation as what it is: a function of a group's state."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repertory.actors.policy import Bind, ContextState, Decision, Entry, Grant, GroupState, Wait
from repertory.models.program import Program
from repertory.runtime.policies.rotation import Rotation

QUANTUM = 4


def _program(name: str, size: int = 1) -> Program:
    return Program(f"key of {name}", name, (), footprint=size, scratch=0, image=None)


def _entry(
    name: str, waiting: int = 0, *, since: float = 0.0, served: float = -math.inf, size: int = 1
) -> Entry:
    ready_since = since if waiting else math.inf
    return Entry(
        ContextState(name, waiting, ready_since), _program(name, size), turn_since=served, served=served
    )


def _group(*entries: Entry, residents: str = "", pinned: str = "", capacity: int = 1) -> GroupState:
    programs = {entry.context.name: entry.program for entry in entries}
    state = GroupState("group", capacity, entries=list(entries))
    state.residents = {programs[name].key: programs[name] for name in residents}
    state.pinned = {programs[name].key for name in pinned}
    return state


def _in_turn(state: GroupState, number: int, *, frames: int, since: float = 1.0) -> GroupState:
    entry = state.entries[number]
    entry.turn_frames, entry.turn_since = frames, since
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
        (_in_turn(_group(_entry("a", 9), _entry("b", 1)), 0, frames=1), ("bind", "b", "")),
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


def test_what_makes_room_is_granted_nothing_more() -> None:
    entries = [_entry("a", 9, served=1), _entry("b", 9, served=2), _entry("c", 1, since=3)]
    state = _group(*entries, residents="ab", capacity=2)
    state.bind_needs_idle = False
    entries[0].turn_frames, entries[1].turn_frames = QUANTUM, 1
    assert _decide(state) == ("grant", "b", QUANTUM - 1)
    entries[1].granted = QUANTUM - 1
    assert _decide(state) == ("bind", "c", "a")


# -- a simulated group -----------------------------------------------------------------------------


@final
@dataclass
class Simulation:
    """A group that does what the policy says, and checks each of its decisions.

    Attributes:
        window: frames of a program in flight; all that are land in the step after.
        waited: turns of the others that each model without a place has seen begin since it waits.
        had: of each resident, whether it has had its turn since it was bound.
    """

    state: GroupState
    window: int = 2
    now: float = 0.0
    waited: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    had: dict[str, int] = field(default_factory=dict[str, int])
    binds: int = 0

    def arrive(self, entry: Entry, frames: int) -> None:
        self.now += 1
        if not entry.context.waiting:
            entry.context.ready_since = self.now
            self.waited[entry.context.name] = Counter()
        entry.context.waiting += frames

    def step(self) -> None:
        """Ask until the policy has no more to say, bind, start what the windows take, and land it."""
        self.now += 1
        for entry in self.state.entries:
            entry.granted = 0
        bind = self._ask()
        if bind is not None and (self.state.capacity == 1 or not _flies(self.state, bind.evict)):
            self._bind(bind)
        for entry in self.state.entries:
            entry.in_flight = 0
        for entry in self.state.entries:
            if entry.granted and entry.program.key in self.state.residents:
                self._run(entry, min(entry.granted, self.window))

    def _ask(self) -> Bind | None:
        for _ in range(len(self.state.entries) + 1):
            decision = Rotation(QUANTUM).decide(self.state, self.now)
            self._check(decision)
            if not isinstance(decision, Grant):
                return decision if isinstance(decision, Bind) else None
            decision.entry.granted = decision.frames
            if decision.fresh:
                self._begin_turn(decision.entry)
            if self.state.capacity == 1:
                return None
        raise AssertionError("it grants the same again and again")

    def _check(self, decision: Decision) -> None:
        state = self.state
        if isinstance(decision, Wait):
            ready = [entry for entry in state.entries if entry.context.waiting]
            assert not ready or any(entry.granted for entry in ready)
            return
        entry = decision.entry
        assert entry.context.waiting, "only a ready model gets anything"
        if isinstance(decision, Grant):
            assert entry.program.key in state.residents
            assert not entry.granted
            assert 1 <= decision.frames <= entry.context.waiting
            return
        self._check_bind(decision)

    def _check_bind(self, bind: Bind) -> None:
        state, program = self.state, bind.entry.program
        assert program.key not in state.residents
        evicted = {program.key for program in bind.evict}
        assert evicted <= state.residents.keys() - state.pinned
        assert state.fits([program, *(p for key, p in state.residents.items() if key not in evicted)])
        for entry in state.entries:
            if entry.program.key in evicted and entry.context.waiting:
                assert self.had[entry.context.name] >= QUANTUM, "evicted before it has had its turn"

    def _bind(self, bind: Bind) -> None:
        state, name = self.state, bind.entry.context.name
        for program in bind.evict:
            del state.residents[program.key]
            for entry in state.entries:
                if entry.program.key == program.key and entry.context.waiting:
                    self.waited[entry.context.name] = Counter()
        state.residents[bind.entry.program.key] = bind.entry.program
        self.binds += 1
        self.had[name] = 0
        self._begin_turn(bind.entry)

    def _begin_turn(self, entry: Entry) -> None:
        entry.turn_since, entry.turn_frames = self.now, 0
        name = entry.context.name
        for other in self.state.entries:
            if other is not entry and other.context.waiting and other.program.key not in self.state.residents:
                turns = self.waited[other.context.name]
                turns[name] += 1
                assert turns[name] <= 1, f"{other.context.name} waits while {name} has a second turn"

    def _run(self, entry: Entry, frames: int) -> None:
        entry.turn_frames += frames
        entry.served, entry.in_flight = self.now, frames
        entry.context.waiting -= frames
        name = entry.context.name
        self.had[name] = self.had.get(name, 0) + frames if entry.context.waiting else QUANTUM
        assert entry.turn_frames <= QUANTUM or not any(
            other.context.waiting and other.context.ready_since < entry.turn_since
            for other in self.state.entries
            if other is not entry
        )


def _flies(state: GroupState, programs: Collection[Program]) -> bool:
    keys = {program.key for program in programs}
    return any(entry.in_flight for entry in state.entries if entry.program.key in keys)


STEPS = st.lists(st.one_of(st.none(), st.tuples(st.integers(0, 4), st.integers(1, 9))), max_size=60)


@given(
    steps=STEPS,
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    capacity=st.integers(1, 3),
    memory=st.none() | st.integers(5, 12),
    pinned=st.integers(0, 2),
)
def test_nobody_waits_longer_than_one_turn_of_each_other(
    steps: list[tuple[int, int] | None], sizes: list[int], capacity: int, memory: int | None, pinned: int
) -> None:
    entries = [_entry(name, size=size) for name, size in zip("abcde", sizes, strict=False)]
    state = _group(*entries, capacity=capacity)
    state.memory = state.whole = memory
    state.bind_needs_idle = capacity == 1
    for entry in entries[: min(pinned, capacity - 1)]:
        if all(state.has_place_for(each.program, {*state.pinned, entry.program.key}) for each in entries):
            state.residents[entry.program.key] = entry.program
            state.pinned.add(entry.program.key)
    simulation = Simulation(state)
    for step in steps:
        if step is not None:
            simulation.arrive(entries[step[0] % len(entries)], step[1])
        else:
            simulation.step()
    for _ in range(10 * sum(entry.context.waiting for entry in entries)):
        simulation.step()
    assert not any(entry.context.waiting for entry in entries)
    assert simulation.state.pinned <= simulation.state.residents.keys()


def test_five_models_on_room_for_two_swap_once_a_turn() -> None:
    entries = [_entry(name) for name in "abcde"]
    state = _group(*entries, capacity=2)
    state.bind_needs_idle = False
    simulation = Simulation(state)
    for entry in entries:
        simulation.arrive(entry, 10 * QUANTUM)
    while any(entry.context.waiting for entry in entries):
        simulation.step()
    assert simulation.binds <= 5 * 10
