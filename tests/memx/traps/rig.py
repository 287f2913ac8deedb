"""What the tests of traps share: small files, a device driven by hand, and a library driven with no guard."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, final

import numpy as np
import pytest

from repertory.models.program import Artifact, Program
from repertory.transports.frame import Frame
from repertory.transports.memx.constants import CHIP_GENERATION, DownloadType, Status
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.profile import PROFILES, Trap
from repertory.transports.trial import Subject, Trial
from repertory.transports.world import World
from tests.integration.support import Machine, expected, image
from tests.memx.files import Net, dfp

__all__ = [
    "CHIPS",
    "EVER",
    "LATENCY",
    "WHOLE",
    "A",
    "B",
    "Watch",
    "check",
    "compat",
    "content",
    "loaded",
    "meets",
    "naked",
    "prepared",
    "read",
    "right",
    "trial",
    "write",
]

LATENCY = 0.010
"""Seconds that the networks here take, where a test has no others."""

A, B = (Net(name, seed=seed, outputs=1, latency=LATENCY) for seed, name in enumerate("ab"))

CHIPS = 2
"""Of the files and the groups here, where a test has no others."""

WHOLE = DownloadType.WEIGHTS_AND_MODEL | DownloadType.FROM_BUFFER

EVER = 1e6
"""Virtual seconds after which a call that has not returned never does."""

NONE = Trap(0)

STREAM_CALLS = ("memx_stream_ifmap", "memx_stream_ofmap")


def meets(trap: Trap = NONE, **options: Any) -> pytest.MarkDecorator:
    """Run a test on a machine of each profile.

    Of what `compat-2.11` does against its documents it does `trap` alone: no other trap hides what the guard
    against this one does, and a guard that is missing shows in its own test.

    Args:
        trap: what the test is about; nothing, where both profiles do it.
        options: of `SimulatedMx3`.
    """
    machines = [(profile, trap, options) for profile in PROFILES]
    return pytest.mark.parametrize("machine", machines, ids=list(PROFILES), indirect=True)


def compat(machine: Machine) -> bool:
    """Whether the machine has the trap that the test meets."""
    return machine.mx3.profile == "compat-2.11"


def content(net: Net, chips: int = CHIPS) -> bytes:
    """Return the file of one network."""
    return dfp(net, chips=chips)


def right(net: Net, number: int) -> bytes:
    """Return what a network must answer to an image."""
    return expected(net, image(number))[0].tobytes()


# -- a device, driven as its group would


def trial(machine: Machine, world: World, index: int = 0) -> Trial:
    """Drive a device of the machine; `open` returns the programs of A and B."""
    one, two = (Artifact(net.name, content(net)) for net in (A, B))
    return Trial(Subject(make=machine.group(index), artifacts=(one, two), foreign=one, patience=EVER), world)


def prepared(device: Trial, net: Net) -> Program:
    """Return the program of a network's file."""
    return device.device.prepare(Artifact(net.name, content(net)))


async def check(device: Trial, program: Program, net: Net, count: int = 3) -> None:
    """Run frames of a resident program at once; the answers must be right."""
    frames = device.frames(program, count)
    assert await device.infer(*frames) == [_answer(net, frame) for frame in frames]


def _answer(net: Net, frame: Frame) -> tuple[bytes, ...]:
    return tuple(array.tobytes() for array in expected(net, frame.inputs[0]))


# -- a library, driven by somebody who knows of no trap


def naked(machine: Machine, world: World) -> SimulatedLibmemx:
    """Make a library like the machine's, to drive by hand."""
    return SimulatedLibmemx(world, machine.mx3)


async def loaded(library: SimulatedLibmemx, net: Net, model_id: int = 0) -> None:
    """Open, download and enable, as the vendor's examples do."""
    assert await library.memx_open(model_id, 0, CHIP_GENERATION) == Status.OK
    assert await library.memx_download_model(model_id, content(net), 0, WHOLE) == Status.OK
    assert await library.memx_set_stream_enable(model_id, 0) == Status.OK


async def write(library: SimulatedLibmemx, number: int, *, model_id: int = 0, timeout: int = 1000) -> int:
    """Write an image."""
    wire = np.ascontiguousarray(image(number)[0].transpose(1, 2, 0))
    return await library.memx_stream_ifmap(model_id, 0, wire, timeout)


async def read(library: SimulatedLibmemx, *, model_id: int = 0, timeout: int = 1000) -> tuple[int, bytes]:
    """Read an answer; return the status and the tensor's bytes."""
    wire = np.empty((4, 6, 2), np.float32)
    status = await library.memx_stream_ofmap(model_id, 0, wire, timeout)
    return status, np.ascontiguousarray(wire.transpose(2, 0, 1)).tobytes()


@final
class Watch:
    """The stream calls of a library: how many are out, and how long each took that returned.

    Args:
        library: what to watch.
        now: the world's clock.
    """

    def __init__(self, library: SimulatedLibmemx, now: Callable[[], float]) -> None:
        self.out = 0
        self.took: list[float] = []
        for name in STREAM_CALLS:
            setattr(library, name, self._watched(getattr(library, name), now))

    def _watched(
        self, call: Callable[..., Awaitable[int]], now: Callable[[], float]
    ) -> Callable[..., Awaitable[int]]:
        @functools.wraps(call)
        async def watched(*args: Any) -> int:
            began = now()
            self.out += 1
            status = await call(*args)
            self.out -= 1
            self.took.append(now() - began)
            return status

        return watched
