"""What waits in all models of a runtime together, and how much of it there may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

from repertory.models.spec import TensorSpec

from .limits import check_holds_one

__all__ = ["Intake"]


@final
class Intake:
    """Sums over backlogs, kept by them; and the callers' lines that a place in any of them may move.

    Frames that come back from a device that did not run them are counted above the bounds, and so is what
    waited when a bound was lowered.

    Attributes:
        queue: frames that may wait; `math.inf` for no bound but that of each model.
        queue_bytes: bytes of their inputs; likewise.
        count: frames that wait.
        nbytes: bytes of their inputs.
    """

    __slots__ = ("_lines", "count", "nbytes", "queue", "queue_bytes")

    def __init__(self, queue: float = math.inf, queue_bytes: float = math.inf) -> None:
        self.queue = queue
        self.queue_bytes = queue_bytes
        self.count = 0
        self.nbytes = 0
        self._lines: dict[Callable[[], None], None] = {}

    def full(self, nbytes: int) -> bool:
        """Whether one more frame of that many bytes is too much now."""
        return self.count >= self.queue or self.nbytes + nbytes > self.queue_bytes

    def full_without(self, count: int, held: int, nbytes: int) -> bool:
        """Whether it would be too much even after so many frames of `held` bytes had left."""
        return self.count - count >= self.queue or self.nbytes - held + nbytes > self.queue_bytes

    def check_request(self, name: str, inputs: Sequence[TensorSpec]) -> None:
        """Check that one request of a model may wait, where its size is known.

        Raises:
            ConfigError: names both numbers.
        """
        check_holds_one(name, f"queue_bytes {self.queue_bytes} of the runtime", self.queue_bytes, inputs)

    def add(self, nbytes: int) -> None:
        """A frame waits."""
        self.count += 1
        self.nbytes += nbytes

    def remove(self, nbytes: int) -> None:
        """A frame waits no more: each line may move, that first whose last move is longest ago."""
        self.count -= 1
        self.nbytes -= nbytes
        for move in self._lines:
            move()

    def line_up(self, move: Callable[[], None]) -> None:
        """Have a line told, behind the others, whenever a place becomes free."""
        self._lines.pop(move, None)
        self._lines[move] = None

    def leave(self, move: Callable[[], None]) -> None:
        """Tell a line no more."""
        self._lines.pop(move, None)
