"""The smallest actor there can be, with which benchmarks compare: it is no benchmark itself.

A deque, a future a call; no bound, no deadline, no cancel, no count of anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

__all__ = ["Minimal"]


class Minimal:
    """The yardstick."""

    def __init__(self) -> None:
        self.mailbox: deque[tuple[Any, asyncio.Future[Any]]] = deque()
        self.waiter: asyncio.Future[None] | None = None

    async def serve(self) -> None:
        while True:
            while self.mailbox:
                message, reply = self.mailbox.popleft()
                if not reply.done():
                    reply.set_result(message)
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter

    async def ask(self, message: Any) -> Any:
        reply = asyncio.get_running_loop().create_future()
        self.mailbox.append((message, reply))
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        return await reply
