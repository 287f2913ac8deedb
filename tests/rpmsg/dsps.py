"""Simulated DSPs that a test can look into, under the runtime's own driver."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from repertory.models.dynmod import Dynmod
from repertory.models.program import Network
from repertory.transports.answers import hash_answer
from repertory.transports.device import Device
from repertory.transports.rpmsg.device import C7xDevice
from repertory.transports.rpmsg.session import Ledger
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from repertory.transports.world import World
from tests.rpmsg.simulator.modules import double, square

__all__ = ["Board", "Floats", "answer", "module", "tensor"]

Floats = NDArray[np.float32]


@final
class Board:
    """One DSP as a device source for `open_runtime`; what it is outlives incarnations.

    Args:
        params: what it is like.
        run_bound: see `C7xDevice`.
        prepare: is called with the DSP when it is there.
    """

    def __init__(
        self,
        params: SimulatedC7x,
        *,
        run_bound: float = 1.0,
        prepare: Callable[[SimulatedDsp], None] = lambda _: None,
    ) -> None:
        self.incarnations = 0
        self.ledger = Ledger()
        self._params = params
        self._run_bound = run_bound
        self._prepare = prepare
        self._dsp: SimulatedDsp | None = None

    @property
    def dsp(self) -> SimulatedDsp:
        """The DSP; there is one once the runtime was opened."""
        assert self._dsp is not None
        return self._dsp

    def source(self, name: str = "dsp 0") -> Callable[[World], Device]:
        """Return it as a group of that name."""

        def make(world: World) -> Device:
            if self._dsp is None:
                self._dsp = SimulatedDsp(self._params, world)
                self._prepare(self._dsp)
            dsp = self._dsp
            self.incarnations += 1
            return C7xDevice(
                world,
                lambda: dsp,
                name=name,
                simulated=True,
                ledger=self.ledger,
                run_bound=self._run_bound,
            )

        make.__name__ = name
        return make


@cache
def module(name: str = "double") -> bytes:
    """Return a module of one input and one output of four floats."""
    return {"double": double, "square": square}[name]()


@cache
def _network(name: str) -> Network:
    network = Dynmod.read(module(name)).network
    assert network is not None
    return network


def tensor(number: int) -> Floats:
    """Return an input that no other number below 2**24 has."""
    return np.full((1, 4), number, np.float32)


def answer(number: int, name: str = "double") -> bytes:
    """Return what a DSP with hash answers must say to that input."""
    return hash_answer(_network(name), [tensor(number)])[0].tobytes()
