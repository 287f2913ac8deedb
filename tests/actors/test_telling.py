"""Which groups are spared a decision on what waits."""

from __future__ import annotations

import math

import pytest

from repertory.actors.policy import KEPT, Commitment, ContextState, Entry, GroupState, Step
from repertory.actors.telling import can_wait, serves_soon
from repertory.models.program import Program

NOW = 10.0
FRAME, SWAP = 0.005, 0.015


def _context(name: str, waiting: int = 1) -> ContextState:
    return ContextState(name, waiting, hungry_since=NOW)


def _group(*contexts: ContextState, resident: str = "", flying: int = 0, frame: float = FRAME) -> GroupState:
    """Return a group that has learned what its models take; `flying` frames are of the resident one."""
    state = GroupState("group", in_flight=flying, progress=NOW)
    for context in contexts:
        program = Program(f"key of {context.name}", context.name, (), footprint=1, scratch=0, image=None)
        entry = Entry(context, program)
        entry.service.add(frame)
        entry.swap.add(SWAP)
        state.entries.append(entry)
        state.by_context[context] = entry
        if context.name == resident:
            state.residents[program.key] = program
            if flying:
                entry.in_flight = flying
                state.flying[entry] = None
    state.peers = [state]
    return state


@pytest.mark.parametrize("waiting", [1, 2, 8])
def test_busy_group_that_has_the_model_serves_what_it_can_answer_in_time(waiting: int) -> None:
    model = _context("m", waiting)
    group = _group(model, resident="m", flying=1)
    end = NOW + FRAME * (1 + waiting)
    assert serves_soon(group, model, end + 1e-6, NOW)
    assert not serves_soon(group, model, end - 1e-6, NOW)
    assert not serves_soon(group, model, math.inf, NOW), "without a deadline the others may be sooner"


def test_idle_group_and_one_that_turns_to_another_model_serve_nothing_soon() -> None:
    model, other = _context("m"), _context("o")
    assert not serves_soon(_group(model, resident="m"), model, NOW + 1, NOW)
    group = _group(model, other, resident="m", flying=1)
    group.plan = (Step(other, NOW, NOW + 0.1, 1),)
    assert not serves_soon(group, model, NOW + 1, NOW)
    assert not serves_soon(_group(other), model, NOW + 1, NOW)


def test_group_that_gets_the_model_next_serves_it_after_its_swap() -> None:
    model = _context("m")
    group = _group(model)
    assert not serves_soon(group, model, NOW + 1, NOW)
    group.plan = (Step(model, NOW, NOW + SWAP + FRAME, 1),)
    assert serves_soon(group, model, NOW + SWAP + FRAME + 1e-6, NOW)
    assert not serves_soon(group, model, NOW + SWAP + FRAME - 1e-6, NOW)
    group.binding, group.bind_began = group.by_context[model], NOW - SWAP / 2
    assert serves_soon(group, model, NOW + SWAP / 2 + FRAME + 1e-6, NOW)


@pytest.mark.parametrize(("frame", "spared"), [(FRAME, True), (FRAME / 1.4, True), (FRAME / 2, False)])
def test_group_of_a_quicker_kind_is_not_spared(frame: float, *, spared: bool) -> None:
    model = _context("m")
    slow, quick = _group(model, resident="m", flying=1), _group(model, frame=frame)
    slow.peers = quick.peers = [slow, quick]
    assert serves_soon(slow, model, NOW + 1, NOW) == spared


def test_group_on_a_stretch_is_not_asked_about_what_can_wait_for_its_end() -> None:
    model, other = _context("m"), _context("o")
    group = _group(model, other, resident="o", flying=1)
    assert not can_wait(group, model, math.inf, NOW), "nothing is decided"
    group.committed = Commitment(other, "o", 0, NOW, NOW, NOW, 0.0, FRAME)
    group.plan = (Step(other, NOW, NOW + 0.1, 20),)
    end = NOW + 0.1 + SWAP + FRAME
    assert can_wait(group, model, end + 1e-6, NOW)
    assert not can_wait(group, model, end - 1e-6, NOW)
    assert not can_wait(group, model, math.inf, NOW + 0.11), "the stretch is over"
    group.committed = Commitment(model, "m", 0, NOW, NOW, NOW, 0.0, FRAME)
    assert not can_wait(group, model, math.inf, NOW), "it is about this model"
    group.committed = Commitment(other, "o", 0, NOW, NOW, NOW, 0.0, FRAME)
    model.max_wait = 0.2
    assert not can_wait(group, model, math.inf, NOW), "its turn may be due before"


def test_group_on_a_grant_is_not_asked_about_what_can_wait_for_its_last_frame() -> None:
    model, other = _context("m"), _context("o")
    group = _group(model, other, resident="o", flying=1)
    group.committed = Commitment(other, "o", 0, NOW, NOW + 0.05, NOW + 0.1, 0.0, FRAME)
    end = NOW + 0.1 + SWAP + FRAME
    assert can_wait(group, model, end + 1e-6, NOW)
    assert not can_wait(group, model, end - 1e-6, NOW)
    model.kept = KEPT - 0.01
    assert not can_wait(group, model, math.inf, NOW), "it has lost requests: it is to be thought of at once"
