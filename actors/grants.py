"""The grants that are open at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from .policy import Entry, Grant

__all__ = ["Grants"]


@final
class Grants:
    """Open grants; `Entry.granted` tells what each still allows.

    Attributes:
        all: in the order of opening.
    """

    def __init__(self) -> None:
        self.all: list[Grant] = []

    def open(self, grant: Grant, now: float) -> bool:
        """Open a grant; return whether its entry had none before, whose place it takes."""
        entry = grant.entry
        more = not entry.granted
        if not more:
            self.forget(entry)
        self.all.append(grant)
        entry.granted, entry.worth = grant.frames, grant.worth
        if grant.fresh:
            entry.turn_since, entry.turn_frames = now, 0
        return more

    def fill(self, goes_on: Callable[[Grant, float], bool], now: float) -> bool:
        """Try every open grant, and close those that do not go on; return whether all do."""
        going: list[Grant] = []
        for grant in self.all:
            if goes_on(grant, now):
                going.append(grant)
            else:
                grant.entry.granted = 0
        before, self.all = self.all, going
        return len(going) == len(before)

    def forget(self, entry: Entry) -> None:
        """Close an entry's grant, if it has one."""
        entry.granted = 0
        self.all = [grant for grant in self.all if grant.entry is not entry]

    def withdraw(self) -> None:
        """Close all."""
        for grant in self.all:
            grant.entry.granted = 0
        self.all = []
