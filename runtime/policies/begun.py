"""A turn that has just begun: who was bound has at least one frame of it."""

from __future__ import annotations

import math
from typing import Final

from repertory.actors.policy import Decision, Entry, Grant, GroupState

from .granting import grant_of
from .scene import Asker, Scene, asker_of
from .standing import left_to

__all__ = ["SHORT", "first_frame", "is_fresh", "just_begun"]

SHORT: Final = 0.02
"""Seconds that a first frame may last, or as long as its swap, though others are more urgent."""


def first_frame(state: GroupState, now: float) -> Decision | None:
    """Start a short frame of who was just bound: it is due to it, whoever else waits.

    Asked before anything is surveyed, and so for groups alone that hold one program; what is long is left to
    `just_begun`.
    """
    if state.capacity > 1:
        return None
    for key in state.residents:
        for entry in state.by_program.get(key, ()):
            if is_fresh(entry) and entry.ready and not entry.granted and _others_wait(state, entry, now):
                free = now + state.busy_for(now)
                asker = asker_of(state, entry, now, free, resident=True)
                begun = _begun(state, asker, free, yields=True)
                if begun is not None:
                    return begun
    return None


def just_begun(scene: Scene) -> Decision | None:
    """Who was bound starts a frame at least, unless it is a long one, and others are more urgent."""
    for asker in scene.here:
        if is_fresh(asker.entry):
            yields = any(other.priority > asker.priority for other in scene.away)
            begun = _begun(scene.state, asker, scene.free, yields=yields)
            if begun is not None:
                return begun
    return None


def is_fresh(entry: Entry) -> bool:
    """Whether a resident was bound and has started no frame since."""
    return not entry.turn_frames and entry.turn_since > -math.inf


def _others_wait(state: GroupState, fresh: Entry, now: float) -> bool:
    """Whether others wait beside who was just bound, and no quicker group is to serve it."""
    if left_to(state, fresh, now) is not None:
        return False
    return any(entry.context.waiting for entry in state.entries if entry is not fresh)


def _begun(state: GroupState, asker: Asker, free: float, *, yields: bool) -> Grant | None:
    """Grant the frames that a swap was decided for, unless they could only be late.

    A long frame is not granted where it `yields` to others.
    """
    if yields and asker.service > max(SHORT, asker.swap):
        return None
    if not asker.can_be_in_time(free):
        return None
    return grant_of(asker, _counted_on(state, asker), "its turn has just begun")


def _counted_on(state: GroupState, asker: Asker) -> int:
    """Return how many frames the swap was decided for: those of them that wait, one at least.

    They last no longer than the swap: for so long a turn is kept against one that is due.
    """
    plan = state.plan
    if not plan or plan[0].context is not asker.context or not asker.service:
        return 1
    return max(1, min(plan[0].frames, asker.count, int(asker.swap / asker.service)))
