"""Mistakes that users of the vendor's interfaces report, as far as no other test is about them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from repertory.models.pack_xm_npu import pack_xm_npu
from repertory.transports.xm_npu.simulator.library import SimulatedXmediaCl
from tests.models.graphs import model, node, tensor
from tests.runtime.support import open_virtual

from .boards import WAYS, BoardSource, Via, affine, answer, question
from .owner import bench

pytestmark = pytest.mark.virtual

RUNS = ("xmedia_cl_graph_submit", "xmedia_cl_graph_process", "xmedia_cl_wait_for_events")


@pytest.mark.parametrize("events", [True, False])
async def test_a_graph_is_run_in_one_way_and_nobody_waits_without_a_bound(
    anyio_backend: object, events: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed event that stays attached lets `process` return 0 without running; a wait has no time-out."""
    made = Counter[str]()
    for name in RUNS:
        call = getattr(SimulatedXmediaCl, name)

        async def counted(*given: Any, _name: str = name, _call: Any = call) -> Any:
            made[_name] += 1
            return await _call(*given)

        monkeypatch.setattr(SimulatedXmediaCl, name, counted)
    source = BoardSource("cl", events=events)
    async with open_virtual(source) as rt:
        net = await rt.load(affine(2))
        for number in range(6):
            assert (await net.infer(question(number))).tobytes() == answer(2, number)
    assert made == {RUNS[not events]: 6}
    source.check_clean()


@WAYS
async def test_only_the_two_nodes_are_opened(anyio_backend: object, via: Via) -> None:
    """Not `/dev/mem`, through which resets raced other processes."""
    async with bench(via) as owner:
        program = await owner.load(2)
        assert await owner.right(owner.start(program, 1), 2, 1)
        for kernel in owner.source.board._kernels:  # pyright: ignore[reportPrivateUsage]
            assert kernel.calls.count("open") == 2
            assert set(kernel.calls) >= {"SUBMIT_JOB", "WAIT_JOB"}


@WAYS
async def test_what_the_graph_gives_is_given_as_it_is(anyio_backend: object, via: Via) -> None:
    """Probabilities of a graph that ends in a softmax are not squeezed by a second one."""
    graph = model([node("Softmax", ["x"], ["y"], axis=1)], [tensor("x", [1, 3])], [tensor("y", [1, 3])])
    source = BoardSource(via)
    async with open_virtual(source) as rt:
        net = await rt.load(pack_xm_npu("softmax", graph))
        found = await net.infer(np.array([[0, 4, 0]], np.float32))
    assert found[0, 1] == pytest.approx(0.9647, abs=1e-4)
    source.check_clean()
