"""Completions in the order of starting, for each network."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import final

from repertory.transports.device import Completion
from repertory.transports.frame import Frame

__all__ = ["Lineup"]


@final
class Lineup:
    """Holds back the completion of a frame until those before it have theirs.

    A frame whose caller has gone is not sent to the child, and so would overtake those that were.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], deque[Frame]] = {}
        self._early: dict[Frame, Completion] = {}

    def add(self, frame: Frame) -> None:
        """A frame is started."""
        self._lines.setdefault(_line(frame), deque()).append(frame)

    def ready(self, completions: Iterable[Completion]) -> Iterator[Completion]:
        """Yield what may be told, given that these came."""
        for completion in completions:
            line = self._lines[_line(completion.frame)]
            self._early[completion.frame] = completion
            while line and line[0] in self._early:
                yield self._early.pop(line.popleft())


def _line(frame: Frame) -> tuple[str, str]:
    return frame.program.key if frame.program is not None else "", frame.network.name
