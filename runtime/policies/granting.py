"""A grant for a model that asks."""

from __future__ import annotations

import math

from repertory.actors.policy import Grant, Step

from .scene import Asker, worth_of

__all__ = ["grant_of"]


def grant_of(
    asker: Asker,
    frames: int,
    reason: str,
    *figures: float,
    worth: float = 0.0,
    plan: tuple[Step, ...] = (),
    until: float = math.inf,
) -> Grant:
    """Grant frames to a model; see `Grant`, whose worth is that of its class unless it is given."""
    entry = asker.entry
    return Grant(
        entry,
        frames,
        reason,
        until=until,
        fresh=entry.turn_since == -math.inf,
        worth=worth or worth_of(asker.context, asker.priority),
        figures=figures,
        plan=plan,
    )
