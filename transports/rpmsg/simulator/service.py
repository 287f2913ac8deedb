"""What the firmware does for each request but inference, from one boot to the next."""

from __future__ import annotations

from struct import Struct
from typing import Final, final

from .elf import NotLoadable, check_magic
from .memory import Carveout
from .memorymap import PRINTF, Region, staging
from .module import Module, Shelf
from .parameters import SimulatedC7x
from .protocol import Code, Replies, Request
from .slots import MAX_MODELS, MAX_MODULES, Slots
from .weights import NoWeights, count_constants
from .work import Answer, Work

__all__ = ["Service"]

_PRINTF_HEADER: Final = Struct("<4I")
_PRINTF_MAGIC: Final = 0x50524E54
_MIB: Final = 1 << 20


@final
class Service:
    """State of the firmware.

    Args:
        params: what it is like.
        carveout: memory that it shares with the host.
        shelf: modules that were read before.
        notes: takes what a host did wrong and no status tells.

    Attributes:
        slots: what is loaded.
        replies: builds them.
        staging: where modules are read from.
        completed: jobs that reached a module's entry point and came back well; `failed` those that did not.
    """

    def __init__(self, params: SimulatedC7x, carveout: Carveout, shelf: Shelf, notes: list[str]) -> None:
        self.params = params
        self.carveout = carveout
        self.notes = notes
        self.slots = Slots(params.heap_mb * _MIB)
        self.replies = Replies(params.wire)
        self.staging = staging(params.wire)
        self.completed = 0
        self.failed = 0
        self._shelf = shelf
        self._blank: Region | None = None
        self._printf = PRINTF if params.wire == 2 else None  # noqa: PLR2004

    @property
    def can_print(self) -> bool:
        """Whether there is a buffer for printed text, without which version 3 runs nothing."""
        return self._printf is not None

    def answer(self, kind: int, seq: int, words: tuple[int, ...], uptime_ms: int) -> Answer:
        """Do what a request asks."""
        if kind in {Request.PING, Request.GET_STATUS}:
            counts = () if kind == Request.PING else (self.completed, self.failed)
            return self.replies.words(kind, seq, self.params.reported, uptime_ms, *counts)
        if kind == Request.DYN_LOAD:
            return self._load(seq, words[0])
        if kind == Request.MODEL_LOAD:
            return self._load_weights(seq, words[0])
        if kind == Request.SET_PRINTF_BUF:
            return self.replies.status(kind, seq, self._set_printf(Region(words[0], words[1])))
        unload = self.slots.unload if kind == Request.DYN_UNLOAD else self.slots.unload_weights
        return self.replies.status(kind, seq, Code.OK if unload(words[0]) else Code.BAD_HANDLE)

    def visible(self, address: int, size: int, what: str) -> bool:
        """Whether memory is there, and note it where the DSP was not told of its buffer."""
        if not self.carveout.holds(address, size):
            return False
        if not self.carveout.attached(address, size):
            self.notes.append(f"{what}: {size} bytes at {address:#x} lie in no attached buffer")
        return True

    def print_text(self, text: str) -> int:
        """Write what a run prints; return how much of it fits."""
        buffer = self._printf
        if not text and buffer is self._blank:
            return 0
        self._blank = None if text else buffer
        if buffer is None or not self.visible(buffer.start, buffer.size, "printed text"):
            return 0
        room = buffer.size - _PRINTF_HEADER.size
        content = text.encode()[:room]
        head = _PRINTF_HEADER.pack(_PRINTF_MAGIC, len(content), room, 0)
        self.carveout.write(buffer.start, head + content)
        return len(content)

    def _load(self, seq: int, size: int) -> Answer:
        """Refuse at once, or load: the file is read as the load begins."""
        if not self.can_print:
            return self.replies.status(Request.DYN_LOAD, seq, Code.BAD_REQUEST)
        if not 0 < size <= self.staging.size:
            return self.replies.not_loaded(seq, Code.BAD_SIZE)
        module = self._staged(size) if len(self.slots.modules) < MAX_MODULES else None
        if module is None:
            return self.replies.not_loaded(seq, Code.LOAD_FAILED)
        workspace = self.params.workspace_mb * _MIB
        if (lacking := self.slots.lacking(workspace)) is not None:
            return self.replies.not_loaded(seq, Code.OUT_OF_MEMORY, lacking)
        return Work(self.params.load_seconds(size), lambda: self._loaded(seq, module, workspace))

    def _staged(self, size: int) -> Module | None:
        """Read the module in staging; None where the loader refuses it."""
        if not self.visible(self.staging.start, size, "module"):
            return None
        try:
            check_magic(self.carveout.read(self.staging.start, min(size, 4)))  # before reading it all
            return self._shelf.module(self.carveout.read(self.staging.start, size))
        except NotLoadable as refusal:
            self.notes.append(f"module refused: {refusal}")
            return None

    def _loaded(self, seq: int, module: Module, workspace: int) -> bytes:
        return self.replies.loaded(seq, self.slots.load(module, workspace), module.meta)

    def _load_weights(self, seq: int, size: int) -> Answer:
        if not 0 < size <= self.staging.size:
            return self.replies.no_weights(seq, Code.BAD_SIZE)
        if len(self.slots.models) >= MAX_MODELS or not self.visible(self.staging.start, size, "weights"):
            return self.replies.no_weights(seq, Code.BAD_WEIGHTS)
        try:
            constants = count_constants(self.carveout.read(self.staging.start, size))
        except NoWeights as refusal:
            self.notes.append(f"weights refused: {refusal}")
            return self.replies.no_weights(seq, Code.BAD_WEIGHTS)

        def finish() -> bytes:
            return self.replies.weights(seq, self.slots.load_weights(constants), constants)

        return Work(self.params.load_seconds(size), finish)

    def _set_printf(self, buffer: Region) -> int:
        if buffer.size <= _PRINTF_HEADER.size:
            return Code.BAD_SIZE
        if not self.visible(buffer.start, buffer.size, "buffer for printed text"):
            return Code.BAD_ADDRESS
        self._printf = buffer
        return Code.OK
