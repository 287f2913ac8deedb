"""What a decision commits a group to: whom it serves before anybody else, and until when."""

from __future__ import annotations

from .policy import Bind, Commitment, Decision, GroupState, Wait

__all__ = ["commitment"]


def commitment(decision: Decision, state: GroupState, now: float) -> Commitment | None:
    """Return what a group does before it would serve anybody else; None where that is nothing certain.

    Only frames that wait count: for those that are foreseen a policy may change its mind. Nor is anything
    certain where several programs may be resident, for all of them are served side by side. Times that are
    not known count for nothing.
    """
    if state.capacity > 1 or isinstance(decision, Wait):
        return None
    entry, context = decision.entry, decision.entry.context
    service, load = entry.service.value, 0.0
    begin = now + state.busy_for(now)
    if isinstance(decision, Bind):
        planned = decision.plan[0].frames if decision.plan else 1
        frames = max(1, min(planned, context.waiting))
        load = state.swap_cost(entry) if entry.swap.samples or state.swap.samples else 0.0
        until = latest = begin + load + frames * service
    else:
        latest = min(begin + decision.frames * service, max(decision.until, begin) + service)
        until = min(begin + context.waiting * service, latest)
    return Commitment(context, entry.program.key, context.glance()[0], now, until, latest, load, service)
