"""The host's cache and the NPU: each flush of the driver is needed, and none may be added."""

from __future__ import annotations

from typing import Any, Literal

import anyio
import pytest

from repertory.models.errors import RepertoryError
from repertory.transports.xm_npu.simulator.library import SimulatedXmediaCl
from tests.runtime.support import open_virtual

from .boards import BoardSource, affine, answer, question

Outputs = Literal["cached", "uncached"]
OUTPUTS = pytest.mark.parametrize("outputs", ["uncached", "cached"])
COUNT = 40

pytestmark = pytest.mark.virtual


async def wrong(source: BoardSource) -> int:
    """Ask distinct questions; return how many are answered wrongly or not at all."""
    wrongs: list[int] = []
    async with open_virtual(source) as rt:
        model = await rt.load(affine(3))

        async def ask(number: int) -> None:
            try:
                if (await model.infer(question(number))).tobytes() != answer(3, number):
                    wrongs.append(number)
            except RepertoryError:
                wrongs.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(1, COUNT + 1):
                tasks.start_soon(ask, number)
    return len(wrongs)


@OUTPUTS
@pytest.mark.parametrize("memory", ["own", "library"])
async def test_every_answer_is_right(anyio_backend: object, outputs: Outputs, memory: str) -> None:
    source = BoardSource("cl", outputs=outputs, memory=memory)
    assert await wrong(source) == 0
    source.check_clean()


@OUTPUTS
async def test_without_any_flush_nearly_all_answers_are_wrong(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch, outputs: Outputs
) -> None:
    async def forgotten(_library: object, _phy: int, _virt: int, _size: int) -> int:
        return 0

    monkeypatch.setattr(SimulatedXmediaCl, "xmedia_mmz_flush_cache", forgotten)
    assert await wrong(BoardSource("cl", outputs=outputs)) > COUNT * 3 // 4


async def test_a_flush_of_outputs_after_a_run_is_noticed(
    anyio_backend: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever adds one to the driver makes `check_clean` fail everywhere."""
    flush = SimulatedXmediaCl.xmedia_mmz_flush_cache
    query = SimulatedXmediaCl.xmedia_cl_query_event_status
    ranges: set[tuple[int, int, int]] = set()

    async def noted(library: Any, phy: int, virt: int, size: int) -> int:
        ranges.add((phy, virt, size))
        return await flush(library, phy, virt, size)

    async def flushing(library: Any, event: int) -> tuple[int, int]:
        status = await query(library, event)
        if status[0] >= 3:
            for phy, virt, size in ranges:
                await flush(library, phy, virt, size)
        return status

    monkeypatch.setattr(SimulatedXmediaCl, "xmedia_mmz_flush_cache", noted)
    monkeypatch.setattr(SimulatedXmediaCl, "xmedia_cl_query_event_status", flushing)
    source = BoardSource("cl", outputs="cached")
    await wrong(source)
    assert any("flush" in fault for fault in source.board.faults)
