"""The default policy as a pure function, on states of all kinds: it answers what can be carried out."""

from __future__ import annotations

import math
from collections import Counter
from copy import copy
from dataclasses import fields
from random import Random

from repertory.actors.commitment import commitment
from repertory.actors.estimate import Estimate
from repertory.actors.load import Load
from repertory.actors.policy import Bind, ContextState, Decision, Entry, Grant, GroupState, Step, Wait
from repertory.actors.rhythm import Rhythm
from repertory.models.program import Program
from repertory.runtime.policies.swap_aware import SwapAware

STATES = 1500

NOWS = (0.0, 100.0, 1e9)

AGO = (0.0, 0.001, 0.01, 0.1, 1.0, 100.0)
"""Seconds: a coarse clock, so that moments fall together."""

AHEAD = (-1.0, -0.01, 0.0, 0.001, 0.01, 0.03, 0.1, 1.0, math.inf)
COSTS = (None, 0.0, 1e-6, 0.003, 0.02, 1.0)
"""Seconds that were learned; None for nothing."""

TICK = 1e-6
"""Seconds by which an event loop may wake somebody too early, and more."""

PRIORITIES = (-128, 0, 0, 1, 127)


def _moment(dice: Random) -> tuple[GroupState, float]:
    """Throw one to three groups that serve the same models, and a moment."""
    now = dice.choice(NOWS)
    contexts = [_context(dice, name, now) for name in "abcdef"[: dice.randint(0, 6)]]
    groups = [_group(dice, f"group {number}", now, contexts) for number in range(dice.choice((1, 1, 2, 3)))]
    for group in groups:
        group.peers = groups
    for peer in groups[1:]:
        absent = [each for each in peer.entries if each.program.key not in peer.residents]
        if absent and dice.random() < 0.5:
            peer.binding, peer.bind_began = dice.choice(absent), _ago(dice, now)
    return groups[0], now


def _context(dice: Random, name: str, now: float) -> ContextState:
    """Throw a model with what waits for it."""
    lanes = [
        (priority, sorted(now + dice.choice(AHEAD) for _ in range(dice.choice((1, 2, 9, 100)))))
        for priority in sorted(dice.sample((-128, 0, 1, 127), dice.choice((0, 1, 1, 2))), reverse=True)
    ]
    count = sum(len(due) for _, due in lanes)
    return ContextState(
        name,
        count,
        ready_since=_ago(dice, now) if count else math.inf,
        hungry_since=_ago(dice, now) if count else dice.choice((math.inf, _ago(dice, now))),
        priority=dice.choice(PRIORITIES),
        weight=dice.choice((1e-6, 1.0, 1.0, 3.0, 1e6)),
        max_wait=dice.choice((1e-9, 0.05, 1.0, 1e9)),
        kept=dice.choice((0.0, 0.5, 1.0)),
        rhythm=_rhythm(dice, now),
        glance=lambda: (lanes[0][0], lanes[0][1][0]) if lanes else (0, math.inf),
        outline=lambda most: [(priority, due[:most]) for priority, due in lanes],
        arrivals=lambda most: [now] * min(count, most),
        flying=dice.choice((0, 0, 3)),
        max_in_flight=dice.choice((1, 2**62)),
    )


def _rhythm(dice: Random, now: float) -> Rhythm:
    """Throw what was learned from a camera, or from one request, or from none."""
    rhythm, last = Rhythm(), _ago(dice, now)
    allowance, period = dice.choice((0.0, 0.033, math.inf)), dice.choice((1e-7, 0.01, 1 / 30, 10.0))
    for count in range(dice.choice((0, 1, 9, 9)), 0, -1):
        at = last - (count - 1) * period
        rhythm.arrive(at, at + allowance)
    return rhythm


