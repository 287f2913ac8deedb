"""Caches that nobody keeps coherent: each sync of the driver is needed, and nothing more is synced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, final

import anyio
import numpy as np
import pytest

from repertory.models.errors import RepertoryError
from repertory.transports.rpmsg.memory import Buffer, Window
from repertory.transports.rpmsg.simulator.memory import SimulatedBuffer
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from repertory.transports.rpmsg.workspace import Need, Workspace
from tests.rpmsg.dsps import Board, answer, module, tensor
from tests.rpmsg.simulator.modules import many, summed
from tests.runtime.support import open_virtual

WIRES = pytest.mark.parametrize("wire", [2, 3])
FITS = pytest.mark.parametrize("first_fit", [True, False], ids=["split", "single"])


def incoherent(wire: Any, **options: Any) -> SimulatedC7x:
    return SimulatedC7x(wire=wire, coherent=False, latency_ms=1.0, load_ms=1.0, **options)


@final
class Unsynced(Buffer):
    """A buffer of which one way is forgotten."""

    def __init__(self, buffer: Buffer, way: str) -> None:
        self.size, self.address, self.view = buffer.size, buffer.address, buffer.view
        self._buffer = buffer
        self._way = way

    def flush(self) -> None:
        if self._way != "flush":
            self._buffer.flush()

    def invalidate(self) -> None:
        if self._way != "invalidate":
            self._buffer.invalidate()

    def close(self) -> None:
        self._buffer.close()


Part = Literal["module", "slots", "areas"]


def forget(monkeypatch: pytest.MonkeyPatch, part: Part, way: str) -> None:
    """Leave out the syncs of one part of the memory in one direction."""
    arrange = Workspace.arrange

    def unsynced(window: Window) -> Window:
        return Window(Unsynced(window.buffer, way), window.offset, window.size)

    def bent(workspace: Workspace, need: Need) -> None:
        arrange(workspace, need)
        found = getattr(workspace, part)
        new = unsynced(found) if isinstance(found, Window) else tuple(map(unsynced, found))
        setattr(workspace, part, new)

    monkeypatch.setattr(Workspace, "arrange", bent)


async def wrong(board: Board, *, count: int = 60) -> int:
    """Ask distinct questions, several at once; return how many are answered wrongly or not at all."""
    wrongs = 0
    async with open_virtual(board.source()) as rt:
        model = await rt.load(module(), name="double")

        async def ask(number: int) -> None:
            nonlocal wrongs
            try:
                found = await model.infer(tensor(number))
            except RepertoryError:
                wrongs += 1
            else:
                wrongs += found.tobytes() != answer(number)

        async with anyio.create_task_group() as tasks:
            for number in range(1, count + 1):
                tasks.start_soon(ask, number)
    return wrongs


@pytest.mark.virtual
@WIRES
@FITS
async def test_every_answer_is_right(anyio_backend: object, wire: int, first_fit: bool) -> None:
    board = Board(incoherent(wire, answers="hash", first_fit=first_fit or wire == 3))
    assert await wrong(board) == 0
    assert board.dsp.firmware.faults == []


@pytest.mark.virtual
@WIRES
@pytest.mark.parametrize(("part", "way"), [("module", "flush"), ("slots", "flush"), ("areas", "invalidate")])
async def test_no_sync_may_be_missing(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch, wire: int, part: Part, way: str
) -> None:
    forget(monkeypatch, part, way)
    board = Board(incoherent(wire, answers="hash"))
    assert await wrong(board) > 50


@pytest.mark.virtual
@WIRES
@pytest.mark.parametrize("way", ["flush", "invalidate"])
async def test_tables_of_descriptors_are_synced_too(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch, wire: int, way: str
) -> None:
    """More than 4 inputs, and more than 5 outputs, are described in memory."""

    async def right() -> bool:
        board = Board(incoherent(wire))
        async with open_virtual(board.source()) as rt:
            wide = await rt.load(summed(7), name="summed")
            deep = await rt.load(many(8), name="many")
            inputs = {spec.name: np.full(3, at, np.float32) for at, spec in enumerate(wide.inputs)}
            try:
                total = await wide.infer(inputs)
                outputs = await deep.infer(np.ones((2, 3), np.float32))
            except RepertoryError:
                return False
        rows = [outputs[f"y{at}"].mean() for at in range(8)]
        return bool((total == 21).all()) and rows == [1, 2, 3, 4, 5, 6, 7, 8]

    assert await right()
    forget(monkeypatch, "slots" if way == "flush" else "areas", way)
    assert not await right()


@pytest.mark.virtual
@WIRES
async def test_only_what_moved_is_synced(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch, wire: int
) -> None:
    """A frame costs one flush of a slot and one invalidate of an area, each of one page here."""
    sizes: list[tuple[str, int]] = []

    def noting(way: str) -> Callable[[SimulatedBuffer], None]:
        original = getattr(SimulatedBuffer, way)

        def note(buffer: SimulatedBuffer) -> None:
            sizes.append((way, buffer.size))
            original(buffer)

        return note

    for way in ("flush", "invalidate"):
        monkeypatch.setattr(SimulatedBuffer, way, noting(way))
    assert await wrong(Board(incoherent(wire, answers="hash")), count=10) == 0
    (load, size), *frames = sizes
    assert (load, size >= len(module())) == ("flush", True)
    assert sorted(frames) == [("flush", 4096)] * 10 + [("invalidate", 4096)] * 10
