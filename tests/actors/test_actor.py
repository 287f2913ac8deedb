from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, final

import anyio
import pytest

from repertory.actors.actor import Actor, ActorDied, ActorRef, AskCycle, Receiver
from repertory.actors.mailbox import Mailbox, MailboxFull
from repertory.actors.supervisor import Restarts, Supervisor
from repertory.models.errors import QueueFull

pytestmark = pytest.mark.virtual

NO_RESTART = Restarts(budget=0)


@final
class Handler(Receiver[Any]):
    """Answers by a function."""

    def __init__(self, handle: Callable[[Any], Awaitable[object]]) -> None:
        self._handle = handle

    async def receive(self, message: Any) -> object:
        return await self._handle(message)


async def _echo(message: object) -> object:
    return message


async def _for_ever(_: object) -> None:
    await anyio.sleep_forever()


async def _crash(message: object) -> None:
    raise ValueError(message)


def _start(
    supervisor: Supervisor, handle: Callable[[Any], Awaitable[object]], name: str = "a"
) -> ActorRef[Any]:
    return supervisor.start(lambda: Handler(handle), name=name)


async def test_ask_is_answered_by_what_receive_returns() -> None:
    async with Supervisor() as supervisor:
        assert await _start(supervisor, _echo).ask("hello") == "hello"


async def test_messages_are_handled_one_at_a_time_in_order() -> None:
    handled: list[object] = []

    async def handle(message: object) -> None:
        handled.append(message)
        await anyio.sleep(1)
        handled.append(message)

    async with Supervisor() as supervisor:
        actor = _start(supervisor, handle)
        for number in range(3):
            actor.tell(number)
    assert handled == [0, 0, 1, 1, 2, 2]


async def test_refusal_reaches_the_asker_and_the_actor_lives_on() -> None:
    async def refuse(message: object) -> object:
        if message == "no":
            raise QueueFull("no place")
        return message

    async with Supervisor(restarts=NO_RESTART) as supervisor:
        actor = _start(supervisor, refuse)
        with pytest.raises(QueueFull, match="no place"):
            await actor.ask("no")
        actor.tell("no")
        assert await actor.ask("yes") == "yes"


async def test_crash_tells_the_asker_why_and_drops_that_message_alone() -> None:
    seen: list[object] = []

    async def handle(message: object) -> object:
        seen.append(message)
        if message == "bad":
            raise ValueError("broken")
        return message

    async with Supervisor() as supervisor:
        actor = _start(supervisor, handle)
        actor.tell("before")
        with pytest.raises(ActorDied, match="broken") as caught:
            await actor.ask("bad")
        actor.tell("after")
        assert await actor.ask("last") == "last"
    assert isinstance(caught.value.__cause__, ValueError)
    assert seen == ["before", "bad", "after", "last"]


@pytest.mark.parametrize("end", ["kill", "crash", "stop"])
async def test_every_ask_is_answered_when_the_actor_ends(end: str) -> None:
    answers: dict[str, str] = {}

    async def handle(message: object) -> object:
        await anyio.sleep(1)
        if end == "crash":
            raise ValueError("broken")
        if message == "first":
            await anyio.sleep_forever()
        return message

    async def ask(actor: ActorRef[Any], message: str) -> None:
        with pytest.raises(ActorDied) as caught:
            await actor.ask(message)
        answers[message] = str(caught.value)

    async with anyio.create_task_group() as tasks:
        async with Supervisor(restarts=NO_RESTART, grace=2) as supervisor:
            actor = _start(supervisor, handle)
            tasks.start_soon(ask, actor, "first")
            await anyio.sleep(0.5)
            tasks.start_soon(ask, actor, "second")
            await anyio.sleep(1)
            if end == "kill":
                actor.kill()
        with pytest.raises(ActorDied, match="has ended or is draining"):
            await actor.ask("late")
        with pytest.raises(ActorDied, match="has ended or is draining"):
            actor.tell("late")
    during = "crashed on this message" if end == "crash" else "killed while it handled"
    assert during in answers["first"]
    assert "ended before this message" in answers["second"]


async def test_dead_actor_says_what_it_died_of() -> None:
    async with Supervisor(restarts=NO_RESTART) as supervisor:
        actor = _start(supervisor, _crash)
        actor.tell("cause of death")
        await actor.stopped.wait()
        assert isinstance(actor.error, ValueError)
        with pytest.raises(ActorDied) as caught:
            await actor.ask("anything")
        assert caught.value.__cause__ is actor.error


async def test_drain_admits_nothing_and_ends_after_the_last_message() -> None:
    handled: list[object] = []

    async def handle(message: object) -> None:
        await anyio.sleep(1)
        handled.append(message)

    async with Supervisor() as supervisor:
        actor = _start(supervisor, handle)
        for number in range(3):
            actor.tell(number)
        actor.drain()
        with pytest.raises(ActorDied, match="draining"):
            actor.tell("late")
        await actor.stopped.wait()
    assert handled == [0, 1, 2]
    assert actor.error is None
    assert repr(actor) == "<ActorRef a stopped>"


