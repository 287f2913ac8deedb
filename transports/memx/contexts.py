"""What a process keeps of its groups in the library: 32 model contexts, and whose weights lie where."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Self, final
from weakref import WeakKeyDictionary

from repertory.models.errors import DeviceError

from .constants import CONTEXTS
from .library import Libmemx

__all__ = ["Context", "ContextTable"]


@final
@dataclass(slots=True, eq=False)
class Context:
    """A model context: queues and worker threads in the library, bound to one group at a time.

    Attributes:
        model_id: 0 to 31.
        program: key of the program that it is for.
        file: digest of the file that was downloaded to it, or empty.
        group: where it is bound, or None while it is not open.
        claimed: whether a group runs it, or is about to change it; nobody else touches it then.
    """

    model_id: int
    program: str
    file: str = ""
    group: int | None = None
    claimed: bool = True


@final
class ContextTable:
    """The contexts of one library, which all devices over it share; from any thread.

    Attributes:
        locked: groups whose lock a device of this process has taken and not given back.
        hung: groups with a call that never returned: nothing is to be called for them any more.
        weights: the file, by its digest, whose weights a group holds.
    """

    _tables: ClassVar[WeakKeyDictionary[Libmemx, Self]] = WeakKeyDictionary()
    _lookup: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.locked: set[int] = set()
        self.hung: set[int] = set()
        self.weights: dict[int, str] = {}
        self._guard = threading.Lock()
        self._free = list(range(CONTEXTS - 1, -1, -1))
        self._contexts: dict[int, Context] = {}  # the one that was claimed longest ago first
        self._downloading: set[int] = set()
        self._spoiled: set[int] = set()

    @classmethod
    def of(cls, library: Libmemx) -> ContextTable:
        """Return the table of this library."""
        with cls._lookup:
            return cls._tables.setdefault(library, cls())

    def claim(self, program: str, group: int) -> Context:
        """Return the context in which a program is to run on a group.

        That is the group's own; or an idle one of the program on another group, which is to be moved; or a
        new one; or where there are 32, the one that has been idle longest, whatever it was for.

        Raises:
            DeviceError: none is idle.
        """
        with self._guard:
            idle = [context for context in self._contexts.values() if not context.claimed]
            same = [context for context in idle if context.program == program]
            own = [context for context in same if context.group == group]
            if own or same:
                return self._claimed((own or same)[0])
            if self._free:
                return self._claimed(Context(self._free.pop(), program))
            if idle:
                return self._claimed(idle[0])
        raise DeviceError(f"all {CONTEXTS} model contexts of this process are in use", family="memx")

    def claim_idle(self, group: int, wanted: Callable[[str], bool]) -> list[Context]:
        """Claim the idle contexts of a group whose program is `wanted`, to close them."""
        with self._guard:
            found = [
                context
                for context in self._contexts.values()
                if context.group == group and not context.claimed and wanted(context.program)
            ]
            return [self._claimed(context) for context in found]

    def release(self, context: Context) -> None:
        """Note that a claimed context is closed: its number is free."""
        with self._guard:
            del self._contexts[context.model_id]
            self._free.append(context.model_id)

    def _claimed(self, context: Context) -> Context:
        context.claimed = True
        self._contexts.pop(context.model_id, None)
        self._contexts[context.model_id] = context
        return context

    def bound(self, context: Context, group: int | None) -> None:
        """Note that a claimed context was opened on a group, bound to one, or closed.

        Where it was bound before, it takes what it had loaded along, and the library remembers no download
        any more, but those that go on.
        """
        with self._guard:
            if context.group is not None:
                self._spoiled &= self._downloading
                if self.weights.get(context.group) == context.file:
                    del self.weights[context.group]
            context.group = group

    def configured(self, group: int) -> None:
        """Note that a group's chips were put together anew: they hold nothing, as far as we know."""
        with self._guard:
            self._spoiled &= self._downloading
            self.weights.pop(group, None)

    def spoiled(self, context: Context) -> bool:
        """Whether a download to this context might do nothing, and return 0.

        libmemx 2.11.2 takes a download to the id that was downloaded to last for done already. Groups
        download side by side, and which id it then remembers nobody knows: all that began since the last
        quiet moment count.
        """
        return context.model_id in self._spoiled

    @contextmanager
    def downloading(self, context: Context) -> Generator[None]:
        """Note that a download goes on in this block; it counts, however it ends."""
        with self._guard:
            if not self._downloading:
                self._spoiled.clear()
            self._downloading.add(context.model_id)
            self._spoiled.add(context.model_id)
        try:
            yield
        finally:
            with self._guard:
                self._downloading.discard(context.model_id)
