"""When a request could be answered at the soonest: by states made by hand, and on the whole way."""

from __future__ import annotations

import math
from functools import partial
from typing import final

import anyio
import pytest

from repertory.actors.admission import Admission
from repertory.actors.backlog import Backlog
from repertory.actors.context import Limits
from repertory.actors.policy import ContextState, Decision, Entry, GroupState, Policy
from repertory.models.errors import DeadlineExceeded, DeadlineUnreachable
from repertory.models.program import Program
from repertory.runtime.policies.swap_aware import SwapAware
from repertory.transports.frame import Outcome
from tests.runtime.support import open_virtual, sketched, tensor

from .books import frame_of

NOW = 100.0
SERVICE, SWAP = 0.01, 0.03


def _place(
    *, service: float | None = SERVICE, swap: float | None = SWAP, transit: float = 0.0, resident: bool = True
) -> tuple[GroupState, Entry]:
    entry = Entry(ContextState("net"), Program("key", "net", (), footprint=1, scratch=0, image=None))
    entry.served = NOW
    group = GroupState("group", entries=[entry])
    if service is not None:
        for _ in range(2):  # a single one is not believed
            entry.service.add(service)
        entry.transit.add(transit)
    if swap is not None:
        entry.swap.add(swap)
    if resident:
        group.residents[entry.program.key] = entry.program
    return group, entry


def _soonest(*places: tuple[GroupState, Entry], ahead: int = 0) -> float:
    """Return the estimate, with so many frames ahead that can all be met."""
    admission = Admission(lambda: places)
    soonest, served = admission.soonest([math.inf] * ahead, NOW, 0)
    assert served == (ahead if soonest else 0)
    assert not admission.within(soonest - 1e-9, ahead, NOW, 0), "the quick look is no laxer"
    if len(places) == 1 and soonest:
        assert admission.within(soonest + 1e-9, ahead, NOW, 0)
    return soonest


def test_a_resident_model_takes_its_line_and_what_the_device_owes() -> None:
    group, entry = _place(transit=0.002)
    assert _soonest((group, entry)) == pytest.approx(0.012)
    assert _soonest((group, entry), ahead=3) == pytest.approx(0.042)
    entry.in_flight, group.flying, group.progress = 2, {entry: None}, NOW - 0.004
    assert _soonest((group, entry)) == pytest.approx(0.016 + 0.012)


def test_a_swap_counts_where_it_is_needed_and_known() -> None:
    assert _soonest(_place(resident=False)) == pytest.approx(0.04)
    assert _soonest(_place(resident=False, swap=None)) == pytest.approx(0.01)
    group, entry = _place(resident=False)
    group.binding, group.bind_began = entry, NOW - 0.02
    assert _soonest((group, entry)) == pytest.approx(0.02)
    other = _place()[1]
    other.in_flight, group.flying, group.binding = 1, {other: None}, None
    group.progress = NOW
    assert _soonest((group, entry)) == pytest.approx(0.05)
    group.bind_needs_idle = False
    assert _soonest((group, entry)) == pytest.approx(0.04), "it is made resident while others run"


def test_groups_share_what_goes_first() -> None:
    two = _place(), _place()
    assert [_soonest(*two, ahead=n) for n in range(4)] == pytest.approx([0.01, 0.01, 0.02, 0.02])
    late = _place(), _place(resident=False)
    assert [_soonest(*late, ahead=n) for n in (2, 3, 4)] == pytest.approx([0.03, 0.04, 0.04])


def test_nothing_is_held_against_a_request_that_is_not_known() -> None:
    assert _soonest() == 0.0
    assert _soonest(_place(service=None), ahead=100) == 0.0
    group, entry = _place()
    group.in_service = False
    assert _soonest((group, entry), ahead=100) == 0.0, "it may be back at any time"
    assert _soonest((group, entry), _place(), ahead=1) == pytest.approx(0.02)


def test_a_group_that_never_served_the_model_is_taken_to_be_like_the_best_or_is_tried() -> None:
    known, new = _place(), _place(service=None, swap=None, resident=False)
    admission, ahead = Admission(lambda: (known, new)), [math.inf] * 3
    assert admission.soonest(ahead, NOW, 0)[0] == 0, "it has nothing to do, and nobody knows how quick it is"
    new[0].on_host = True
    assert admission.soonest(ahead, NOW, 0)[0] == pytest.approx(0.02)
    new[0].on_host, new[0].in_flight = False, 1
    assert admission.soonest(ahead, NOW, 0)[0] == pytest.approx(0.02)


