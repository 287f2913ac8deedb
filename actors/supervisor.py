"""Supervision: who is restarted when an actor crashes, how often, and how all of them are stopped."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self, TypeVar, final

import anyio
from anyio.abc import TaskGroup

from .actor import Actor, ActorDied, ActorRef, Envelope
from .mailbox import Mailbox

__all__ = ["Restarts", "Strategy", "Supervisor"]

M = TypeVar("M")


@final
class Strategy(Enum):
    """Who is restarted with a crashed actor."""

    ONE_FOR_ONE = auto()
    """It alone."""
    ONE_FOR_ALL = auto()
    """All of its siblings."""
    REST_FOR_ONE = auto()
    """The siblings that were started after it."""


@final
@dataclass(frozen=True, slots=True)
class Restarts:
    """OTP's sliding window: more than `budget` crashes within the last `within` seconds, and it is over.

    Before the n-th restart in the window the supervisor waits backoff * 2**(n-1) seconds, at most 30.
    """

    budget: int = 3
    within: float = 60.0
    backoff: float = 0.1


@final
@dataclass(slots=True, eq=False)
class _Child:
    number: int
    make: Callable[[], Actor[Any]]
    ref: ActorRef[Any]
    ended: anyio.Event = field(default_factory=anyio.Event)
    restart: bool = False
    alive: bool = True


@final
class Supervisor:
    """Runs actors; an async context manager.

    Cancelling the code around it does not cancel the actors: leaving the block stops them in order, last
    started first, each drained for at most `grace` seconds and then killed. When the restart budget is
    spent, all of them are killed in that order and `spent` is set; their handles carry the error.

    Args:
        strategy: who is restarted with a crashed actor.
        restarts: how often.
        grace: seconds that an orderly stop gives each actor.
    """

    def __init__(
        self,
        strategy: Strategy = Strategy.ONE_FOR_ONE,
        *,
        restarts: Restarts | None = None,
        grace: float = 5.0,
    ) -> None:
        self._strategy = strategy
        self._restarts = restarts or Restarts()
        self._grace = grace
        self._children: list[_Child] = []
        self._numbers = itertools.count()
        self._crashes: deque[float] = deque()
        self._tasks: TaskGroup
        self._stopping = anyio.Event()
        self.spent = anyio.Event()

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.stop()
        await self._tasks.__aexit__(None, None, None)

    def start(
        self, make: Callable[[], Actor[M]], *, name: str, inbox: Mailbox[Envelope[M]] | None = None
    ) -> ActorRef[M]:
        """Start an actor; `make` is called for each incarnation, the mailbox is the same for all.

        Raises:
            ActorDied: the supervisor is stopping.
        """
        if self._stopping.is_set():
            raise ActorDied(f"{name} was not started: its supervisor is stopping")
        ref = ActorRef(name, Mailbox[Envelope[M]](1024) if inbox is None else inbox)
        child = _Child(next(self._numbers), make, ref)
        self._children.append(child)
        self._spawn(child)
        return ref

    async def stop(self) -> None:
        """Stop every actor in order, last started first."""
        self._stopping.set()
        for child in self._children[::-1]:
            await self._end(child, drain=True)

    def _spawn(self, child: _Child) -> None:
        """Begin an incarnation; it can be killed from here on, also before its first step."""
        child.alive = True
        child.ended = anyio.Event()
        child.ref.scope = scope = anyio.CancelScope(shield=True)
        self._tasks.start_soon(self._live, child, scope, name=child.ref.name)

    async def _live(self, child: _Child, scope: anyio.CancelScope) -> None:
        """Run one incarnation; in the end, in this very task, decide what follows."""
        error: BaseException | None = None
        try:
            with scope:
                await child.make().serve(child.ref.inbox)
        except Exception as exc:  # noqa: BLE001  (a crash is what supervision is for)
            error = exc
        except BaseException as exc:  # it ends the whole program, and must not hang it
            child.restart = False
            self._bury(child, exc)
            raise
        finally:
            child.ref.scope = None
            child.alive = False
            child.ended.set()
        if child.restart:
            return  # a sibling's crash ended it, and whoever did so restarts it
        if error is None or child.ref.inbox.closed:
            self._bury(child, error)
            return
        with anyio.CancelScope(shield=True):
            await self._crashed(child, error)

    async def _crashed(self, child: _Child, error: BaseException) -> None:
        now = anyio.current_time()
        self._crashes.append(now)
        while self._crashes[0] <= now - self._restarts.within:
            self._crashes.popleft()
        others = self._others(child)
        if len(self._crashes) > self._restarts.budget:
            self._bury(child, error)
            for sibling in self._children[::-1]:
                await self._end(sibling, drain=False, error=error)
            self.spent.set()
            return
        for sibling in reversed(others):
            sibling.restart = True
            await self._end(sibling, drain=False)
        with anyio.move_on_after(min(30.0, self._restarts.backoff * 2 ** (len(self._crashes) - 1))):
            await self._stopping.wait()
        for again in sorted((child, *others), key=lambda one: one.number):
            self._revive(again)

    def _others(self, child: _Child) -> list[_Child]:
        alive = [c for c in self._children if c is not child and not c.ref.stopped.is_set()]
        if self._strategy is Strategy.ONE_FOR_ONE:
            return []
        if self._strategy is Strategy.ONE_FOR_ALL:
            return alive
        return [c for c in alive if c.number > child.number]

    def _revive(self, child: _Child) -> None:
        child.restart = False
        if child.alive:  # it crashed at the same time, and was revived on that account
            return
        if child.ref.inbox.closed:  # drained or killed meanwhile
            self._bury(child, None)
        else:
            self._spawn(child)

    async def _end(self, child: _Child, *, drain: bool, error: BaseException | None = None) -> None:
        if child.ref.stopped.is_set():
            return
        if drain:
            child.ref.drain()
            with anyio.move_on_after(self._grace):
                await child.ref.stopped.wait()
        if not child.restart:
            child.ref.error = child.ref.error or error
            child.ref.kill()
        elif child.ref.scope is not None:
            child.ref.scope.cancel()
        await child.ended.wait()
        if not child.restart:
            await child.ref.stopped.wait()

    def _bury(self, child: _Child, error: BaseException | None) -> None:
        child.ref.bury(error or child.ref.error)
        if child in self._children:
            self._children.remove(child)
