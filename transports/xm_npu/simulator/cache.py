"""Memory as the host's cache shows it, and as the NPU sees it: lines of 64 bytes.

A host that reads and writes through plain memory cannot be watched, so the cache is as unkind as hardware can
be. What the host writes stays in its cache until it is flushed. A line that the host may have touched is
taken as held by the cache, and hides what the NPU writes under it. Only a line that was flushed, and not
written since, shows what the NPU writes next; it counts as touched from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from repertory.models.spec import Array

__all__ = ["LINE", "Cached", "Flushed", "lines"]

LINE: Final = 64
"""Bytes of a line of the cache."""


_NONE, _NEW, _FLUSHED = range(3)


@final
@dataclass(frozen=True, slots=True)
class Flushed:
    """What a flush did to results that an NPU had written; each in lines.

    Attributes:
        overwritten: what the host had written there took their place.
        hidden: the host could not see them before, for its cache held other bytes.
        again: they had been flushed before, so that once was after the run and not just before the next.
    """

    overwritten: int = 0
    hidden: int = 0
    again: int = 0


def lines(start: int, size: int) -> slice:
    """Return the lines that a stretch lies in."""
    return slice(start // LINE, -(-(start + size) // LINE))


@final
class Cached:
    """A cached mapping of a block.

    Args:
        memory: what the NPU sees, uint8[lines * 64].
        view: likewise for what the host sees; is filled.
    """

    def __init__(self, memory: Array, view: Array) -> None:
        view[:] = memory
        self._memory = memory.reshape(-1, LINE)
        self._view = view.reshape(-1, LINE)
        self._shadow = self._memory.copy()
        self._held = np.ones(len(self._memory), np.bool_)
        self._touched = np.zeros(len(self._memory), np.bool_)  # since the run that has ended
        self._results = np.zeros(len(self._memory), np.uint8)

    def flush(self, start: int, size: int) -> Flushed:
        """Write back what the host wrote, and drop the lines."""
        at = lines(start, size)
        memory, view, results = self._memory[at], self._view[at], self._results[at]
        dirty, new = self._dirty(at), results == _NEW
        stale = (view != memory).any(axis=1)
        flushed = Flushed(_count(dirty & new), _count(~dirty & new & stale), _count(results == _FLUSHED))
        memory[dirty] = view[dirty]
        view[:] = memory
        self._shadow[at] = memory
        self._held[at] = self._touched[at] = False
        results[new] = _FLUSHED
        return flushed

    def run_begins(self, start: int, size: int) -> None:
        """Forget the results of the last run: a flush is right from now on, and was right just before."""
        at = lines(start, size)
        self._results[at] = _NONE
        self._held[at] |= self._touched[at]
        self._touched[at] = False

    def device_wrote(self, start: int, size: int, *, results: bool = False) -> None:
        """Let the host see what the NPU has written, where its cache holds nothing."""
        at = lines(start, size)
        memory, view, held = self._memory[at], self._view[at], self._held[at]
        held |= self._dirty(at)
        view[~held] = memory[~held]
        self._shadow[at][~held] = memory[~held]
        self._touched[at] = True
        if results:
            self._results[at] = _NEW

    def _dirty(self, at: slice) -> Array:
        dirty: Array = (self._view[at] != self._shadow[at]).any(axis=1)
        return dirty


def _count(chosen: Array) -> int:
    return int(np.count_nonzero(chosen))
