"""A simulated board, as it stands on a table: whoever uses it comes and goes."""

from __future__ import annotations

from typing import final

from repertory.transports.world import World

from .core import Core
from .faults import Faults
from .kernel import SimulatedKernel
from .library import SimulatedXmediaCl
from .machine import NpuMachine
from .memory import Mmz
from .parameters import SimulatedNpu

__all__ = ["Board"]


@final
class Board:
    """One NPU with its memory. Outlives those who open it.

    Args:
        world: real or virtual; entered.
        params: what it is like.

    Attributes:
        switches: faults to come.
        faults: what hosts did wrong and no status told; a list that tests want empty.
        machine: state behind it.
    """

    def __init__(self, world: World, params: SimulatedNpu | None = None) -> None:
        self.machine = NpuMachine(world, SimulatedNpu() if params is None else params)
        self.switches: Faults = self.machine.switches
        self.faults: list[str] = self.machine.notes
        self._kernels: list[SimulatedKernel] = []
        self._libraries: list[SimulatedXmediaCl] = []

    @property
    def params(self) -> SimulatedNpu:
        """What it is like."""
        return self.machine.params

    @property
    def core(self) -> Core:
        """The NPU, brought up to the present."""
        self.machine.call(lambda _now: None)
        return self.machine.core

    @property
    def mmz(self) -> Mmz:
        """Its memory."""
        return self.machine.mmz

    @property
    def deepest(self) -> int:
        """The most jobs that were with the driver at a time."""
        return self.machine.core.unit.deepest

    def used(self) -> int:
        """Return how many bytes of memory are out."""
        with self.machine.condition:
            return self.mmz.used

    def recover(self) -> None:
        """Let an NPU that has vanished be there again."""

        def back(_now: float) -> None:
            self.machine.core.gone = False

        self.machine.call(back)

    def kernel(self) -> SimulatedKernel:
        """Return the system calls of a new process."""
        kernel = SimulatedKernel(self.machine)
        self._kernels.append(kernel)
        return kernel

    def library(self) -> SimulatedXmediaCl:
        """Return the library in a new process."""
        library = SimulatedXmediaCl(self.machine)
        self._libraries.append(library)
        return library

    def end_processes(self) -> None:
        """Kill the processes that have used it: what a client that hangs cannot give back is taken."""
        for kernel in self._kernels:
            kernel.die()
        for library in self._libraries:
            library.die()
        self._kernels.clear()
        self._libraries.clear()

    def leaks(self) -> list[str]:
        """Return what was not given back, in words: blocks, descriptors, and what the library counts."""
        with self.machine.condition:
            names = ("descriptors of the NPU", "opens", "queues")
            counts = [f"{n} {name}" for n, name in zip(self.machine.core.counts, names, strict=True) if n]
            blocks = [f"block {block!r}" for block in self.mmz.blocks.values()]
            descriptors = [f"{n} descriptors" for kernel in self._kernels if (n := kernel.descriptors)]
            held = [what for library in self._libraries for what in library.held]
            return [*self.mmz.leaked, *blocks, *counts, *descriptors, *held]
