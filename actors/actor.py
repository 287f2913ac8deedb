"""Actors: an owner of state that is reached by messages, and the handle that reaches it.

Kill is a cancel scope. Drain is closing the mailbox. An ask is a one-shot answer that is always given,
also when the callee dies. A monitor is an event. Supervision is in `supervisor.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast, final

import anyio

from repertory.models.errors import RepertoryError

from .mailbox import Mailbox, MailboxClosed

__all__ = ["Actor", "ActorDied", "ActorRef", "AskCycle", "Envelope", "Receiver"]

M = TypeVar("M")

_chain: ContextVar[tuple[ActorRef[Any], ...]] = ContextVar("repertory_ask_chain", default=())


@final
class ActorDied(RepertoryError):
    """The callee ended without an answer: it crashed on the message, was killed, or had ended before."""


@final
class AskCycle(RepertoryError):
    """The caller asks an actor that is waiting, directly or not, for the caller's own answer."""


@final
@dataclass(slots=True, eq=False)
class Envelope(Generic[M]):
    """A message and, where it is asked and not told, the place for its answer."""

    message: M
    chain: tuple[ActorRef[Any], ...] = ()
    answered: anyio.Event = field(default_factory=anyio.Event)
    value: object = None
    error: Exception | None = None

    def answer(self, value: object = None, error: Exception | None = None) -> None:
        """Give the answer; the first one stands."""
        if not self.answered.is_set():
            self.value, self.error = value, error
            self.answered.set()


class Actor(ABC, Generic[M]):
    """State with one owner: its own `serve`."""

    @abstractmethod
    async def serve(self, inbox: Mailbox[Envelope[M]]) -> None:
        """Live one incarnation: return when the inbox is drained, raise to crash, be cancelled to be killed.

        Every envelope that is received must be answered, also by an exception.
        """


class Receiver(Actor[M]):
    """An actor that handles one message at a time, in order.

    A RepertoryError from `receive` is a refusal: the asker gets it and the actor lives on. Any other
    exception is a crash: the message is dropped, its asker gets ActorDied, and the supervisor decides.
    """

    @abstractmethod
    async def receive(self, message: M) -> object:
        """Handle a message and return the answer for its asker."""

    async def serve(self, inbox: Mailbox[Envelope[M]]) -> None:
        async for envelope in inbox:
            token = _chain.set(envelope.chain)
            try:
                envelope.answer(await self.receive(envelope.message))
            except RepertoryError as refusal:
                envelope.answer(error=refusal)
            except Exception as error:
                envelope.answer(error=_died(f"crashed on this message: {error!r}", error))
                raise
            finally:
                envelope.answer(error=ActorDied("killed while it handled this message"))
                _chain.reset(token)


@final
class ActorRef(Generic[M]):
    """The handle of an actor over all its incarnations.

    Attributes:
        name: for people.
        stopped: set when the last incarnation has ended: the monitor.
        error: what ended it, or None where it was drained or killed.
    """

    def __init__(self, name: str, inbox: Mailbox[Envelope[M]]) -> None:
        self.name = name
        self.stopped = anyio.Event()
        self.error: BaseException | None = None
        self.inbox = inbox
        self.scope: anyio.CancelScope | None = None

    def tell(self, message: M) -> None:
        """Leave a message.

        Raises:
            ActorDied: the actor has ended or is draining.
            MailboxFull: its mailbox is full.
        """
        self._put(Envelope(message, (self,)))

    async def ask(self, message: M) -> Any:
        """Leave a message and wait for its answer.

        Raises:
            AskCycle: the answer would wait for the caller's own.
            ActorDied: the actor ended without an answer.
            MailboxFull: its mailbox is full.
            RepertoryError: the actor's refusal.
        """
        chain = _chain.get()
        if self in chain:
            raise AskCycle(" -> ".join(ref.name for ref in (*chain, self)))
        envelope = Envelope(message, (*chain, self))
        self._put(envelope)
        await envelope.answered.wait()
        if envelope.error is not None:
            raise envelope.error
        return envelope.value

    def drain(self) -> None:
        """Admit no further message; the actor ends after the last one that waits."""
        self.inbox.close()

    def kill(self) -> None:
        """Cancel the running incarnation, for good; between two of them the actor ends at once."""
        self.inbox.close()
        if self.scope is not None:
            self.scope.cancel()
        else:
            self.bury(self.error)

    def bury(self, error: BaseException | None) -> None:
        """Note the end and answer whoever still waits; the first call counts."""
        if self.stopped.is_set():
            return
        self.error = error
        self.inbox.close()
        while True:
            try:
                envelope = cast("Envelope[M]", self.inbox.receive_nowait())
            except MailboxClosed:
                break
            envelope.answer(error=_died("ended before this message", error))
        self.stopped.set()

    def _put(self, envelope: Envelope[M]) -> None:
        try:
            self.inbox.put_nowait(envelope)
        except MailboxClosed:
            raise _died("has ended or is draining", self.error) from self.error

    def __repr__(self) -> str:
        return f"<ActorRef {self.name}{' stopped' if self.stopped.is_set() else ''}>"


def _died(how: str, cause: BaseException | None) -> ActorDied:
    error = ActorDied(f"the actor {how}")
    error.__cause__ = cause
    return error