def test_frames_that_will_be_late_take_no_time() -> None:
    admission = Admission(lambda: [_place()])
    due = [NOW + seconds for seconds in (0.01, 0.015, 0.02, 0.025, 0.03)]
    soonest, served = admission.soonest(due, NOW, 0)
    assert soonest == pytest.approx(0.04)
    assert served == 3


def test_what_goes_first_is_of_a_higher_priority_or_due_earlier() -> None:
    backlog = Backlog()
    for deadline, priority in ((5, 0), (9, 0), (math.inf, 0), (7, 1), (math.inf, 1), (1, -1)):
        backlog.push(frame_of(deadline=deadline, priority=priority))
    gone = frame_of(deadline=4)
    backlog.push(gone)
    gone.settle(Outcome.CANCELLED)
    assert backlog.before(frame_of(deadline=6)) == [7, math.inf, 5]
    assert backlog.before(frame_of(priority=1)) == [7, math.inf]
    assert backlog.before(frame_of()) == [7, math.inf, 5, 9, math.inf]


def test_what_was_learned_long_ago_is_tried_again_once() -> None:
    never = _place(service=None)
    never[1].served = -math.inf
    admission = Admission(lambda: [never, _place(service=2.0, swap=1.0)])
    patience = 1 + 20 * 3.0
    assert not admission.doubts(0.1, NOW + patience - 0.1)
    assert not admission.doubts(5.0, NOW + patience + 0.1), "its own cost is not why it is refused"
    assert admission.doubts(0.1, NOW + patience + 0.1)
    assert not admission.doubts(0.1, NOW + patience + 0.2)
    assert admission.doubts(0.1, NOW + 2 * patience + 0.2)


# -- on the whole way ------------------------------------------------------------------------------


@final
class _Seen(Policy):
    """The default policy; keeps the group that it decides for."""

    state: GroupState

    def __init__(self) -> None:
        self._policy = SwapAware()

    def decide(self, state: GroupState, now: float) -> Decision:
        self.state = state
        return self._policy.decide(state, now)


@pytest.mark.virtual
async def test_overload_is_refused_at_the_offer_and_nothing_admitted_expires() -> None:
    """1.5 of what one model can take: a request every 3.3 ms or so, 5 ms each, to be answered in 50 ms."""
    ends: list[type[Exception] | None] = []
    async with open_virtual("sim://?service_ms=5&window=1") as rt:
        model = await rt.load(sketched("net"), limits=Limits(timeout=0.05), warm=True)

        async def ask(number: int) -> None:
            try:
                await model.infer(tensor(number))
                ends.append(None)
            except (DeadlineExceeded, DeadlineUnreachable) as error:
                ends.append(type(error))

        async with anyio.create_task_group() as callers:
            for number in range(600):
                callers.start_soon(ask, number)
                await anyio.sleep(0.00331 + 0.00001 * (number % 7))
        statistics = rt.statistics().models["net"]
    assert ends.count(DeadlineExceeded) == 0
    assert ends.count(None) >= 400, "the device is busy all the time: nothing is refused in vain"
    assert statistics.refused == {"deadline": ends.count(DeadlineUnreachable)}


@pytest.mark.virtual
async def test_the_refusal_tells_its_numbers() -> None:
    async with open_virtual("sim://?service_ms=20&window=1") as rt, anyio.create_task_group() as callers:
        model = await rt.load(sketched("net"), warm=True)
        for number in range(3):
            callers.start_soon(partial(model.infer, tensor(number), timeout=0.065))
        await anyio.sleep(0.01)
        told = "net: an answer takes 0.07 s at least, with 2 requests ahead, and the deadline comes in 0.06 s"
        with pytest.raises(DeadlineUnreachable, match=told):
            await model.infer(tensor(4), timeout=0.06)
        await model.infer(tensor(5), timeout=0.08)


@pytest.mark.virtual
async def test_a_slow_start_is_not_believed_for_ever() -> None:
    policy = _Seen()
    async with open_virtual("sim://?service_ms=5&swap_ms=0", policy=policy) as rt:
        model = await rt.load(sketched("net"), warm=True)
        (entry,) = policy.state.entries
        entry.service.value = 2.0
        began, answered = anyio.current_time(), 0
        while answered < 20 and anyio.current_time() < began + 300:
            try:
                await model.infer(tensor(1), timeout=0.1)
                answered += 1
            except DeadlineUnreachable:
                await anyio.sleep(0.05)
        assert answered == 20
