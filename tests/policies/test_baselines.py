"""The baselines on states that need not hang together: each decision can be carried out."""

from __future__ import annotations

import math
from random import Random

import pytest

from repertory.actors.policy import Bind, Grant, GroupState, Policy, Wait
from repertory.runtime.policies.fifo import Fifo
from repertory.runtime.policies.hailort import HailoRt
from repertory.runtime.policies.mxa_manager import MxaManager

from .hand_made import NOW, among, context, entry, group

STATES = 400


def _states(dice: Random) -> list[GroupState]:
    """Throw one to three groups with contexts in common, a program or two of them in pairs."""
    contexts = [
        context(name, dice.choice([0, 1, 9]), *dice.choice([(), (1.0, 2.0)]), priority=dice.randint(0, 1))
        for name in "abcd"
    ]
    groups: list[GroupState] = []
    for _ in range(dice.randint(1, 3)):
        entries = [
            entry(
                each,
                dice.choice([-math.inf, 1.0, 5.0, NOW]),
                dice.choice([0, 3, 40]),
                program=dice.choice([each.name, "a"]),
                granted=dice.choice([0, 0, 1]),
                served=dice.choice([-math.inf, 4.0]),
                lost=dice.choice([-math.inf, 4.0]),
            )
            for each in dice.sample(contexts, dice.randint(0, 4))
        ]
        names = sorted({each.program.name for each in entries})
        capacity = dice.randint(1, 3)
        residents = "".join(dice.sample(names, min(len(names), dice.randint(0, capacity))))
        state = group(*entries, residents=residents, capacity=capacity, flying=dice.randint(0, 1))
        state.pinned = {key for key in state.residents if dice.random() < 0.3}
        state.binding = dice.choice([None, *entries])
        state.progress = dice.choice([-math.inf, 9.9])
        groups.append(state)
    if dice.random() < 0.8:
        among(*groups)
    return groups


def _can_be_carried_out(decision: Grant | Bind | Wait, state: GroupState) -> bool:
    """Whether a group may do that now, or after what is in flight has landed."""
    if isinstance(decision, Wait):
        return decision.until > NOW
    program = decision.entry.program
    if decision.entry not in state.entries:
        return False
    if isinstance(decision, Grant):
        return program.key in state.residents and 0 < decision.frames <= decision.entry.context.waiting
    gone = {each.key for each in decision.evict}
    stay = [each for key, each in state.residents.items() if key not in gone]
    fits = state.fits([*stay, program])
    return fits and program not in stay and gone <= state.residents.keys() and not gone & state.pinned


@pytest.mark.parametrize(
    "policy",
    [
        Fifo(),
        HailoRt(),
        HailoRt(3, 0.5, burst=2, idle_optimisation=False),
        MxaManager(),
        MxaManager(4, 0, spread=True),
    ],
)
def test_every_decision_can_be_carried_out(policy: Policy) -> None:
    dice = Random(6)
    kinds: set[type] = set()
    for _ in range(STATES):
        for state in _states(dice):
            decision = policy.decide(state, NOW)
            kinds.add(type(decision))
            assert _can_be_carried_out(decision, state), (state, decision)
    assert kinds == {Grant, Bind, Wait}
