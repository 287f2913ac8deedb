"""The device that does nothing, at once: the smallest correct one, and the floor of every measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from repertory.models.errors import ContractError
from repertory.models.program import Artifact, Program
from repertory.models.spec import Array, TensorSpec

from .device import Capabilities, Completed, Completion, Device, Fault, Health, Residency
from .flight import Flight
from .frame import Fate, Frame
from .sketched import check_sketched, prepare_sketch
from .world import Outbox, World

__all__ = ["NullDevice"]


@final
class NullDevice(Device):
    """Answers every frame with zeros, in the event loop's next step.

    It loads sketches. All answers of a network share their arrays, which are read-only.
    """

    def __init__(self, world: World, *, window: int = 1024) -> None:
        self._world = world
        self._window = window
        self._zeros: dict[str, tuple[Array, ...]] = {}
        self._flight = Flight("null")
        self._outbox: Outbox[Frame]

    async def open(self, completed: Completed, fault: Fault) -> None:
        self._flight.open(completed, fault)
        self._outbox = Outbox(self._world.loop.call_soon, self._answer)
        self.capabilities = Capabilities(
            "null", simulated=True, window=self._window, residents=1, probe_needs_idle=False
        )

    def prepare(self, artifact: Artifact) -> Program:
        return prepare_sketch(artifact)

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        self._flight.check()
        self._flight.evict(evict)
        if program is None:
            return None
        if self._flight.residents:
            raise ContractError(f"{program.name} does not fit beside what is resident")
        check_sketched(program)
        self._zeros = {network.name: _zeros(network.outputs) for network in program.networks}
        return self._flight.settle_in(Residency(program, self._window))

    def start(self, frame: Frame) -> None:
        self._flight.start(frame)
        self._outbox.put(frame)

    def abandon(self, frame: Frame) -> None:
        pass

    async def probe(self) -> Health:
        self._flight.check()
        return Health(well=True)

    async def close(self, *, bound: float) -> None:
        self._flight.close()

    def _answer(self, frames: list[Frame]) -> None:
        zeros = self._zeros
        self._flight.complete([Completion(f, Fate.DONE, zeros[f.network.name]) for f in frames])


def _zeros(specs: Sequence[TensorSpec]) -> tuple[Array, ...]:
    arrays = tuple(np.zeros([d for d in spec.shape if isinstance(d, int)], spec.dtype) for spec in specs)
    for array in arrays:
        array.flags.writeable = False
    return arrays
