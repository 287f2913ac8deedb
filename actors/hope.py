"""What nobody knows yet, or not any more: a group is tried where by all that is known nobody could do it."""

from __future__ import annotations

from .policy import Entry, GroupState
from .sharing import has_nothing_to_do

__all__ = ["may_try", "untried"]


def untried(group: GroupState, entry: Entry) -> bool:
    """Whether a group never served a model, and may do so at once: it is idle, or has the model already.

    Not the host's own processor, which is slower as a rule.
    """
    if entry.service.samples or group.on_host or not group.in_service:
        return False
    return group.binding is entry or entry.program.key in group.residents or has_nothing_to_do(group)


def may_try(group: GroupState, entry: Entry, now: float) -> bool:
    """Whether a group may serve a frame that would be late by what is known.

    So it is where it never served the model, and where what is known of all groups is too old.
    """
    if not entry.service.samples:
        return untried(group, entry)
    homes = (peer.by_context.get(entry.context) for peer in group.peers or [group])
    return all(home is None or home.stale(now) for home in homes)
