from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from repertory.actors.mailbox import Mailbox, MailboxClosed, MailboxFull, MailboxStatistics

pytestmark = pytest.mark.virtual


def _filled(*messages: int, capacity: int = 8) -> Mailbox[int]:
    mailbox = Mailbox[int](capacity)
    for message in messages:
        mailbox.put_nowait(message)
    return mailbox


def test_messages_come_out_as_they_went_in() -> None:
    mailbox = _filled(1, 2, 3)
    assert [mailbox.receive_nowait() for _ in range(4)] == [1, 2, 3, None]


def test_full_mailbox_accepts_nothing_and_keeps_what_it_has() -> None:
    mailbox = _filled(1, 2, capacity=2)
    with pytest.raises(MailboxFull, match="2 messages"):
        mailbox.put_nowait(3)
    assert mailbox.receive_nowait() == 1
    mailbox.put_nowait(4)
    assert [mailbox.receive_nowait() for _ in range(3)] == [2, 4, None]


def test_closed_mailbox_gives_what_it_has_and_then_ends() -> None:
    mailbox = _filled(1)
    mailbox.close()
    mailbox.close()
    with pytest.raises(MailboxClosed):
        mailbox.put_nowait(2)
    assert mailbox.receive_nowait() == 1
    with pytest.raises(MailboxClosed):
        mailbox.receive_nowait()


def test_statistics_and_length() -> None:
    mailbox = _filled(1, 2, capacity=3)
    mailbox.close()
    assert mailbox.statistics() == MailboxStatistics(waiting=2, capacity=3, closed=True)
    assert len(mailbox) == 2


def test_on_arrival_hears_of_each_message_and_of_the_end_once() -> None:
    mailbox = Mailbox[int](1)
    heard: list[bool] = []
    mailbox.on_arrival = lambda: heard.append(mailbox.closed)
    mailbox.put_nowait(1)
    with pytest.raises(MailboxFull):
        mailbox.put_nowait(2)
    mailbox.close()
    mailbox.close()
    assert heard == [False, True]


async def test_receive_waits_for_a_message() -> None:
    mailbox = Mailbox[int](1)
    got: list[int] = []

    async def receive() -> None:
        got.append(await mailbox.receive())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        await anyio.sleep(1)
        assert got == []
        mailbox.put_nowait(7)
    assert got == [7]


async def test_receive_ends_when_the_mailbox_is_closed_meanwhile() -> None:
    mailbox = Mailbox[int](1)

    async def receive() -> None:
        with pytest.raises(MailboxClosed):
            await mailbox.receive()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        await anyio.sleep(1)
        mailbox.close()


async def test_receive_lets_others_run_also_when_messages_wait() -> None:
    mailbox = _filled(1, 2)
    ran: list[str] = []

    async def other() -> None:
        ran.append("other")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(other)
        while not ran:
            mailbox.put_nowait(await mailbox.receive())
    assert len(mailbox) == 2


async def test_iteration_ends_after_the_last_message() -> None:
    mailbox = _filled(1, 2)
    mailbox.close()
    assert [message async for message in mailbox] == [1, 2]


async def test_cancelled_receive_takes_no_message() -> None:
    mailbox = _filled(1)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await mailbox.receive()
    assert scope.cancelled_caught
    assert mailbox.receive_nowait() == 1


@given(steps=st.lists(st.sampled_from(["put", "cancel", "pause"]), max_size=12))
async def test_no_message_is_lost_or_doubled_by_cancelled_receivers(steps: list[str]) -> None:
    mailbox = Mailbox[int](64)
    got: list[int] = []
    scopes: list[anyio.CancelScope] = []
    sent = 0

    async def receive() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            while True:
                got.append(await mailbox.receive())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(receive)
        for step in steps:
            if step == "put":
                mailbox.put_nowait(sent)
                sent += 1
            elif step == "cancel" and scopes:
                scopes.pop().cancel()
                await anyio.sleep(1)  # one receiver at a time
                tasks.start_soon(receive)
            else:
                await checkpoint()
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    assert got == list(range(sent))
