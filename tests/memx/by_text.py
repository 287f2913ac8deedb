"""Calls of a simulated library, given as text, in one thread and by a clock that waiting moves."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from repertory.transports.memx.constants import Status
from repertory.transports.memx.library import FmapBuffer
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.memx.simulator.rules import SimulatorFault
from repertory.transports.world import drive

from .files import Net, dfp
from .hand import Forever, HandWorld
from .state_table import CLOSED, CRASH, FOREVER, OPEN, PAUSED, RUNNING

__all__ = ["Bench"]


@cache
def files(folder: Path) -> dict[str, Any]:
    good = dfp(Net(outputs=1))
    path = folder / "good.dfp"
    path.write_bytes(good)
    return {
        "GOOD": good,
        "OTHER": dfp(Net(inputs=2, outputs=1)),
        "TWO_CHIPS": dfp(Net(outputs=1), chips=2),
        "RUBBISH": (6).to_bytes(8, "little") + b"\x01rubbish",
        "VERSION_5": (5).to_bytes(8, "little"),
        "VERSION_7": (7).to_bytes(8, "little"),
        "PATH": bytes(path),
        "FRAME": np.ones((4, 6, 1, 3), np.float32),
        "FOREIGN": FmapBuffer(0, np.zeros(288, np.uint8)),
    }


class Bench:
    """A library by hand, and what calls name."""

    def __init__(self, profile: Any, folder: Path, **options: Any) -> None:
        self.world = HandWorld()
        mx3 = SimulatedMx3(groups=2, profile=profile, answers="hash", **options)
        self.library = SimulatedLibmemx(self.world, mx3)
        self.names = files(folder) | {
            "OUT": np.empty((4, 6, 1, 2), np.float32),
            "WORD": np.zeros(4, np.uint8),
        }

    def call(self, text: str) -> Any:
        """Carry out a call, given as text; or switch a fault on."""
        name = text.partition("(")[0]
        calls = {name: getattr(self.library, name, None) or partial(self._drive, f"memx_{name}")}
        return eval(text, self.names | calls)

    def _drive(self, name: str, *args: Any) -> Any:
        return drive(getattr(self.library, name)(*args))

    def result(self, text: str) -> Any:
        try:
            return self.call(text)
        except Forever:
            return FOREVER
        except SimulatorFault:
            return CRASH

    def state(self) -> str:
        """Tell what context 0 is; changes it."""
        if self.call("get_chip_gen(0)")[0] == Status.CONTEXT_NOT_OPEN:
            return CLOSED
        if self.call("get_ifmap_size(0, 0)")[0] == Status.SIZE_UNKNOWN:
            return OPEN
        assert self.call("stream_ifmap(0, 0, FRAME, 1)") == Status.OK
        if self.call("stream_ofmap(0, 0, OUT, 50)") == Status.OUTPUT_TIMEOUT:
            assert self.call("set_stream_enable(0, 0)") == Status.OK
            assert self.call("stream_ofmap(0, 0, OUT, 50)") == Status.OK, "a pause loses nothing"
            return PAUSED
        return RUNNING
