"""Where a module, its inputs and its results lie in the memory that host and DSP share.

The firmware of version 2 knows fixed addresses: the module at the carveout's base, results 480 MiB behind
it. Version 3 is told where inputs and results are. Syncing caches costs by the whole buffer (TI measured
77 us per MiB on a BeagleY-AI), so each purpose gets a buffer of its own, just large enough. For version 2
that works only where the kernel places buffers one behind the other; `Dsp.allocate` tells the address, and
where it is another than the firmware's, one buffer of 512 MiB takes the place of all.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, final

from repertory.models.errors import ArtifactError, DeviceBusy, DeviceLost

from .dsp import Dsp
from .memory import PAGE, Buffer, Window, aligned

__all__ = [
    "BASE",
    "CARVEOUT",
    "PRINTF",
    "RESULT",
    "RESULT_SIZE",
    "SINGLE",
    "STAGING_SIZE",
    "Depth",
    "FixedWorkspace",
    "Need",
    "PurposeWorkspace",
    "Workspace",
]

BASE: Final = 0xC000_0000
"""Address of the carveout for the DSP."""

CARVEOUT: Final = 0x2000_0000
"""Bytes of it: 512 MiB."""

STAGING_SIZE: Final = 0x1D40_0000
"""Bytes for the module, and in version 2 for inputs behind it: 468 MiB."""

RESULT: Final = 0x1E00_0000
"""Offset of the results in version 2; staging and the KV cache lie before it."""

PRINTF: Final = 0x1_0000
"""Bytes for what a module prints: the last of the carveout in version 2, a buffer in version 3."""

RESULT_SIZE: Final = CARVEOUT - RESULT - PRINTF
"""Bytes for results in version 2, and for inputs and results together in version 3."""

_log = logging.getLogger("repertory.c7x")


@final
@dataclass(frozen=True, slots=True)
class Need:
    """What a module wants of the memory, in bytes.

    Attributes:
        module: the file.
        inputs: all inputs of one job, with the table of their descriptors.
        outputs: all outputs of one job, likewise.
    """

    module: int
    inputs: int
    outputs: int

    def paged(self) -> Need:
        """Round everything up to pages, at least one."""
        return Need(*(aligned(max(size, 1), PAGE) for size in (self.module, self.inputs, self.outputs)))

    def or_more(self, other: Need) -> Need:
        """Return what is enough for both."""
        module, inputs = max(self.module, other.module), max(self.inputs, other.inputs)
        return Need(module, inputs, max(self.outputs, other.outputs))


@final
class Depth(NamedTuple):
    """How many jobs have a place at once.

    Attributes:
        slots: jobs that may be staged, the outstanding ones included.
        areas: jobs that may be outstanding.
    """

    slots: int
    areas: int


SINGLE: Final = (Depth(1, 1),)
"""One job after the other."""


class Workspace(ABC):
    """The memory of one connection. It only grows, so models that swap back and forth move nothing.

    Attributes:
        depths: from the deepest to that which takes least memory.
        module: where the file goes.
        slots: where inputs of jobs go.
        areas: where results go.
        printf: where the module prints to, if the firmware must be told; else None.
        split: whether each purpose has a buffer of its own, so that little is synced.

    Args:
        dsp: gives the memory.
        depths: of which the first is taken for which there is room.
    """

    depths: ClassVar[tuple[Depth, ...]]

    def __init__(self, dsp: Dsp, depths: Sequence[Depth]) -> None:
        self.module: Window
        self.slots: tuple[Window, ...] = ()
        self.areas: tuple[Window, ...] = ()
        self.printf: Window | None = None
        self.split = True
        self._dsp = dsp
        self._depths = depths
        self._taken: tuple[Need, Depth] = Need(0, 0, 0), depths[0]
        self._buffers: list[Buffer] = []
        self._lasting: list[Buffer] = []

    def excess(self, need: Need) -> str:
        """Say what does not fit, at any depth; empty where all does."""
        return self._excess(need.paged(), self._depths[-1])

    def arrange(self, need: Need) -> None:
        """Make room, while nothing is loaded and nothing in flight.

        Raises:
            ArtifactError: it does not fit; what was there stays.
            DeviceBusy: the carveout is not free.
            DeviceLost: the memory is not where the firmware expects it.
        """
        if excess := self.excess(need):
            raise ArtifactError(excess)
        before, _ = self._taken
        own = need.paged()
        grown = [(own.or_more(before), self._depths[0])]
        wanted = next(
            (wish, depth)
            for wish, depth in (*grown, *((own, depth) for depth in self._depths))
            if not self._excess(wish, depth)
        )
        if self.slots and wanted == self._taken:
            return
        self._release()
        try:
            self._take(*wanted)
        except BaseException:
            self._release()
            raise
        self._taken = wanted

    def surrender(self) -> list[Buffer]:
        """Hand all memory over to whoever closes it later."""
        buffers = [*self._buffers, *self._lasting]
        self._buffers.clear()
        self._lasting.clear()
        self._release()
        return buffers

    def close(self) -> None:
        """Give everything back. Any number of times."""
        for buffer in self.surrender():
            buffer.close()

    @abstractmethod
    def _excess(self, need: Need, depth: Depth) -> str:
        """Say what does not fit; empty where all does."""

    @abstractmethod
    def _take(self, need: Need, depth: Depth) -> None:
        """Take the memory, with nothing taken before."""

    def _whole(self) -> Window:
        """Take all memory in one buffer, where the kernel places several otherwise than is wanted."""
        (whole,) = self._allocate(CARVEOUT)
        if whole.address != BASE:
            raise DeviceLost(
                f"{self._dsp.name}: its carveout is at {whole.address:#x} for the DSP, the firmware expects"
                f" {BASE:#x}",
                family="c7x",
            )
        if self.split:
            self.split = False
            _log.warning(
                "%s: buffers do not lie where the firmware expects them: one of 512 MiB is used instead,"
                " and every sync costs by its whole size",
                self._dsp.name,
            )
        return whole

    def _allocate(self, *sizes: int) -> list[Window]:
        """Take buffers, whole windows of each."""
        windows: list[Window] = []
        for size in sizes:
            buffer = self._dsp.allocate(size)
            self._buffers.append(buffer)
            windows.append(Window(buffer, 0, size))
        return windows

    def _release(self) -> None:
        self.slots = self.areas = ()
        for buffer in self._buffers:
            buffer.close()
        self._buffers.clear()


@final
class FixedWorkspace(Workspace):
    """Version 2: module and inputs in staging, one result, always at the same place."""

    depths = Depth(2, 1), Depth(1, 1)

    def _excess(self, need: Need, depth: Depth) -> str:
        staged = need.module + depth.slots * need.inputs
        if staged > STAGING_SIZE:
            return (
                f"{need.module} bytes of module and {_times(depth.slots)}{need.inputs} of inputs do not fit"
                f" into {STAGING_SIZE} of staging"
            )
        if need.outputs > RESULT_SIZE:
            return f"{need.outputs} bytes of outputs do not fit into {RESULT_SIZE} for the result"
        return ""

    def _take(self, need: Need, depth: Depth) -> None:
        sizes = [need.module, *[need.inputs] * depth.slots]
        sizes += [RESULT - sum(sizes), need.outputs]
        sizes += [CARVEOUT - sum(sizes)]
        windows = self._in_a_row(sizes) if self.split else []
        self.module, *slots, _, area, _ = windows or _cut(self._whole(), sizes)
        self.slots, self.areas = tuple(slots), (area,)

    def _in_a_row(self, sizes: Sequence[int]) -> list[Window]:
        """Take buffers that adjoin from the base on; none where the kernel places them otherwise."""
        try:
            windows = self._allocate(*sizes)
        except DeviceBusy:  # it may leave gaps
            windows = []
        if windows and _adjoining(windows):
            return windows
        self._release()
        return []


@final
class PurposeWorkspace(Workspace):
    """Version 3: the module where staging is, and each slot and area wherever it comes to lie."""

    depths = Depth(3, 2), Depth(2, 2), Depth(2, 1), Depth(1, 1)

    def __init__(self, dsp: Dsp, depths: Sequence[Depth]) -> None:
        super().__init__(dsp, depths)
        self._single: Window | None = None
        try:
            self._settle_in()
        except BaseException:
            self._release()
            raise

    def _settle_in(self) -> None:
        """Take what stays: staging first, or what follows would lie where the module must be."""
        staging, self.printf = self._allocate(RESULT, PRINTF)
        if staging.address != BASE:
            self._release()
            self._single = self._whole()
            self.printf = self._single.part(RESULT, PRINTF)
        self._lasting.append(self._buffers.pop())

    def _excess(self, need: Need, depth: Depth) -> str:
        if need.module > STAGING_SIZE:
            return f"{need.module} bytes of module do not fit into {STAGING_SIZE} of staging"
        if depth.slots * need.inputs + depth.areas * need.outputs > RESULT_SIZE:
            return (
                f"{_times(depth.slots)}{need.inputs} bytes of inputs and {_times(depth.areas)}{need.outputs}"
                f" of outputs do not fit into {RESULT_SIZE}"
            )
        return ""

    def _take(self, need: Need, depth: Depth) -> None:
        sizes = [need.inputs] * depth.slots + [need.outputs] * depth.areas
        if self._single is None:
            self.module, _, *places = self._allocate(need.module, RESULT - need.module, *sizes)
        else:
            self.module = self._single.part(0, need.module)
            places = list(_cut(self._single.part(RESULT + PRINTF, RESULT_SIZE), sizes))
        if self.module.address != BASE:
            raise DeviceLost(
                f"{self._dsp.name}: staging has moved to {self.module.address:#x} for the DSP", family="c7x"
            )
        self.slots, self.areas = tuple(places[: depth.slots]), tuple(places[depth.slots :])


def _times(count: int) -> str:
    return "" if count == 1 else f"{count} times "


def _adjoining(windows: Iterable[Window]) -> bool:
    """Whether windows lie one behind the other from the base on."""
    at = BASE
    for window in windows:
        if window.address != at:
            return False
        at += window.size
    return True


def _cut(whole: Window, sizes: Sequence[int]) -> Iterable[Window]:
    at = 0
    for size in sizes:
        yield whole.part(at, size)
        at += size
