"""What a decision commits a group to, and whom that delays: by states made by hand."""

from __future__ import annotations

import math

import pytest

from repertory.actors.admission import Admission
from repertory.actors.commitment import commitment
from repertory.actors.estimate import Estimate
from repertory.actors.policy import Bind, Commitment, ContextState, Entry, Grant, GroupState, Step, Wait
from repertory.models.program import Program

NOW = 100.0
SERVICE, SWAP = 0.01, 0.03


def _entry(name: str, waiting: int = 0, priority: int = 0, *, file: str | None = None) -> Entry:
    """Return a model whose costs are known, and whose frames came a second ago."""
    context = ContextState(name, waiting, NOW - 1 if waiting else math.inf, priority=priority)
    context.glance = lambda: (priority, math.inf)
    key = file or name
    entry = Entry(context, Program(key, key, (), footprint=1, scratch=0, image=None), served=NOW)
    for _ in range(2):  # a single one is not believed
        entry.service.add(SERVICE)
    entry.transit.add(0.0)
    entry.swap.add(SWAP)
    return entry


def _group(*entries: Entry) -> GroupState:
    """Return a group that holds the first one."""
    group = GroupState("group", entries=list(entries))
    group.by_context = {entry.context: entry for entry in entries}
    group.residents = {entries[0].program.key: entries[0].program}
    return group


def _until(decision: Grant | Bind, group: GroupState) -> float:
    """Return for how many seconds a group is committed."""
    committed = commitment(decision, group, NOW)
    assert committed is not None
    assert committed.context is decision.entry.context
    assert committed.since == NOW
    return committed.until - NOW


def test_a_grant_commits_to_its_frames_that_wait() -> None:
    here = _entry("here", waiting=5)
    group = _group(here, _entry("there"))
    assert _until(Grant(here, 3, ""), group) == pytest.approx(3 * SERVICE)
    assert _until(Grant(here, 9, ""), group) == pytest.approx(5 * SERVICE), "the others are foreseen at most"
    here.in_flight, group.flying, group.progress = 1, {here: None}, NOW - 0.004
    assert _until(Grant(here, 3, ""), group) == pytest.approx(0.006 + 3 * SERVICE)


def test_a_grant_commits_no_longer_than_it_lasts_and_what_it_began_last() -> None:
    here = _entry("here", waiting=5)
    group = _group(here, _entry("there"))
    assert _until(Grant(here, 5, "", until=NOW + 0.025), group) == pytest.approx(0.035)
    assert _until(Grant(here, 5, "", until=NOW + 9), group) == pytest.approx(0.05)
    here.in_flight, group.flying, group.progress = 2, {here: None}, NOW
    assert _until(Grant(here, 5, "", until=NOW + 0.005), group) == pytest.approx(0.03)


def test_a_bind_commits_to_the_swap_and_what_waits_of_its_first_stretch() -> None:
    here, there = _entry("here", waiting=1), _entry("there", waiting=4)
    group = _group(here, there)

    def until(*frames: int) -> float:
        plan = tuple(Step(there.context, NOW, NOW + 1, count) for count in frames)
        return _until(Bind(there, (here.program,), "", plan=plan), group)

    assert until() == pytest.approx(SWAP + SERVICE), "one frame at least, whatever was planned"
    assert until(3, 50) == pytest.approx(SWAP + 3 * SERVICE)
    assert until(50) == pytest.approx(SWAP + 4 * SERVICE)
    there.context.waiting = 0
    assert until(50) == pytest.approx(SWAP + SERVICE)
    here.in_flight, group.flying, group.progress = 1, {here: None}, NOW
    assert until() == pytest.approx(SERVICE + SWAP + SERVICE), "it waits until the device is idle"


def test_nothing_is_certain_of_a_wait_or_beside_other_residents() -> None:
    here = _entry("here", waiting=5)
    group = _group(here, _entry("there"))
    assert commitment(Wait("", until=NOW + 1), group, NOW) is None
    group.capacity = 2
    assert commitment(Grant(here, 5, ""), group, NOW) is None
    assert commitment(Bind(here, (), ""), group, NOW) is None


def test_whom_it_delays() -> None:
    here, there = _entry("here", waiting=5, priority=2), _entry("there", waiting=1)
    committed = commitment(Grant(here, 5, ""), _group(here, there), NOW)
    assert committed is not None
    assert [committed.delays(there.context, priority) for priority in (1, 2, 3)] == [True, True, False]
    assert not committed.delays(here.context, 0), "its own are counted one by one"
    there.context.ready_since = NOW
    assert committed.delays(there.context, 0), "it was asked because of this one"
    there.context.ready_since = NOW + 1e-3
    assert not committed.delays(there.context, 0), "this came later, and will be decided on"
    there.context.waiting, there.context.ready_since = 0, NOW - 1
    assert not committed.delays(there.context, 0), "what comes now was not decided against"


