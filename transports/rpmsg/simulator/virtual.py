"""An endpoint without a kernel: the caller's own waiting moves the DSP on, in any world."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from repertory.models.errors import ContractError
from repertory.transports.rpmsg.endpoint import MTU, Endpoint
from repertory.transports.world import Condition

from .board import Board

__all__ = ["VirtualEndpoint"]

_WOKEN = "woken"


@final
class VirtualEndpoint(Endpoint):
    """Connects a driver loop to a board in the same process.

    Raises:
        DeviceBusy: somebody is connected.
        DeviceLost: the core is stopped.
    """

    def __init__(self, board: Board, condition: Condition, now: Callable[[], float]) -> None:
        self._board = board
        self._condition = condition
        self._now = now
        self._woken = False
        with condition:
            self._port = board.open_port(now(), inline=True)

    def send(self, message: bytes) -> bool:
        if not 0 < len(message) <= MTU:
            raise ContractError(f"a message has 1 to {MTU} bytes, and not {len(message)}")
        with self._condition:
            now = self._now()
            self._board.advance(now)
            self._port.check()
            if not self._board.accepts():
                return False
            self._board.deliver(self._port, message, now)
            return True

    async def receive(self, timeout: float | None) -> bytes | None:
        found = await self._condition.wait(self._look, timeout=timeout, next_event=self._board.next_event)
        return found if isinstance(found, bytes) else None

    def wake(self) -> None:
        with self._condition:
            self._woken = True
            self._condition.notify()

    def close(self) -> None:
        with self._condition:
            self._board.advance(self._now())
            self._board.close_port(self._port)
            self._condition.notify()

    def _look(self) -> bytes | str | None:
        now = self._now()
        self._board.advance(now)
        self._port.check()
        if (message := self._port.take(now)) is not None:
            return message
        if not self._woken:
            return None
        self._woken = False
        return _WOKEN
