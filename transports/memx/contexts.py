"""The 32 model contexts of a process, which every device over one libmemx shares."""

from __future__ import annotations

from typing import ClassVar, Self, final
from weakref import WeakKeyDictionary

from repertory.models.errors import DeviceError

from .constants import CONTEXTS
from .library import Libmemx

__all__ = ["ContextTable"]


@final
class ContextTable:
    """Which model ids are in use, and which was downloaded to last.

    libmemx 2.11.2 takes a second download to the id that was downloaded to last for done already, and does
    nothing: whoever downloads looks here first.

    Attributes:
        last_download: that id, or None.
        locked: groups whose lock a device of this process has taken and not given back.
    """

    _tables: ClassVar[WeakKeyDictionary[Libmemx, Self]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._free = list(range(CONTEXTS - 1, -1, -1))
        self.last_download: int | None = None
        self.locked: set[int] = set()

    @classmethod
    def of(cls, library: Libmemx) -> ContextTable:
        """Return the table of this library."""
        return cls._tables.setdefault(library, cls())

    @property
    def full(self) -> bool:
        """Whether no id is free."""
        return not self._free

    def take(self) -> int:
        """Return a free model id.

        Raises:
            DeviceError: all of them are in use.
        """
        if not self._free:
            raise DeviceError(f"all {CONTEXTS} model contexts of this process are in use", family="memx")
        return self._free.pop()

    def give_back(self, model_id: int) -> None:
        """Note that an id's context is closed."""
        self._free.append(model_id)
        self.last_download = None
