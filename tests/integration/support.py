"""A simulated machine that a test can look into, and the answers that its networks must give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from repertory.transports.device import Device
from repertory.transports.memx.device import MemxDevice
from repertory.transports.memx.simulator.libmemx import Call, SimulatedLibmemx, Tamper
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.world import World
from tests.memx.files import CHANNELS, HEIGHT, WIDTH, Net, onnx_net

__all__ = ["Floats", "Machine", "Made", "direct", "expected", "image", "session"]

Floats = NDArray[np.float32]
Made = Callable[[World, SimulatedLibmemx, int], Device]


def _device(world: World, library: SimulatedLibmemx, index: int) -> Device:
    return MemxDevice(world, lambda: library, index, simulated=True, window=8, lock=None)


@final
@dataclass
class Machine:
    """One simulated libmemx with its groups; made in the world that the runtime opens it in.

    Attributes:
        mx3: what is simulated.
        tamper: gets every output frame as it crosses.
        made: makes a group's device.
        prepare: is called with the library before its first device opens.
        calls: every call, in order; a frame in the arguments is a copy of its bytes.
    """

    mx3: SimulatedMx3
    tamper: Tamper | None = None
    made: Made = _device
    prepare: Callable[[SimulatedLibmemx], None] | None = None

    def __post_init__(self) -> None:
        self.calls: list[Call] = []
        self.world: World
        self._library: SimulatedLibmemx | None = None

    @property
    def library(self) -> SimulatedLibmemx:
        """The library; there is one once a group was opened."""
        assert self._library is not None
        return self._library

    def group(self, index: int = 0) -> Callable[[World], Device]:
        """Return a device source for `open_runtime`, named `group <index>`."""

        def make(world: World) -> Device:
            if self._library is None:
                self.world = world
                self._library = SimulatedLibmemx(world, self.mx3, record=self._record, tamper=self.tamper)
                if self.prepare is not None:
                    self.prepare(self._library)
            return self.made(world, self._library, index)

        make.__name__ = f"group {index}"
        return make

    def named(self, *names: str) -> list[tuple[Any, ...]]:
        """Return name and arguments of the recorded calls of these functions, or of all."""
        return [(call.name, *call.args) for call in self.calls if not names or call.name in names]

    def _record(self, call: Call) -> None:
        args = tuple(arg.tobytes() if isinstance(arg, np.ndarray) else arg for arg in call.args)
        self.calls.append(Call(call.name, args, call.status))


@cache
def session(onnx: bytes) -> Any:
    """Return onnxruntime's own session for a graph, on one thread."""
    runtime: Any = onnxruntime
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])


def direct(onnx: bytes, *inputs: Floats) -> dict[str, Floats]:
    """Return what onnxruntime itself answers, in one call for this one input."""
    runner = session(onnx)
    names = [port.name for port in runner.get_outputs()]
    feeds = {port.name: array for port, array in zip(runner.get_inputs(), inputs, strict=True)}
    return dict(zip(names, runner.run(None, feeds), strict=True))


@cache
def _graph(net: Net) -> bytes:
    return onnx_net(net)


def expected(net: Net, array: Floats) -> list[Floats]:
    """Return what a network of the tests must answer to a caller."""
    return list(direct(_graph(net), array).values())


def image(number: int) -> Floats:
    """Return an input of the tests' networks that no other number has."""
    noise = np.random.default_rng(number).standard_normal((1, CHANNELS, HEIGHT, WIDTH))
    return noise.astype(np.float32)
