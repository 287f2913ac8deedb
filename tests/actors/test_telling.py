"""Which groups are spared a decision on what waits."""

from __future__ import annotations

import math
from typing import final

import anyio
import pytest

from repertory.actors.backlog import Backlog
from repertory.actors.policy import KEPT, Commitment, ContextState, Entry, GroupState, Step
from repertory.actors.servers import SECOND_LOOK, Servers
from repertory.actors.telling import SPARED, free_for, serves_soon
from repertory.models.program import Program
from repertory.transports.frame import Frame
from repertory.transports.loop import current_loop
from repertory.transports.wheel import Wheel

from .books import frame_of

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
        for _ in range(2):  # a single one is not believed
            entry.service.add(frame)
        entry.swap.add(SWAP)
        state.entries.append(entry)
        state.by_context[context] = entry
        state.by_program[program.key] = [entry]
        if context.name == resident:
            state.residents[program.key] = program
            if flying:
                entry.in_flight = flying
                state.flying[entry] = None
    state.peers = [state]
    return state


def test_busy_group_that_has_the_model_serves_one_frame_that_it_can_answer_in_time() -> None:
    model = _context("m")
    group = _group(model, resident="m", flying=1)
    end = NOW + 2 * FRAME
    assert serves_soon(group, model, end + 1e-6, NOW)
    assert not serves_soon(group, model, end - 1e-6, NOW)
    assert not serves_soon(group, model, math.inf, NOW), "without a deadline the others may be sooner"
    group.in_service = False
    assert not serves_soon(group, model, NOW + 1, NOW)
    group.in_service, model.waiting = True, 2
    assert not serves_soon(group, model, NOW + 1, NOW), "others share what is more"


def test_idle_group_and_one_that_turns_to_another_model_serve_nothing_soon() -> None:
    model, other = _context("m"), _context("o")
    assert not serves_soon(_group(model, resident="m"), model, NOW + 1, NOW)
    group = _group(model, other, resident="m", flying=1)
    group.plan = (Step(other, NOW, NOW + 0.1, 1),)
    assert not serves_soon(group, model, NOW + 1, NOW)
    assert not serves_soon(_group(other), model, NOW + 1, NOW)


def test_idle_group_that_is_about_to_bind_a_model_serves_it_soon() -> None:
    model, other = _context("m"), _context("o")
    group = _group(model, other, resident="o")
    entry = group.by_context[model]
    group.plan = (Step(model, NOW, NOW + 0.1, 1),)
    model.waiting = 3
    end = NOW + group.swap_cost(entry) + 3 * FRAME
    assert serves_soon(group, model, end + 1e-6, NOW)
    assert not serves_soon(group, model, end - 1e-6, NOW)
    assert not serves_soon(group, other, NOW + 1, NOW)
    group.in_flight = 1
    assert not serves_soon(group, model, NOW + 1, NOW), "before it binds it may change its mind"


@pytest.mark.parametrize(("frame", "spared"), [(FRAME, True), (FRAME / 1.4, True), (FRAME / 2, False)])
def test_group_of_a_quicker_kind_is_not_spared(frame: float, *, spared: bool) -> None:
    model = _context("m")
    slow, quick = _group(model, resident="m", flying=1), _group(model, frame=frame)
    slow.peers = quick.peers = [slow, quick]
    assert serves_soon(slow, model, NOW + 1, NOW) == spared


@pytest.mark.parametrize(
    ("state", "spared"), [("", False), ("in_flight", True), ("binding", True), ("out", True)]
)
def test_one_that_has_the_model_and_does_nothing_is_not_spared(state: str, *, spared: bool) -> None:
    model, other = _context("m"), _context("o", waiting=0)
    busy, free = _group(model, resident="m", flying=1), _group(model, other, resident="m")
    busy.peers = free.peers = [busy, free]
    if state == "in_flight":
        free.in_flight = 1
    elif state == "binding":
        free.binding = free.by_context[other]
    free.in_service = state != "out"
    assert serves_soon(busy, model, NOW + 1, NOW) == spared


def _goes_on(seconds: float, *, planned: bool) -> tuple[GroupState, ContextState]:
    """Return a group that goes on with another model for so long, and the model that asks."""
    model, other = _context("m"), _context("o")
    group = _group(model, other, resident="o", flying=1)
    group.committed = Commitment(other, "o", 0, NOW, NOW, NOW + seconds, 0.0, FRAME)
    if planned:
        group.plan = (Step(other, NOW, NOW + seconds, 20),)
        group.committed = Commitment(other, "o", 0, NOW, NOW, NOW, 0.0, FRAME)
    return group, model


@pytest.mark.parametrize("planned", [False, True])
def test_group_is_told_later_where_it_is_free_soon(*, planned: bool) -> None:
    group, model = _goes_on(0.1, planned=planned)
    assert free_for(group, model, NOW + 0.1 / SPARED + 1e-6, NOW) == NOW + 0.1
    assert free_for(group, model, NOW + 0.1 / SPARED - 1e-6, NOW) is None
    assert free_for(group, model, math.inf, NOW) == NOW + 0.1
    assert free_for(group, model, math.inf, NOW + 0.11) is None, "it should be free already"
    model.max_wait = 0.1 / SPARED - 1e-6
    assert free_for(group, model, math.inf, NOW) is None, "its turn comes first"
    model.max_wait = 0.1 / SPARED + 1e-6
    assert free_for(group, model, math.inf, NOW) == NOW + 0.1


