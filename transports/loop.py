"""The one seam between event loops: the clock, the one-shot slot, and waking a loop from outside.

Everything else in the package is written on anyio. These few are asked for once a request or once a
batch, where anyio's own event would cost half of the round trip, so each backend has its own. They live
in `_asyncio.py` and `_trio.py`, are chosen once, and pass one conformance test.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, Protocol

from anyio.lowlevel import current_token

__all__ = ["Loop", "Slot", "current_loop"]


class Slot(Awaitable[None], Protocol):
    """A one-shot wake-up with one waiter; awaiting it is a checkpoint."""


class Loop(ABC):
    """What the package needs of an event loop beyond anyio; made and used on the loop's own thread.

    Attributes:
        now: seconds on the loop's clock, the value of `anyio.current_time()`.
        slot: makes a new empty slot.
        fill: wakes a slot's waiter, at once or as soon as it waits. A slot that was filled before, or
            whose waiter was cancelled, is left alone.
        caller_deadline: the deadline of the running task's own cancel scopes, `math.inf` without one.
    """

    now: Callable[[], float]
    slot: Callable[[], Slot]
    fill: Callable[[Any], None]
    caller_deadline: Callable[[], float]

    @abstractmethod
    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` on the loop, after the current step has ended."""

    @abstractmethod
    async def wait_until(self, slot: Slot, when: float) -> None:
        """Wait until `slot` is filled, at the latest until `when`, on the loop's clock; ends it for good."""

    @abstractmethod
    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """Run `callback` on the loop soon; from any thread. Nothing happens once the loop has ended."""


def current_loop() -> Loop:
    """Return the seam for the running event loop."""
    token = current_token()
    backend = token.backend_class.__module__.rpartition("_")[2]
    loop: Loop = import_module(f"{__package__}._{backend}").make()
    loop.caller_deadline = token.backend_class.current_effective_deadline
    return loop
