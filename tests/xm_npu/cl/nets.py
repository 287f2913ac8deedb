"""A small model whose tensors do not fill multiples of 8 bytes, and libraries that run it."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import pytest

from repertory.models.pack_xm_npu import pack_xm_npu
from repertory.models.program import Artifact
from repertory.models.spec import Array
from repertory.transports.xm_npu.cl.library import XmediaCl
from repertory.transports.xm_npu.program import Loadable, loadable, prepare_xmm
from repertory.transports.xm_npu.simulator.board import Board
from tests.models.graphs import model, node, tensor

from .stub import open_stub

__all__ = ["BOTH", "OFFSET", "SIZE", "WORK", "answers", "image", "library", "net", "question"]

WORK: Final = 4096
SIZE: Final = 12
"""Bytes of each of its tensors: two inputs a and b, and two outputs, a + b and a * b."""
OFFSET: Final = 16
"""Where the second tensor of a side lies."""

BOTH: Final = pytest.mark.parametrize("behind", ["simulator", "c"])
"""The simulated library itself, and the real binding over C with that library behind it."""


@cache
def net(*, reuse: int = 0, work: int = WORK, private: bytes | None = None) -> bytes:
    nodes = [node("Add", ["a", "b"], ["sum"]), node("Mul", ["a", "b"], ["product"])]
    inputs, outputs = [tensor(name, [1, 3]) for name in "ab"], [tensor(n, [1, 3]) for n in ("sum", "product")]
    return pack_xm_npu("net", model(nodes, inputs, outputs), work=work, reuse=reuse, private_data=private)


@cache
def image(*, reuse: int = 0, work: int = WORK, batch: int = 1) -> Loadable:
    artifact = Artifact("net.xmm", net(reuse=reuse, work=work))
    return loadable(prepare_xmm(artifact, simulated=True, via="cl", batch=batch, budget=1 << 24))


def question(seed: int, batch: int = 1) -> tuple[Array, Array]:
    """Return float32[batch, 3] for a and b."""
    draw = np.random.default_rng(seed)
    return tuple(draw.standard_normal((batch, 3), dtype=np.float32) for _ in "ab")  # type: ignore[return-value]


def answers(a: Array, b: Array) -> tuple[bytes, bytes]:
    """Return what the model says."""
    return (a + b).tobytes(), (a * b).tobytes()


def library(behind: str, board: Board) -> XmediaCl:
    """Return one of `BOTH`; C in real time only."""
    return open_stub(board.library()) if behind == "c" else board.library()
