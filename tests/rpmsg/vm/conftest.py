from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from repertory import C7xVirtualMachine
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp

from .support import KINDS, simulated, write

Make = Callable[..., C7xVirtualMachine]
few = pytest.mark.parametrize("dsp", ["v2", "v3 incoherent"], indirect=True)


@pytest.fixture(params=KINDS)
def dsp(request: pytest.FixtureRequest) -> Iterator[SimulatedDsp]:
    """A DSP of each kind, which must have nothing to complain of."""
    made = simulated(request.param)
    yield made
    assert made.firmware.faults == []
    assert made.leaks == []


@pytest.fixture
def make(dsp: SimulatedDsp, tmp_path: Path) -> Iterator[Make]:
    """Make machines with a module's bytes on that DSP."""
    made: list[C7xVirtualMachine] = []

    def make(data: bytes, **options: object) -> C7xVirtualMachine:
        path = write(tmp_path, data, f"lib{len(made)}.out")
        build = partial(C7xVirtualMachine, path)
        made.append(build(**{"address": lambda: dsp, **options}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for vm in made:
        vm.close()
