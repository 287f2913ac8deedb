"""Ctrl-C waits until a call is through: a handle that a call has given must not be lost on its way here."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType, TracebackType
from typing import Any, TypeAlias, TypeVar, final

from repertory.transports.world import drive

__all__ = ["Uninterrupted", "uninterrupted"]

T = TypeVar("T")

_Handler: TypeAlias = Callable[[int, FrameType | None], Any]


@final
class Uninterrupted:
    """A block that a first SIGINT does not end: it is handled after the block, a second one at once.

    Only in the main thread, which is where Python handles signals; elsewhere nothing is to be done.
    """

    def __init__(self) -> None:
        self._handler: _Handler | None = None
        self._noted = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            self._handler = handler
            signal.signal(signal.SIGINT, self._note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (handler := self._handler) is not None:
            signal.signal(signal.SIGINT, handler)
            if self._noted:
                handler(signal.SIGINT, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        again, self._noted = self._noted, True
        if again and self._handler is not None:
            self._noted = False  # it is told now
            self._handler(number, frame)


def uninterrupted(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run driver code to its end in this thread, and let Ctrl-C wait for that."""
    with Uninterrupted():
        return drive(coroutine)
