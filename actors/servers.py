"""The groups that serve a model, as its context sees them, and which of them is told of its frames."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Protocol, final

from repertory.transports.frame import Frame
from repertory.transports.loop import Loop
from repertory.transports.wheel import Alarm, Wheel

from .backlog import Backlog
from .policy import ContextState, Entry, GroupState
from .telling import free_for, serves_soon

__all__ = ["SECOND_LOOK", "Server", "Servers"]

SECOND_LOOK: Final = 0.05
"""Seconds after which all groups are told of what one of them was to serve soon, and did not."""


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
        wheel: for a second look.
        loop: for the clock.
    """

    __slots__ = ("_alarm", "_all", "_backlog", "_loop", "_state", "_wheel")

    def __init__(self, state: ContextState, backlog: Backlog, wheel: Wheel, loop: Loop) -> None:
        self._state = state
        self._backlog = backlog
        self._wheel = wheel
        self._loop = loop
        self._alarm = Alarm(self._look_again)
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
                    if self._alarm.bucket is None:
                        self._wheel.add(self._alarm, now + SECOND_LOOK)
                return

    def _look_again(self) -> None:
        """Ask those who were spared after all, where what they were spared for still waits."""
        state = self._state
        if not state.waiting:
            return
        moment = state.ready_since + SECOND_LOOK
        if moment <= self._loop.now():
            self.poke()
        else:
            self._wheel.add(self._alarm, moment)

    def poke(self) -> None:
        """Something changed that groups do not see: they ask their policy again."""
        for server in self._all:
            server.poke()

    def abandon(self, frame: Frame) -> None:
        """Nobody waits for this started frame any more."""
        for server in self._all:
            server.abandon(frame)