def test_it_ends_early_where_callers_give_up() -> None:
    here = _entry("here", waiting=5)
    group = _group(here)
    committed = commitment(Grant(here, 5, ""), group, NOW)
    assert committed is not None
    assert committed.left(0.0, NOW + 0.01) == pytest.approx(0.04)
    here.context.waiting = 2
    assert committed.left(0.0, NOW + 0.01) == pytest.approx(0.02)
    here.context.waiting = 0
    assert committed.left(0.007, NOW + 0.01) == pytest.approx(0.007), "what is started goes on"
    swap = commitment(Bind(here, (), ""), group, NOW)
    assert swap is not None
    assert swap.left(0.0, NOW) == pytest.approx(SWAP), "and so does a swap"


def test_what_is_not_known_counts_for_nothing() -> None:
    here = _entry("here", waiting=5)
    group = _group(here)
    here.service, here.swap = Estimate(), Estimate()
    assert _until(Grant(here, 5, ""), group) == 0
    assert _until(Bind(here, (), ""), group) == 0
    group.swap.add(SWAP)
    assert _until(Bind(here, (), ""), group) == pytest.approx(SWAP)


# -- admission behind it ---------------------------------------------------------------------------


def _first(entry: Entry, seconds: float) -> Commitment:
    """Return that a group serves a model for so long."""
    return Commitment(entry.context, entry.program.key, 0, NOW, NOW + seconds, NOW + seconds, 1.0, 1.0)


def _soonest(group: GroupState, entry: Entry, priority: int = 0) -> float:
    """Return when a request could be answered; the quick look says the same."""
    admission = Admission(lambda: [(group, entry)])
    soonest, _ = admission.soonest((), NOW, priority)
    assert admission.within(soonest + 1e-9, 0, NOW, priority)
    assert not admission.within(soonest - 1e-9, 0, NOW, priority)
    return soonest


def test_a_request_behind_a_commitment_comes_after_it_and_its_swap() -> None:
    here, there = _entry("here"), _entry("there", waiting=1)
    group = _group(here, there)
    assert _soonest(group, there) == pytest.approx(SWAP + SERVICE)
    group.committed = _first(here, 0.5)
    assert _soonest(group, there) == pytest.approx(0.5 + SWAP + SERVICE)
    assert _soonest(group, there, priority=1) == pytest.approx(SWAP + SERVICE)
    group.bind_needs_idle = False
    assert _soonest(group, there) == pytest.approx(0.5 + SWAP + SERVICE), "its place is taken until then"
    assert _soonest(group, here) == pytest.approx(SERVICE), "what is served first is not delayed"


def test_a_resident_that_must_go_for_another_comes_back_by_a_swap() -> None:
    here, there = _entry("here", waiting=1), _entry("there", waiting=3)
    group = _group(here, there)
    group.committed = _first(there, 0.06)
    assert _soonest(group, here) == pytest.approx(0.06 + SWAP + SERVICE)
    group.committed = _first(there, -1)
    assert _soonest(group, here) == pytest.approx(SWAP + SERVICE), "it took less time than was thought"
    group.binding, group.bind_began = here, NOW
    assert _soonest(group, here) == pytest.approx(SWAP + SERVICE), "it is being made resident"


def test_a_model_that_shares_the_program_needs_no_swap() -> None:
    here, there = _entry("here", waiting=3, file="net"), _entry("there", waiting=1, file="net")
    group = _group(here, there)
    group.committed = _first(here, 0.03)
    assert _soonest(group, there) == pytest.approx(0.03 + SERVICE)


def test_another_group_that_is_free_is_soonest() -> None:
    here, there, elsewhere = _entry("here"), _entry("there", waiting=1), _entry("there")
    busy, free = _group(here, there), _group(elsewhere)
    busy.committed = _first(here, 0.5)
    free.by_context = {there.context: elsewhere}
    elsewhere.context = there.context
    admission = Admission(lambda: [(busy, there), (free, elsewhere)])
    assert admission.soonest((), NOW, 0)[0] == pytest.approx(SERVICE)
    assert admission.within(SERVICE, 0, NOW, 0)
    free.in_service = False
    assert admission.soonest((), NOW, 0)[0] == pytest.approx(0.5 + SWAP + SERVICE)


def test_what_is_believed_was_learned_lately() -> None:
    old, fresh = _entry("net"), _entry("net")
    group = _group(old, fresh)
    patience = 1 + 20 * (SWAP + SERVICE)
    fresh.served = NOW + patience
    both = Admission(lambda: [(group, old), (group, fresh)])
    assert both.believes(NOW + 2 * patience - 0.1), "one group knows it"
    assert not both.believes(NOW + 2 * patience + 0.1)
    assert not Admission(lambda: ()).believes(NOW)