@pytest.mark.parametrize("planned", [False, True])
def test_a_model_that_is_to_be_thought_of_at_once(*, planned: bool) -> None:
    group, model = _goes_on(0.01, planned=planned)
    assert free_for(group, model, NOW + 0.05, NOW)
    model.waiting = 9
    assert free_for(group, model, NOW + 0.05, NOW) is None, "all of its frames count"
    model.waiting = 1
    model.glance = lambda: (1, NOW + 0.05)
    assert free_for(group, model, NOW + 0.05, NOW) is None, "it is more urgent"
    model.glance = lambda: (0, NOW + 0.05)
    model.kept = KEPT - 0.01
    assert bool(free_for(group, model, NOW + 0.05, NOW)) == planned, "it has lost requests"
    model.kept = 1.0
    group.in_flight = 0
    assert free_for(group, model, NOW + 0.05, NOW) is None, "nothing would tell it that time is over"


def test_nobody_waits_for_a_group_that_is_committed_to_nothing_or_to_itself() -> None:
    group, model = _goes_on(0.01, planned=False)
    group.committed = Commitment(model, "m", 0, NOW, NOW, NOW + 0.01, 0.0, FRAME)
    assert free_for(group, model, math.inf, NOW) is None
    group.committed = None
    assert free_for(group, model, math.inf, NOW) is None


# -- who is told, and in which order ---------------------------------------------------------------


@final
class _Asked:
    """A group that writes down how it was told: None for at once, else until when it is spared.

    Attributes:
        takes: whether it takes all that waits.
        pokes: how often it was to look again.
    """

    def __init__(self, state: GroupState, *, takes: bool = False) -> None:
        self.state = state
        self.takes = takes
        self.told: list[float | None] = []
        self.pokes = 0

    def ready(self, now: float, /) -> None:
        self.told.append(None)
        if self.takes:
            for entry in self.state.entries:
                entry.context.waiting = 0

    def defer(self, until: float, now: float, /) -> None:
        self.told.append(until)

    def poke(self) -> None:
        self.pokes += 1

    def abandon(self, frame: Frame, /) -> None:
        raise AssertionError(f"{frame!r} was never started")


def _tell(model: ContextState, *asked: _Asked, now: float = NOW, times: int = 1) -> list[list[float | None]]:
    """Let a frame wait so many times, and return how the groups were told of it."""
    model.waiting, model.hungry_since = 0, now
    backlog = Backlog()
    loop = current_loop()
    servers = Servers(model, backlog, Wheel(loop), loop)
    for server in asked:
        servers.add(server)
    backlog.push(frame_of(deadline=now + 1))
    for _ in range(times):
        model.waiting = 1
        servers.ready(now)
    return [server.told for server in asked]


@pytest.mark.virtual
async def test_whoever_takes_what_waits_is_told_first_the_next_time() -> None:
    model = _context("m")
    groups = [_Asked(_group(model), takes=takes) for takes in (False, False, True)]
    assert _tell(model, *groups, times=3) == [[None], [None], [None] * 3]


@pytest.mark.virtual
async def test_whoever_will_take_it_soon_is_told_first_and_the_others_are_spared() -> None:
    model = _context("m")
    groups = [_Asked(_group(model, resident=resident, flying=1)) for resident in ("", "m", "")]
    assert _tell(model, *groups, times=2) == [[None, math.inf, math.inf], [None] * 2, [math.inf] * 2]


@pytest.mark.parametrize("now", [-NOW, 0.0, NOW])
@pytest.mark.virtual
async def test_no_moment_is_taken_for_none(now: float) -> None:
    """A clock may begin anywhere, and a group may be free at its zero."""
    model, other = _context("m"), _context("o")
    group = _group(model, other, resident="o", flying=1)
    group.committed = Commitment(other, "o", 0, now, now, now, 0.0, FRAME)
    assert _tell(model, _Asked(group), now=now) == [[now]]


@pytest.mark.virtual
@pytest.mark.parametrize("served", [False, True])
async def test_those_who_were_spared_look_again_where_what_they_were_spared_for_still_waits(
    *, served: bool
) -> None:
    now = anyio.current_time()
    model = _context("m")
    model.ready_since = now
    groups = [_Asked(_group(model, resident=resident, flying=1)) for resident in ("m", "")]
    for each in groups:
        each.state.progress = now
    backlog, loop = Backlog(), current_loop()
    wheel = Wheel(loop)
    servers = Servers(model, backlog, wheel, loop)
    model.waiting = 0
    for each in groups:
        servers.add(each)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wheel.run)
        backlog.push(frame_of(deadline=now + 1))
        model.waiting = 1
        servers.ready(now)
        assert [each.told for each in groups] == [[None], [math.inf]]
        await anyio.sleep(SECOND_LOOK - 0.01)
        assert not any(each.pokes for each in groups)
        if served:
            model.waiting = 0
        await anyio.sleep(0.02)
        assert [each.pokes for each in groups] == ([0, 0] if served else [1, 1])
        model.waiting, model.ready_since = 1, anyio.current_time()
        servers.ready(model.ready_since)
        await anyio.sleep(SECOND_LOOK + 0.01)
        assert groups[1].pokes == (1 if served else 2)
        tasks.cancel_scope.cancel()
