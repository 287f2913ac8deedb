"""The child's side by itself, in this process."""

from __future__ import annotations

import logging
import socket

import anyio
import pytest

from repertory.transports.isolation.host import Host
from repertory.transports.isolation.messages import Logged, Open, Opened, ToChild, ToParent
from repertory.transports.isolation.wire import Wire


async def test_a_record_that_cannot_be_worded(
    anyio_backend: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told on standard error, as by any handler; whoever logged it goes on, and so do later records."""
    logger, ends = logging.getLogger("repertory"), socket.socketpair()
    handlers, level = [*logger.handlers], logger.level
    wire: Wire[ToChild, ToParent] = Wire(ends[0], list[ToParent])

    async def until(kind: type[ToParent]) -> list[ToParent]:
        came: list[ToParent] = []
        while not any(isinstance(message, kind) for message in came):
            await anyio.wait_readable(wire)
            came += wire.receive(wait=False)
        return came

    logger.propagate = False  # the handlers of a test run raise for such a record
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Host(ends[1], "sim://").serve)
            wire.send([Open(1, logging.WARNING)])
            await until(Opened)
            logging.getLogger("repertory.x").warning("%d", "no number")
            logging.getLogger("repertory.x").warning("%d", 7)
            assert await until(Logged) == [Logged("repertory.x", logging.WARNING, "7")]
            tasks.cancel_scope.cancel()
    finally:
        logger.propagate = True
        logger.handlers[:] = handlers
        logger.setLevel(level)
        for end in ends:
            end.close()
    assert "Logging error" in capsys.readouterr().err
