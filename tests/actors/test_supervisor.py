from __future__ import annotations

from collections import Counter
from typing import Any, final

import anyio
import pytest

from repertory.actors.actor import Actor, ActorDied, ActorRef, Envelope
from repertory.actors.mailbox import Mailbox
from repertory.actors.supervisor import Restarts, Strategy, Supervisor

pytestmark = pytest.mark.virtual

EAGER = Restarts(budget=100, backoff=0.0)


@final
class Crash(Exception):
    pass


@final
class Troupe:
    """Makes actors that note when they begin and end, and crash when told so."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.times: list[float] = []

    def start(self, supervisor: Supervisor, *names: str) -> list[ActorRef[str]]:
        return [supervisor.start(lambda name=name: Player(self, name), name=name) for name in names]  # type: ignore[misc]

    @property
    def began(self) -> Counter[str]:
        return Counter(entry[1:] for entry in self.log if entry.startswith("+"))


@final
class Player(Actor[str]):
    def __init__(self, troupe: Troupe, name: str) -> None:
        self._troupe = troupe
        self._name = name

    async def serve(self, inbox: Mailbox[Envelope[str]]) -> None:
        self._troupe.log.append(f"+{self._name}")
        self._troupe.times.append(anyio.current_time())
        try:
            async for envelope in inbox:
                await self._play(envelope.message)
                envelope.answer("played")
        finally:
            self._troupe.log.append(f"-{self._name}")

    async def _play(self, message: str) -> None:
        if message == "crash":
            raise Crash(self._name)
        if message == "hang":
            await anyio.sleep_forever()
        if message.startswith("sleep"):
            await anyio.sleep(float(message.removeprefix("sleep ")))


@pytest.mark.parametrize(
    ("strategy", "restarted"),
    [
        (Strategy.ONE_FOR_ONE, {"b"}),
        (Strategy.ONE_FOR_ALL, {"a", "b", "c"}),
        (Strategy.REST_FOR_ONE, {"b", "c"}),
    ],
)
async def test_strategy_decides_who_is_restarted_and_in_which_order(
    strategy: Strategy, restarted: set[str]
) -> None:
    troupe = Troupe()
    async with Supervisor(strategy, restarts=Restarts(backoff=1.0)) as supervisor:
        refs = troupe.start(supervisor, "a", "b", "c")
        await anyio.sleep(0.1)
        del troupe.log[:]
        refs[1].tell("crash")
        await anyio.sleep(0.5)
        ends = ["-b", *(f"-{name}" for name in ("c", "a") if name in restarted)]
        assert troupe.log == ends
        await anyio.sleep(1)
        assert set(troupe.began) == restarted
        assert not any(ref.stopped.is_set() for ref in refs)
        assert [await ref.ask("play") for ref in refs] == ["played"] * 3


async def test_mailbox_outlives_the_incarnation() -> None:
    troupe = Troupe()
    async with Supervisor(restarts=EAGER) as supervisor:
        (actor,) = troupe.start(supervisor, "a")
        actor.tell("crash")
        assert await actor.ask("play") == "played"
        assert troupe.began["a"] == 2


async def test_mailbox_of_ones_own_is_used_also_while_it_is_empty() -> None:
    inbox = Mailbox[Envelope[str]](1)
    async with Supervisor() as supervisor:
        actor = supervisor.start(lambda: Player(Troupe(), "a"), name="a", inbox=inbox)
        actor.tell("play")
        assert len(inbox) == 1


async def test_backoff_doubles_with_each_crash_in_the_window() -> None:
    troupe = Troupe()
    async with Supervisor(restarts=Restarts(budget=4, within=1000, backoff=0.5)) as supervisor:
        (actor,) = troupe.start(supervisor, "a")
        for _ in range(4):
            actor.tell("crash")
        await anyio.sleep(100)
    gaps = [after - before for before, after in zip(troupe.times, troupe.times[1:], strict=False)]
    assert gaps == pytest.approx([0.5, 1, 2, 4])


async def test_backoff_is_at_most_half_a_minute() -> None:
    troupe = Troupe()
    async with Supervisor(restarts=Restarts(budget=2, within=1000, backoff=100)) as supervisor:
        (actor,) = troupe.start(supervisor, "a")
        actor.tell("crash")
        await anyio.sleep(30.5)
        assert troupe.times[1] - troupe.times[0] == pytest.approx(30)


async def test_spent_budget_ends_all_and_says_why() -> None:
    troupe = Troupe()
    async with Supervisor(restarts=Restarts(budget=2, backoff=0.0)) as supervisor:
        refs = troupe.start(supervisor, "a", "b", "c")
        for _ in range(3):
            refs[1].tell("crash")
        with anyio.fail_after(1):
            await supervisor.spent.wait()
        assert all(ref.stopped.is_set() for ref in refs)
        assert all(isinstance(ref.error, Crash) for ref in refs)
        assert troupe.log[-3:] == ["-b", "-c", "-a"]
        with pytest.raises(ActorDied) as caught:
            await refs[2].ask("play")
        assert isinstance(caught.value.__cause__, Crash)


async def test_spent_budget_does_not_wait_for_a_sibling_in_backoff() -> None:
    troupe = Troupe()
    async with Supervisor(restarts=Restarts(budget=1, backoff=30)) as supervisor:
        first, second = troupe.start(supervisor, "a", "b")
        first.tell("crash")
        await anyio.sleep(1)
        second.tell("crash")
        with anyio.fail_after(1):
            await supervisor.spent.wait()
        assert first.stopped.is_set()
        assert second.stopped.is_set()


async def test_crashes_outside_the_window_are_forgiven() -> None:
    troupe = Troupe()
    async with Supervisor(restarts=Restarts(budget=1, within=10, backoff=0.0)) as supervisor:
        (actor,) = troupe.start(supervisor, "a")
        for _ in range(5):
            actor.tell("crash")
            await anyio.sleep(11)
        assert troupe.began["a"] == 6
        assert not supervisor.spent.is_set()
        actor.tell("crash")
        await anyio.sleep(9)
        actor.tell("crash")
        await anyio.sleep(1)
        assert supervisor.spent.is_set()


async def test_actors_stop_from_right_to_left_and_drained() -> None:
    troupe = Troupe()
    async with Supervisor(grace=5) as supervisor:
        for ref in troupe.start(supervisor, "a", "b", "c"):
            ref.tell("sleep 1")
        began = anyio.current_time()
    assert troupe.log[-3:] == ["-c", "-b", "-a"]
    assert anyio.current_time() - began == pytest.approx(1)


async def test_actor_that_does_not_drain_is_killed_after_its_grace() -> None:
    troupe = Troupe()
    began = anyio.current_time()
    async with Supervisor(grace=2) as supervisor:
        for ref in troupe.start(supervisor, "a", "b"):
            ref.tell("hang")
    assert anyio.current_time() - began == pytest.approx(4)


async def test_outer_cancellation_stops_actors_in_order_and_not_before() -> None:
    troupe = Troupe()
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            async with Supervisor() as supervisor:
                for ref in troupe.start(supervisor, "a", "b"):
                    ref.tell("sleep 2")
                await anyio.sleep_forever()

        tasks.start_soon(run)
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    assert troupe.log[-2:] == ["-b", "-a"]
    assert anyio.current_time() >= troupe.times[0] + 2, "the message in work was finished"


async def test_cancellation_before_the_first_step_of_an_actor() -> None:
    troupe = Troupe()
    refs: list[ActorRef[str]] = []
    with anyio.CancelScope() as scope:
        async with Supervisor() as supervisor:
            refs += troupe.start(supervisor, "a", "b")
            for ref in refs:
                ref.tell("play")
            scope.cancel()
            await anyio.sleep_forever()
    assert all(ref.stopped.is_set() for ref in refs)
    assert all(len(ref.inbox) == 0 for ref in refs)


async def test_error_of_the_block_is_raised_as_it_is() -> None:
    troupe = Troupe()

    async def run() -> None:
        async with Supervisor() as supervisor:
            troupe.start(supervisor, "a")
            raise Crash("the block's own")

    with pytest.raises(Crash, match="the block's own"):
        await run()
    assert troupe.log in ([], ["+a", "-a"])


async def test_kill_during_backoff_ends_the_actor_at_once_and_for_good() -> None:
    troupe = Troupe()
    async with Supervisor(restarts=Restarts(backoff=10)) as supervisor:
        (actor,) = troupe.start(supervisor, "a")
        actor.tell("crash")
        errors: list[ActorDied] = []

        async def ask() -> None:
            with pytest.raises(ActorDied) as caught:
                await actor.ask("play")
            errors.append(caught.value)

        async with anyio.create_task_group() as tasks:
            await anyio.sleep(1)
            tasks.start_soon(ask)
            await anyio.sleep(1)
            actor.kill()
            assert actor.stopped.is_set()
        assert len(errors) == 1
        await anyio.sleep(60)
        assert troupe.began["a"] == 1


async def test_stop_during_backoff_does_not_wait_for_its_end() -> None:
    troupe = Troupe()
    async with Supervisor(restarts=Restarts(backoff=25)) as supervisor:
        (actor,) = troupe.start(supervisor, "a")
        actor.tell("crash")
        await anyio.sleep(1)
        began = anyio.current_time()
    assert anyio.current_time() == began
    assert actor.stopped.is_set()


@pytest.mark.parametrize("strategy", Strategy)
async def test_two_children_that_crash_at_once_are_both_restarted_once(strategy: Strategy) -> None:
    troupe = Troupe()
    async with Supervisor(strategy, restarts=Restarts(backoff=1.0)) as supervisor:
        refs = troupe.start(supervisor, "a", "b", "c")
        await anyio.sleep(0.1)
        refs[0].tell("crash")
        refs[1].tell("crash")
        await anyio.sleep(10)
        assert troupe.began["a"] == troupe.began["b"] == 2
        assert [await ref.ask("play") for ref in refs] == ["played"] * 3
        assert not supervisor.spent.is_set()


@pytest.mark.parametrize("strategy", Strategy)
async def test_child_that_crashes_before_its_siblings_first_step(strategy: Strategy) -> None:
    troupe = Troupe()
    async with Supervisor(strategy, restarts=EAGER) as supervisor:
        refs = troupe.start(supervisor, "a", "b")
        refs[0].tell("crash")
        with anyio.fail_after(1):
            assert [await ref.ask("play") for ref in refs] == ["played"] * 2


async def test_two_children_that_spend_the_budget_at_once() -> None:
    troupe = Troupe()
    async with Supervisor(restarts=Restarts(budget=0)) as supervisor:
        refs = troupe.start(supervisor, "a", "b", "c")
        await anyio.sleep(0.1)
        refs[0].tell("crash")
        refs[1].tell("crash")
        with anyio.fail_after(1):
            await supervisor.spent.wait()
        assert all(ref.stopped.is_set() for ref in refs)


async def test_siblings_that_have_ended_are_left_alone() -> None:
    troupe = Troupe()
    async with Supervisor(Strategy.ONE_FOR_ALL, restarts=EAGER) as supervisor:
        refs = troupe.start(supervisor, "a", "b", "c")
        refs[0].drain()
        refs[2].kill()
        await anyio.sleep(1)
        refs[1].tell("crash")
        assert await refs[1].ask("play") == "played"
        assert troupe.began["a"] == 1
        assert troupe.began["c"] <= 1
        assert refs[0].error is refs[2].error is None


async def test_crash_while_draining_ends_the_actor_with_that_error() -> None:
    troupe = Troupe()
    async with Supervisor() as supervisor:
        (actor,) = troupe.start(supervisor, "a")
        actor.tell("crash")
        actor.tell("play")
        actor.drain()
        await actor.stopped.wait()
        assert isinstance(actor.error, Crash)
        assert len(actor.inbox) == 0
        assert troupe.began["a"] == 1


async def test_start_on_a_stopping_supervisor_is_refused() -> None:
    async with Supervisor() as supervisor:
        pass
    with pytest.raises(ActorDied, match="late was not started"):
        Troupe().start(supervisor, "late")


async def test_supervisor_forgets_actors_that_have_ended() -> None:
    made: list[int] = []
    async with Supervisor() as supervisor:
        for number in range(3):
            (actor,) = Troupe().start(supervisor, f"a{number}")
            await anyio.sleep(1)
            actor.drain()
            await actor.stopped.wait()
            await anyio.sleep(1)
            made.append(len(supervisor._children))  # pyright: ignore[reportPrivateUsage]
    assert made == [0, 0, 0]


@final
class TheEnd(BaseException):
    """As KeyboardInterrupt is, which no test runner survives on asyncio."""


@final
class Fatal(Actor[Any]):
    async def serve(self, inbox: Mailbox[Any]) -> None:
        await anyio.sleep(1)
        raise TheEnd


async def test_what_is_no_crash_but_the_end_of_the_program_hangs_nobody() -> None:
    troupe = Troupe()
    fatal: list[ActorRef[Any]] = []

    async def run() -> None:
        async with Supervisor() as supervisor:
            fatal.append(supervisor.start(Fatal, name="fatal"))
            troupe.start(supervisor, "a")
            await anyio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await run()
    assert caught.group_contains(TheEnd)
    assert fatal[0].stopped.is_set()
    assert troupe.log == ["+a", "-a"]
