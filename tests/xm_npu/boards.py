"""Simulated NPUs that a test can look into, under the runtime's own driver, by either way."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from typing import Any, Final, Literal, TypeAlias, final

import numpy as np
import pytest
from numpy.typing import NDArray

from repertory.models.pack_xm_npu import pack_xm_npu
from repertory.transports.device import Device
from repertory.transports.world import World
from repertory.transports.xm_npu.cl.library import OPTIONAL
from repertory.transports.xm_npu.device import Prepare, XmNpuDevice
from repertory.transports.xm_npu.hardware import Reading, reader
from repertory.transports.xm_npu.npu import Npu
from repertory.transports.xm_npu.simulated import SimulatedXmNpuOptions, parameters, way
from repertory.transports.xm_npu.simulator.board import Board
from tests.models.graphs import model, node, tensor

__all__ = ["WAYS", "BoardSource", "Floats", "Via", "affine", "answer", "question"]

Floats = NDArray[np.float32]
Via: TypeAlias = Literal["cl", "ioctl"]
WAYS: Final = pytest.mark.parametrize("via", ["cl", "ioctl"])
WIDTH: Final = 16


@final
class BoardSource:
    """One NPU as a device source for `open_runtime`; what it is outlives incarnations.

    Args:
        via: the way to it.
        prepare: is called with the board when it is there.
        without: what the board lacks: `present`, `privileged`, or functions of the library; see
            `SimulatedNpu`.
        connect: makes the way to it, instead of the one that the options tell.
        options: parameters of `sim+xm-npu://`.
    """

    def __init__(
        self,
        via: Via,
        prepare: Callable[[Board], None] = lambda _: None,
        *,
        without: Collection[str] = (),
        connect: Callable[[Board, World], Npu] | None = None,
        **options: Any,
    ) -> None:
        usual: dict[str, Any] = {"load_ms": 1.0, "run_bound": 1.0}
        self.options = SimulatedXmNpuOptions(via=via, **{**usual, **options})
        self.incarnations = 0
        self._prepare = prepare
        self._without = without
        self._connect = connect
        self._board: Board | None = None

    @property
    def board(self) -> Board:
        """The NPU; there is one once the runtime was opened."""
        assert self._board is not None
        return self._board

    def reading(self) -> Prepare:
        """Return what reads its model files."""
        options = self.options
        memory = parameters(options).zones[0].size
        return reader(Reading(via=options.via, simulated=True, batch=options.batch, memory=memory))

    def __call__(self, world: World) -> Device:
        options, connect = self.options, self._connect
        params, missing = parameters(options), OPTIONAL.intersection(self._without)
        lacking: dict[str, Any] = dict.fromkeys(set(self._without) - missing, False)
        params = replace(params, exports=params.exports - missing, **lacking)
        if self._board is None:
            self._board = Board(world, params)
            self._prepare(self._board)
        board = self._board
        board.end_processes()
        self.incarnations += 1
        return XmNpuDevice(
            world,
            lambda: way(board, world, options) if connect is None else connect(board, world),
            self.reading(),
            name="0",
            simulated=True,
            memory=params.zones[0].size,
            residents=options.residents,
            run_bound=options.run_bound,
            load_bound=options.load_bound,
        )

    def check_clean(self) -> None:
        """Nothing was left behind, and nothing forbidden was done."""
        assert (left := self.board.leaks()) == [], left
        assert (wrong := self.board.faults) == [], wrong


@cache
def affine(factor: int, *, padding: int = 0) -> bytes:
    """y = factor * x, of 16 floats; the parameters have so many bytes more."""
    initial = np.float32(factor)
    onnx = model(
        [
            node("Constant", [], ["k"], value_float=float(initial)),
            node("Mul", ["x", "k"], ["y"], doc_string="x" * padding),
        ],
        [tensor("x", [1, WIDTH])],
        [tensor("y", [1, WIDTH])],
    )
    return pack_xm_npu(f"times{factor}", onnx)


def question(number: float) -> Floats:
    """Return an input that no other number has."""
    return np.full((1, WIDTH), number, np.float32)


def answer(factor: int, number: float) -> bytes:
    """Return what `affine(factor)` says to `question(number)`."""
    return (question(number) * np.float32(factor)).tobytes()
