"""Buffers that the library lends: each goes back once, and nobody looks into it afterwards."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, final

import anyio
import numpy as np
import pytest

from repertory.models.formats import PortFormat
from repertory.models.pack import pack_memx
from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from repertory.transports.memx.constants import CHIP_GENERATION, Status
from repertory.transports.memx.simulator.libmemx import SimulatedLibmemx
from repertory.transports.virtual import VirtualWorld
from tests.integration.support import Machine, expected, image
from tests.memx.files import onnx_net

from .rig import CHIPS, LATENCY, WHOLE, A, meets, naked

pytestmark = pytest.mark.virtual

FRAMES = 40
"""Several times as many as a queue has buffers."""

CONTENT = pack_memx([("a", onnx_net(A))], chips=CHIPS, port_format=PortFormat.BF16, latency=LATENCY)


@final
class Ledger:
    """Which buffers of a library are out, by side and index; what is given back is overwritten at once."""

    def __init__(self, library: SimulatedLibmemx) -> None:
        self.out: set[tuple[str, int]] = set()
        self.lent = 0
        for side in ("ifmap", "ofmap"):
            for name, watch in (
                (f"memx_dequeue_{side}_buf", self._lends),
                (f"memx_enqueue_{side}_buf", self._takes),
            ):
                setattr(library, name, watch(getattr(library, name), side))

    def _lends(self, call: Callable[..., Awaitable[Any]], side: str) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(call)
        async def lending(*args: Any) -> Any:
            status, buffer = await call(*args)
            if status == Status.OK:
                self.out.add((side, buffer.idx))
                self.lent += 1
            return status, buffer

        return lending

    def _takes(self, call: Callable[..., Awaitable[Any]], side: str) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(call)
        async def taking(model_id: int, flow_id: int, buffer: Any, timeout: int) -> Any:
            status = await call(model_id, flow_id, buffer, timeout)
            if status == Status.OK:
                self.out.remove((side, buffer.idx))
                buffer.data[:] = 0xFF
            return status

        return taking


@meets()
async def test_each_buffer_is_given_back_once_and_not_used_again(
    machine: Machine, anyio_backend: object
) -> None:
    async with VirtualWorld() as world:
        library = naked(machine, world)
        assert await library.memx_open(0, 0, CHIP_GENERATION) == Status.OK
        assert await library.memx_dequeue_ifmap_buf(0, 0, 1) == (Status.NOTHING_DOWNLOADED, None)
        assert await library.memx_download_model(0, CONTENT, 0, WHOLE) == Status.OK
        lent = [await library.memx_dequeue_ifmap_buf(0, 0, 1) for _ in range(5)]
        assert [status for status, _ in lent] == [Status.OK] * 4 + [Status.DEQUEUE_INPUT_TIMEOUT]
        first = lent[0][1]
        assert first is not None
        assert await library.memx_enqueue_ifmap_buf(0, 0, first, 1) == Status.OK
        assert await library.memx_enqueue_ifmap_buf(0, 0, first, 1) == Status.BAD_ENGINE

    async def ask(model: Model, number: int) -> None:
        answers[number] = await model.infer(image(number))

    answers: dict[int, Any] = {}
    async with open_runtime([machine.group()], world=VirtualWorld()) as rt:
        model = await rt.load(CONTENT)
        ledger = Ledger(machine.library)
        async with anyio.create_task_group() as tasks:
            for number in range(FRAMES):
                tasks.start_soon(ask, model, number)
        assert ledger.out == set()
        assert ledger.lent == 2 * FRAMES
    for number, answer in answers.items():
        np.testing.assert_allclose(answer, expected(A, image(number))[0], rtol=0.05, atol=0.05)
    statuses = {call.status for call in machine.calls if call.name.startswith("memx_enqueue")}
    assert statuses == {Status.OK}
    assert machine.library.faults == []
