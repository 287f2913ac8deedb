"""A piece of work of the firmware's one task."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, final

__all__ = ["Answer", "Work"]

Answer: TypeAlias = "bytes | Work"
"""What a request leads to: a reply at once, or work that takes time."""


@final
class Work:
    """Takes some time, then has its effects and its reply.

    Args:
        seconds: that it takes.
        finish: called when they are over; makes the reply.
        compute: called once in between, at no particular time and from any thread: what costs the host
            time, and touches nothing that others see.

    Attributes:
        ready: whether `compute` was called, or there was nothing to.
        claimed: whether somebody does so.
    """

    __slots__ = ("_compute", "claimed", "finish", "ready", "seconds")

    def __init__(
        self, seconds: float, finish: Callable[[], bytes], compute: Callable[[], None] | None = None
    ) -> None:
        self.seconds = seconds
        self.finish = finish
        self.ready = self.claimed = compute is None
        self._compute = compute

    def run(self) -> None:
        """Compute."""
        if self._compute is not None:
            self._compute()
        self.ready = True
