"""Ctrl-C on the command line: the first closes in order, the second leaves at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final, TypeVar, TypeVarTuple

import anyio

__all__ = ["INTERRUPTED", "served"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

INTERRUPTED: Final = 130
"""Exit code after a Ctrl-C."""

_LINE: Final = "\r\x1b[K\x1b[?25h"  # a terminal's: without the progress bar, and with its cursor


def served(command: str, work: Callable[[*Ts], Awaitable[T]], *arguments: *Ts) -> T:
    """Run the work of a command in an event loop of its own.

    Raises:
        KeyboardInterrupt: after one Ctrl-C, when all is closed. A second one ends the process at once, with
            one line on stderr and the exit code `INTERRUPTED`; what was open is left to the system.
    """

    async def main() -> T:
        with _left_at_the_second(command):
            return await work(*arguments)

    return anyio.run(main)


@contextmanager
def _left_at_the_second(command: str) -> Generator[None]:
    """Let the loop hear the first Ctrl-C as it always does: by the handler that it has put there."""
    loops = signal.getsignal(signal.SIGINT)
    if not callable(loops) or threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = loops
    presses = 0

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            _leave(command)
        heard(number, frame)

    signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, heard)


def _leave(command: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start = _LINE if sys.stderr.isatty() else ""
    text = f"{start}repertory {command}: interrupted again, left without closing\n"
    os.write(2, text.encode())
    os._exit(INTERRUPTED)
