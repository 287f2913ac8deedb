"""Ctrl-C on the command line: the first closes in order, the second leaves at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from itertools import count
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
    heard, presses = loops, count(1)

    def press(number: int, frame: FrameType | None) -> None:
        match next(presses):  # at once: a press may come while another is handled
            case 1:
                heard(number, frame)
            case 2:
                _leave(command)
            case _:
                pass

    signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, heard)


def _leave(command: str) -> None:
    start = _LINE if sys.stderr.isatty() else ""
    text = f"{start}repertory {command}: interrupted again, left without closing\n"
    os.write(2, text.encode())
    os._exit(INTERRUPTED)
