"""The groups that serve a model, as its context sees them, and which of them is told of its frames."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol, final

from repertory.transports.frame import Frame

from .backlog import Backlog
from .policy import ContextState, Entry, GroupState
from .telling import free_for, serves_soon

__all__ = ["Server", "Servers"]


class Server(Protocol):
    """A device group, as a context sees it.

    Attributes:
        state: what policies see of it.
    """

    state: GroupState

    def ready(self, now: float, /) -> None:
        """The backlog has ceased to be empty; the server may take from it at once."""

    def defer(self, until: float, now: float, /) -> None:
        """Likewise, but the server is spared a decision: what it goes on with may go on until that moment."""

    def poke(self) -> None:
        """Something else changed."""

    def abandon(self, frame: Frame, /) -> None:
        """Nobody waits for this started frame any more; groups that do not run it pass it over."""


@final
class Servers:
    """The groups of one model, in the order in which they are told.

    Args:
        state: the model.
        backlog: what waits.
    """

    __slots__ = ("_all", "_backlog", "_state")

    def __init__(self, state: ContextState, backlog: Backlog) -> None:
        self._state = state
        self._backlog = backlog
        self._all: list[Server] = []

    def add(self, server: Server) -> None:
        """Tell this group, too, from now on: at once where frames wait."""
        self._all.append(server)
        if self._state.waiting:
            server.poke()

    def remove(self, server: Server) -> None:
        """Tell this group no more, if it was told at all."""
        if server in self._all:
            self._all.remove(server)

    def __len__(self) -> int:
        return len(self._all)

    def homes(self) -> Iterator[tuple[GroupState, Entry]]:
        """Return each group with what it knows of the model."""
        for server in self._all:
            entry = server.state.by_context.get(self._state)
            if entry is not None:
                yield server.state, entry

    def ready(self, now: float) -> None:
        """Tell that frames wait; whoever takes them, or will soon, is the first to be told the next time.

        Those are spared for which there is nothing to decide by it (see `telling`).
        """
        servers, state, earliest = self._all, self._state, self._backlog.earliest
        several = len(servers) > 1
        for server in servers:
            group = server.state
            free = None if group.committed is None else free_for(group, state, earliest(), now)
            if free is not None:
                server.defer(free, now)
                continue
            server.ready(now)
            if not state.waiting or (several and serves_soon(group, state, earliest(), now)):
                if server is not servers[0]:
                    servers.remove(server)
                    servers.insert(0, server)
                if state.waiting:
                    for other in servers[1:]:
                        other.defer(math.inf, now)
                return

    def poke(self) -> None:
        """Something changed that groups do not see: they ask their policy again."""
        for server in self._all:
            server.poke()

    def abandon(self, frame: Frame) -> None:
        """Nobody waits for this started frame any more."""
        for server in self._all:
            server.abandon(frame)
