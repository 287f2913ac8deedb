"""A bounded mailbox that outlives its actor's incarnations."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar, final

import anyio

from repertory.models.errors import RepertoryError

__all__ = ["Mailbox", "MailboxClosed", "MailboxFull", "MailboxStatistics"]

M = TypeVar("M")


@final
class MailboxClosed(Exception):
    """No message is accepted any more, or none will come."""


@final
@final
class MailboxFull(RepertoryError):
    """Nobody is at fault: the mailbox holds as many messages as it may. Nothing was accepted."""


@final
@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """One look at a mailbox."""

    waiting: int
    capacity: int
    closed: bool


@final
class Mailbox(Generic[M]):
    """First in, first out, one receiver.

    Closing it stops admission at once; what it holds can still be received, and `receive` raises
    MailboxClosed after the last message. Synchronous methods are the whole truth; `receive` loops over
    `receive_nowait`.

    Attributes:
        on_arrival: called after a message or the end arrived; set by a receiver that waits for more than
            this mailbox.

    Args:
        capacity: messages that may wait.
    """

    def __init__(self, capacity: int) -> None:
        self.on_arrival: Callable[[], None] | None = None
        self._capacity = capacity
        self._messages: deque[M] = deque()
        self._closed = False
        self._arrival = anyio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def closed(self) -> bool:
        """Whether admission has ended."""
        return self._closed

    def statistics(self) -> MailboxStatistics:
        """Return how full the mailbox is."""
        return MailboxStatistics(len(self._messages), self._capacity, self._closed)

    def put_nowait(self, message: M) -> None:
        """Accept a message.

        Raises:
            MailboxClosed: admission has ended.
            MailboxFull: `capacity` messages wait.
        """
        if self._closed:
            raise MailboxClosed
        if len(self._messages) >= self._capacity:
            raise MailboxFull(f"{self._capacity} messages wait")
        self._messages.append(message)
        self._arrived()

    def close(self) -> None:
        """End admission; any number of times."""
        if not self._closed:
            self._closed = True
            self._arrived()

    def receive_nowait(self) -> M | None:
        """Return the oldest message, or None.

        Raises:
            MailboxClosed: the mailbox is closed and empty.
        """
        if self._messages:
            return self._messages.popleft()
        if self._closed:
            raise MailboxClosed
        return None

    async def receive(self) -> M:
        """Wait for the oldest message; atomic with respect to cancellation.

        Raises:
            MailboxClosed: the mailbox is closed and empty.
        """
        await anyio.lowlevel.checkpoint()
        while (message := self.receive_nowait()) is None:
            self._arrival = anyio.Event()
            await self._arrival.wait()
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        try:
            return await self.receive()
        except MailboxClosed:
            raise StopAsyncIteration from None

    def _arrived(self) -> None:
        self._arrival.set()
        if self.on_arrival is not None:
            self.on_arrival()