def _group(dice: Random, name: str, now: float, contexts: list[ContextState]) -> GroupState:
    """Throw a group that hangs together: what flies is resident, and what is resident fits."""
    memory = dice.choice((None, None, dice.randint(1, 10)))
    whole = None if memory is None else dice.choice((max(6, memory), 10))  # whatever is prepared fits alone
    state = GroupState(name, dice.randint(1, 4), memory, whole)
    state.window = dice.choice((1, 4))
    state.bind_needs_idle = dice.random() < 0.5
    state.in_service, state.on_host = dice.random() < 0.8, dice.random() < 0.2
    state.swap = _estimate(dice)
    for _ in range(dice.randint(0, 2)):
        state.load.add(_ago(dice, now), *dice.choice(((0.5, 9.0), (9.0, 0.0))))
    programs = [
        Program(f"key {n}", f"program {n}", (), footprint=_size(dice), scratch=_size(dice), image=None)
        for n in range(7)
    ]
    for each in contexts:
        _add(dice, state, Entry(each, dice.choice(programs)), now)
    for program in dice.sample(programs, dice.randint(0, 7)):
        if state.fits([*state.residents.values(), program]):
            state.residents[program.key] = program
    state.pinned = {each.key for each in dice.sample(programs, 2) if dice.random() < 0.2}
    state.progress = _ago(dice, now)
    for entry in state.entries:
        if entry.program.key in state.residents:
            _fly(dice, state, entry)
    if contexts and dice.random() < 0.5:
        state.plan = (Step(dice.choice(contexts), now, now + dice.choice(AGO), 2),)
    return state


def _add(dice: Random, state: GroupState, entry: Entry, now: float) -> None:
    entry.service, entry.swap = _estimate(dice), _estimate(dice)
    entry.turn_since, entry.served, entry.left = (
        dice.choice((-math.inf, _ago(dice, now), _ago(dice, now))) for _ in range(3)
    )
    state.entries.append(entry)
    state.by_context[entry.context] = entry
    state.by_program.setdefault(entry.program.key, []).append(entry)


def _fly(dice: Random, state: GroupState, entry: Entry) -> None:
    """Let frames of a resident be in flight, and others be granted."""
    entry.in_flight = dice.choice((0, 0, 1, 2))
    if entry.in_flight:
        entry.context.flying += entry.in_flight
        state.in_flight += entry.in_flight
        state.flying[entry] = None
    if entry.context.waiting:
        entry.granted = dice.choice((0, 0, 1))


def _ago(dice: Random, now: float) -> float:
    return now - dice.choice(AGO)


def _size(dice: Random) -> int:
    return dice.choice((0, 1, 3))


def _estimate(dice: Random) -> Estimate:
    estimate, learned = Estimate(), dice.choice(COSTS)
    if learned is not None:
        estimate.add(learned)
    return estimate


def test_every_state_has_an_answer_that_can_be_carried_out() -> None:
    kinds: Counter[type] = Counter()
    for seed in range(STATES):
        state, now = _moment(Random(seed))
        before = _all_of(state)
        decision = SwapAware().decide(state, now)
        kinds[type(decision)] += 1
        assert _all_of(state) == before, f"seed {seed}: it changed its arguments"
        assert SwapAware().decide(state, now) == decision, (
            f"seed {seed}: it decides by more than its arguments"
        )
        assert decision.reason.format(*decision.figures)
        assert all(step.start <= step.end and step.frames >= 0 for step in decision.plan), decision
        assert not (wrong := _objection(decision, state, now)), f"seed {seed}: {wrong}: {decision}"
        committed = commitment(decision, state, now)
        assert committed is None or now <= committed.until < math.inf, f"seed {seed}: {committed}"
    assert all(kinds[kind] > STATES / 20 for kind in (Grant, Bind, Wait)), kinds


def _objection(decision: Decision, state: GroupState, now: float) -> str:
    """Return why a group cannot carry that out; empty where it can."""
    if isinstance(decision, Wait):
        return "" if decision.until >= now + TICK else "it would be asked again at once, and for ever"
    entry, key = decision.entry, decision.entry.program.key
    if isinstance(decision, Grant):
        if entry not in state.entries or key not in state.residents:
            return "it is not resident"
        return "" if decision.frames >= 1 and entry.ready and decision.until > now else "nothing may start"
    gone = {each.key for each in decision.evict}
    stay = [each for other, each in state.residents.items() if other not in gone]
    if key in state.residents:
        return "it is resident"
    if not gone <= state.residents.keys() - state.pinned:
        return "what is evicted is not there, or pinned"
    return "" if state.fits([*stay, entry.program]) else "there is no room"


def _all_of(state: GroupState) -> list[object]:
    """Return all that a policy could change."""
    entries = [each for group in state.peers for each in group.entries]
    parts: list[ContextState | Entry | GroupState] = [*state.by_context, *entries, *state.peers]
    return [_copied(getattr(each, field.name)) for each in parts for field in fields(each)]


def _copied(value: object) -> object:
    match value:
        case Rhythm() | Estimate() | Load():
            return [_copied(getattr(value, name)) for name in type(value).__slots__]
        case dict() | list() | set():
            return copy(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case _:
            return value
