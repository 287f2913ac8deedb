"""States made by hand, and what a policy says to them."""

from __future__ import annotations

import math

from repertory.actors.policy import Bind, ContextState, Entry, Grant, GroupState, Policy, Wait
from repertory.models.program import Program

__all__ = ["NOW", "among", "context", "entry", "group", "said", "two_groups"]

NOW = 10.0


def context(name: str, waiting: int = 0, *came: float, priority: int = 0) -> ContextState:
    """Return a model's backlog; `came` is when its frames did."""
    ready_since = (came[0] if came else 0.0) if waiting else math.inf
    state = ContextState(name, waiting, ready_since, priority=priority)
    if came:
        state.arrivals = lambda most: list(came[:most])
    return state


def entry(
    of: ContextState,
    turn: float = -math.inf,
    frames: int = 0,
    *,
    program: str | None = None,
    granted: int = 0,
    served: float = -math.inf,
    lost: float = -math.inf,
) -> Entry:
    """Return a context on a group: when its turn began, and the frames started since."""
    name = program or of.name
    unit = Program(f"key of {name}", name, (), footprint=1, scratch=0, image=None)
    return Entry(of, unit, turn_since=turn, turn_frames=frames, granted=granted, served=served, lost=lost)


def group(
    *entries: Entry, residents: str = "", pinned: str = "", capacity: int = 1, flying: int = 0
) -> GroupState:
    """Return a group; one letter names a program."""
    state = GroupState("group", capacity, entries=list(entries), in_flight=flying)
    programs = {each.program.name: each.program for each in entries}
    state.residents = {programs[name].key: programs[name] for name in residents}
    state.pinned = {programs[name].key for name in pinned}
    return state


def among(*groups: GroupState) -> None:
    """Let groups know each other."""
    for each in groups:
        each.peers = list(groups)


def two_groups(
    *contexts: ContextState, residents: tuple[str, str] = ("", "")
) -> tuple[GroupState, GroupState]:
    """Return groups that serve the same contexts, none of which had a turn."""
    first = group(*map(entry, contexts), residents=residents[0])
    second = group(*map(entry, contexts), residents=residents[1])
    among(first, second)
    return first, second


def said(policy: Policy, state: GroupState, now: float = NOW) -> tuple[str, str, object]:
    """Return the decision's kind, for whom, and how many frames, which evictions, or until when."""
    decision = policy.decide(state, now)
    assert decision.reason.format(*decision.figures)
    match decision:
        case Grant():
            kind = "turn" if decision.fresh else "grant"
            return kind, decision.entry.context.name, decision.frames
        case Bind():
            return "bind", decision.entry.context.name, "".join(each.name for each in decision.evict)
        case Wait():
            return "wait", "", decision.until
