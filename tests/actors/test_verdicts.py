"""Verdicts say who is too late, and leave it to their owner to act."""

from __future__ import annotations

import math

from repertory.actors.admission import Admission
from repertory.actors.backlog import Backlog
from repertory.actors.policy import ContextState, Entry, GroupState
from repertory.actors.verdicts import Verdicts
from repertory.models.program import Program

from .books import frame_of

NOW, SERVICE = 10.0, 0.01


def test_a_verdict_ends_nobody_by_itself() -> None:
    entry = Entry(ContextState("net"), Program("net", "net", (), footprint=1, scratch=0, image=None))
    entry.served = NOW
    for _ in range(2):  # a single one is not believed
        entry.service.add(SERVICE)
    group = GroupState("group", residents={"net": entry.program})
    backlog = Backlog()
    verdicts = Verdicts("net", backlog, Admission(lambda: [(group, entry)]))
    late, met, endless = frames = [frame_of(deadline=NOW + left) for left in (0.009, 0.011, math.inf)]
    for frame in (late, met):
        frame.expires = frame.deadline
    told = "net: an answer takes 0.01 s at least, with 0 requests ahead, and the deadline comes in 0.009 s"
    assert verdicts.at_offer(late, 0.009, NOW) == told
    assert verdicts.at_offer(met, 0.011, NOW) is None
    for frame in frames:
        backlog.push(frame)
    ((frame, why),) = verdicts.in_queue(NOW)
    assert frame is late
    assert why == "net: an answer takes 0.01 s at least, and the deadline comes in 0.009 s"
    assert backlog.frames() == [late, met, endless]
    assert late.outcome is None