async def test_killed_actor_that_never_ran_handles_nothing() -> None:
    handled: list[object] = []

    async def handle(message: object) -> None:
        handled.append(message)

    async with Supervisor() as supervisor:
        actor = _start(supervisor, handle)
        actor.tell("hello")
        actor.kill()
        await actor.stopped.wait()
    assert handled == []


async def test_full_mailbox_refuses_a_tell_and_an_ask() -> None:
    async with Supervisor(grace=0) as supervisor:
        actor = supervisor.start(lambda: Handler(_for_ever), name="a", inbox=Mailbox(1))
        actor.tell("being handled")
        await anyio.sleep(1)
        actor.tell("waits")
        with pytest.raises(MailboxFull):
            actor.tell("too much")
        with pytest.raises(MailboxFull):
            await actor.ask("too much")


async def test_cancelled_asker_leaves_the_message_with_the_actor() -> None:
    handled: list[object] = []

    async def handle(message: object) -> None:
        await anyio.sleep(1)
        handled.append(message)

    async with Supervisor() as supervisor:
        actor = _start(supervisor, handle)
        with anyio.move_on_after(0.5) as scope:
            await actor.ask("hello")
        assert scope.cancelled_caught
    assert handled == ["hello"]


@pytest.mark.parametrize("by", ["ask", "tell"])
async def test_ask_that_waits_on_its_own_chain_raises(by: str) -> None:
    refs: dict[str, ActorRef[Any]] = {}
    cycles: list[str] = []

    async def forward(message: object) -> object:
        return await refs["b"].ask(message)

    async def back(message: object) -> object:
        try:
            return await refs["a"].ask(message)
        except AskCycle as cycle:
            cycles.append(str(cycle))
            raise

    async with Supervisor() as supervisor:
        refs["a"] = _start(supervisor, forward, "a")
        refs["b"] = _start(supervisor, back, "b")
        if by == "ask":
            with pytest.raises(AskCycle):
                await refs["a"].ask("round")
        else:
            refs["a"].tell("round")
        await anyio.sleep(1)
    assert cycles == ["a -> b -> a"]


@pytest.mark.parametrize("by", ["ask", "tell"])
async def test_actor_that_asks_itself_gets_an_error(by: str) -> None:
    refs: list[ActorRef[Any]] = []
    errors: list[Exception] = []

    async def ask_itself(message: object) -> None:
        with pytest.raises(AskCycle) as caught:
            await refs[0].ask(message)
        errors.append(caught.value)

    async with Supervisor() as supervisor:
        refs.append(_start(supervisor, ask_itself))
        if by == "ask":
            await refs[0].ask("me")
        else:
            refs[0].tell("me")
    assert len(errors) == 1


async def test_two_chains_through_one_actor_are_no_cycle() -> None:
    async with Supervisor() as supervisor:
        leaf = _start(supervisor, _echo, "leaf")
        nodes = [_start(supervisor, leaf.ask, name) for name in ("left", "right")]
        answers = [await node.ask(number) for number, node in enumerate(nodes)]
        answers += [await node.ask(number) for number, node in enumerate(nodes)]
    assert answers == [0, 1, 0, 1]


async def test_chain_of_one_message_does_not_leak_into_the_next() -> None:
    """The asker of the first message is not part of the second one's chain."""
    refs: dict[str, ActorRef[Any]] = {}

    async def handle(message: object) -> object:
        return await refs["caller"].ask("back") if message == "call back" else message

    async def call(message: object) -> object:
        return "fine" if message == "back" else await refs["a"].ask("from caller")

    async with Supervisor() as supervisor:
        refs["a"] = _start(supervisor, handle, "a")
        refs["caller"] = _start(supervisor, call, "caller")
        assert await refs["caller"].ask("go") == "from caller"
        assert await refs["a"].ask("call back") == "fine"


async def test_actor_sees_none_of_its_askers_context_variables() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")

    async def look(_: object) -> str:
        return variable.get()

    async with Supervisor() as supervisor:
        actor = _start(supervisor, look)
        variable.set("the asker's")
        assert await actor.ask("look") == "unset"


@final
class Once(Actor[Any]):
    """Returns without being drained."""

    async def serve(self, inbox: Mailbox[Any]) -> None:
        await anyio.sleep(1)


async def test_actor_that_returns_by_itself_has_stopped() -> None:
    async with Supervisor() as supervisor:
        actor: ActorRef[Any] = supervisor.start(Once, name="once")
        with pytest.raises(ActorDied):
            await actor.ask("anyone there?")
        assert actor.stopped.is_set()
        assert actor.error is None
