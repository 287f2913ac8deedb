"""What the firmware holds: modules, weights, and its globals of which there is only one each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, final

from .module import Module

__all__ = ["MAX_MODELS", "MAX_MODULES", "Loaded", "Slots"]

MAX_MODULES: Final = 4
MAX_MODELS: Final = 4


@final
@dataclass(slots=True, eq=False)
class Loaded:
    """A module in a slot.

    Attributes:
        hollow: whether another's unload has reset the pools that its code lies in.
    """

    handle: int
    module: Module
    hollow: bool = False


@final
@dataclass(slots=True)
class Slots:
    """Handles count from 1 and are never used again.

    Attributes:
        heap: bytes of the DSP's own heap.
        used: bytes of it that modules took; any unload gives back all.
        modules: by handle.
        models: ids of weights that were loaded apart.
        entry: what an INFER runs, whatever handle it names: the module that was loaded last.
    """

    heap: int
    used: int = 0
    modules: dict[int, Loaded] = field(default_factory=dict[int, Loaded])
    models: dict[int, int] = field(default_factory=dict[int, int])
    entry: Loaded | None = None
    last_handle: int = 0
    last_model: int = 0

    def lacking(self, workspace: int) -> tuple[int, int, int] | None:
        """Return what the heap lacks for that many bytes more: requested, free, total."""
        free = self.heap - self.used
        return (workspace, free, self.heap) if workspace > free else None

    def load(self, module: Module, workspace: int) -> int:
        """Take a slot, and the globals; return the handle."""
        self.last_handle += 1
        self.entry = self.modules[self.last_handle] = Loaded(self.last_handle, module)
        self.used += workspace
        return self.last_handle

    def load_weights(self, constants: int) -> int:
        """Take a slot for weights; return the id."""
        self.last_model += 1
        self.models[self.last_model] = constants
        return self.last_model

    def unload(self, handle: int) -> bool:
        """Free a module's slot, and with it the memory of all."""
        gone = self.modules.pop(handle, None)
        if gone is None:
            return False
        if gone is self.entry:
            self.entry = None
        self._reset_pools()
        return True

    def unload_weights(self, model: int) -> bool:
        """Free the slot of weights, and with it the memory of all."""
        if self.models.pop(model, None) is None:
            return False
        self._reset_pools()
        return True

    def _reset_pools(self) -> None:
        self.used = 0
        for loaded in self.modules.values():
            loaded.hollow = True
