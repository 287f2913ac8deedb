"""Views of memory that is unmapped one day: nobody may look at it then, for that ends the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import final
from weakref import ReferenceType, ref

import numpy as np

from repertory.models.spec import Array

__all__ = ["Views"]


@final
class Views:
    """All views of one mapping.

    Args:
        memory: returns all of its bytes, writable; called when somebody first looks.
    """

    def __init__(self, memory: Callable[[], memoryview]) -> None:
        self._memory = memory
        self._array: Array | None = None  # what each view looks at, and whatever is made of a view keeps
        self._given: list[ReferenceType[memoryview]] = []

    def take(self, offset: int, size: int) -> memoryview:
        """Return a stretch of the bytes, until `revoke`; it lies within them."""
        if self._array is None:
            self._array = np.frombuffer(self._memory(), np.uint8)
        view = self._array.data[offset : offset + size]
        self._given = [*(each for each in self._given if each() is not None), ref(view)]
        return view

    def revoke(self) -> None:
        """Take all of them back: who uses one then gets a ValueError.

        Parts and arrays that were made of one cannot be taken back.

        Raises:
            BufferError: there are such; the memory must stay mapped.
        """
        for each in self._given:
            if (view := each()) is not None:
                view.release()
                del view
        self._given.clear()
        looked = ref(self._array) if self._array is not None else _nobody
        self._array = None
        self._array = looked()  # no name of ours may hold it: who catches the error would then look too
        if self._array is not None:
            raise BufferError("parts of it, or arrays on it, are still there")


def _nobody() -> None:
    return None
