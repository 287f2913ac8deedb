"""Many models on one group: the same decisions, at a cost in proportion to their number."""

from __future__ import annotations

import math
import sys
from random import Random
from types import FrameType

from repertory.actors.policy import ContextState, Entry, GroupState, used
from repertory.actors.room import making_room
from repertory.models.program import Program
from repertory.runtime.policies.rotation import Rotation

from .slow_rotation import SlowRotation, room_by_trying

NOW = 9.0
QUANTUM = 4


def _entry(dice: Random, program: Program) -> Entry:
    """Throw an entry; what it says of itself need not hang together."""
    waiting = dice.choice([0, 2, 6, 6])
    return Entry(
        ContextState("context", waiting, float(dice.randint(0, 6)) if waiting else math.inf),
        program,
        in_flight=dice.randint(0, 1),
        granted=dice.choice([0, 0, 1]),
        turn_since=dice.choice([-math.inf, *map(float, range(7))]),
        turn_frames=dice.randint(0, QUANTUM),
        served=dice.choice([-math.inf, *map(float, range(7))]),
    )


def _program(name: str, footprint: int, scratch: int = 0) -> Program:
    return Program(f"key of {name}", name, (), footprint=footprint, scratch=scratch, image=None)


def _group(dice: Random) -> GroupState:
    """Throw a group whose room is short; two entries may share a program, a pinned one need not be there."""
    names = "abcdef"[: dice.randint(2, 6)]
    programs = [_program(name, dice.randint(1, 4), dice.randint(0, 3)) for name in names]
    residents = dice.sample(programs, dice.randint(0, len(programs) - 1))
    served = [*programs, dice.choice(programs)]
    return GroupState(
        "group",
        capacity=max(1, len(residents) + dice.randint(-1, 1)),
        memory=dice.choice([None, used(residents) + dice.randint(0, 3)]),
        bind_needs_idle=dice.random() < 0.5,
        entries=[_entry(dice, program) for program in dice.sample(served, len(served))],
        residents={program.key: program for program in residents},
        pinned={program.key for program in dice.sample(programs, dice.choice([0, 0, 1, 2]))},
    )


def test_quick_and_slow_decide_alike() -> None:
    dice = Random(15)
    for _ in range(3000):
        state = _group(dice)
        assert Rotation(QUANTUM).decide(state, NOW) == SlowRotation(QUANTUM).decide(state, NOW)


def test_quick_and_slow_make_the_same_room() -> None:
    dice = Random(16)
    for _ in range(500):
        state = _group(dice)
        keep = {entry.program.key for entry in state.entries[: dice.randint(0, 2)]}
        for entry in state.entries:
            program = entry.program
            assert making_room(state, program, keep=keep) == room_by_trying(state, program, keep=keep)


def test_four_times_the_models_cost_no_more_than_five_times_as_much() -> None:
    for pinned in (False, True):  # where all are, there is room for nobody else
        assert _cost(256, pinned=pinned) < 5 * _cost(64, pinned=pinned)


def _cost(number: int, *, pinned: bool) -> int:
    """Return how many calls one decision takes, where every model has work, and a quarter a place."""
    state = GroupState("group", capacity=number // 4, bind_needs_idle=False)
    for since in range(number):
        program = _program(str(since), 100)
        state.entries.append(Entry(ContextState("context", 5, since), program, turn_since=since))
        if since < state.capacity:
            state.residents[program.key] = program
    state.pinned = set(state.residents) if pinned else set()
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        Rotation().decide(state, NOW)
    finally:
        sys.setprofile(before)
    return calls
