"""What the tests of the vendor's page share: both simulated libraries, a file of two networks, frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from repertory.transports.memx.constants import Status
from repertory.transports.memx.library import FlowSize
from repertory.transports.memx.mxa.module import Mxa
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.memx.simulator.profile import ProfileName
from repertory.transports.real import RealWorld

from .files import Net, dfp, infer

__all__ = [
    "INPUT_SIZE",
    "NETS",
    "NO_SIZE",
    "OUTPUT_SIZE",
    "PROFILES",
    "frame",
    "loaded",
    "outputs",
    "same",
    "simulator",
    "write_model",
]

PROFILES: tuple[ProfileName, ...] = ("strict", "compat-2.11")
NETS = (Net("a", seed=1, latency=0.001), Net("b", seed=2, latency=0.001, configuration=1))
INPUT_SIZE: FlowSize = (Status.OK, 4, 6, 1, 3, 5)
OUTPUT_SIZE: FlowSize = (Status.OK, 4, 6, 1, 2, 5)
NO_SIZE: FlowSize = (Status.SIZE_UNKNOWN, 0, 0, 0, 0, 0)


def simulator(profile: ProfileName) -> SimulatedLibmemx:
    """Return a machine of two groups; no event loop is needed."""
    return SimulatedLibmemx(RealWorld(), SimulatedMx3(profile=profile, groups=2, swap_ms=1))


def write_model(folder: Path, *nets: Net) -> Path:
    """Write a file of networks, to be swapped by their index."""
    path = folder / "model.dfp"
    path.write_bytes(dfp(*(nets or NETS)))
    return path


def loaded(mxa: Mxa, path: Path) -> None:
    """Open context 0, bring it the first network, and let frames move."""
    assert mxa.open(0, 0, 3) == 0
    assert mxa.download(0, str(path), 0, mxa.download_type_wtmem_and_model) == 0
    assert mxa.set_stream_enable(0, 1) == 0


def frame(seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((4, 6, 1, 3)).astype(np.float32)


def outputs() -> tuple[Any, Any]:
    return np.empty((4, 6, 1, 2), np.float32), np.empty((1, 1, 1, 2), np.float32)


def same(net: Net, seed: int, image: Any, mean: Any) -> bool:
    """Tell whether these are the network's answers to `frame(seed)`, bit for bit."""
    return [part.tobytes() for part in infer(net, frame(seed))] == [image.tobytes(), mean.tobytes()]
