"""The queue of one flow."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar, final

__all__ = ["Ring"]

T = TypeVar("T")


@final
class Ring(Generic[T]):
    """A queue of one flow: `size` slots hold size - 1 frames.

    Attributes:
        full: whether the next frame must wait.
        empty: whether there is none.
        popped: how many were taken so far.
    """

    __slots__ = ("_frames", "_limit", "empty", "full", "popped")

    def __init__(self, size: int) -> None:
        self._limit = size - 1
        self._frames: deque[T] = deque()
        self.empty = True
        self.full = self._limit < 1
        self.popped = 0

    def push(self, frame: T) -> None:
        """Add the newest; only a buffer that was lent may come into a full ring."""
        self._frames.append(frame)
        self.empty = False
        self.full = len(self._frames) >= self._limit

    def pop(self) -> T:
        """Take the oldest; the ring is not empty."""
        frame = self._frames.popleft()
        self.full = len(self._frames) >= self._limit
        self.empty = not self._frames
        self.popped += 1
        return frame

    def narrow(self, places: int) -> None:
        """Take so many places away, or give them back if negative: buffers on loan lie there."""
        self._limit -= places
        self.full = len(self._frames) >= self._limit

    def peek(self) -> T | None:
        """Return the oldest, or None."""
        return None if self.empty else self._frames[0]

    def __len__(self) -> int:
        return len(self._frames)
