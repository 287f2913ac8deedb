"""What models take by the library stays within the budget, whatever the order in which they come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from repertory.models.errors import NoRoom
from repertory.models.program import Artifact, Program
from repertory.transports.device import Device
from repertory.transports.world import World
from repertory.transports.xm_npu.cl.npu import ClNpu, OwnMemory
from repertory.transports.xm_npu.cl.resident import ClGraph
from repertory.transports.xm_npu.device import XmNpuDevice
from repertory.transports.xm_npu.program import loadable, prepare_xmm
from repertory.transports.xm_npu.simulator.block import Block
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.parameters import SimulatedNpu, Zone
from tests.runtime.support import open_virtual

from .nets import answers, image, net, question
from .test_npu import opened, runs

pytestmark = pytest.mark.virtual

PAGE = 4096
BUDGET = 40 * PAGE
ROOM = SimulatedNpu(zones=(Zone(size=1 << 24),))
"""Much more than the budget: nothing but `ClNpu` keeps to it."""

ASCENDING = [(number + 1) * 4 * PAGE for number in range(6)]


def programs(budget: int, sizes: Sequence[int]) -> list[Program]:
    artifacts = [Artifact(f"{size}.xmm", net(work=size)) for size in sizes]
    return [prepare_xmm(each, simulated=True, via="cl", budget=budget) for each in artifacts]


def watch(board: Board, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return what is in use after each block that is taken, by us or by the library."""
    used: list[int] = []
    take = board.mmz.alloc

    def watched(zone: bytes, name: bytes, size: int, owner: int) -> Block:
        block = take(zone, name, size, owner)
        used.append(board.mmz.used)
        return block

    monkeypatch.setattr(board.mmz, "alloc", watched)
    return used


@pytest.mark.parametrize("memory", ["own", "library"])
async def test_what_does_not_fit_the_budget_is_not_loaded(
    memory: OwnMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(ROOM, budget=BUDGET, memory=memory) as (board, npu):
        graphs: list[ClGraph] = []
        used = watch(board, monkeypatch)
        with pytest.raises(NoRoom) as caught:  # noqa: PT012  (at some one of them)
            for size in ASCENDING:
                graphs.append(await npu.load(image(work=size)))  # noqa: PERF401  (those before the refusal)
        with pytest.raises(NoRoom):
            await npu.load(image(work=BUDGET))
        assert 0 < max(used) <= BUDGET
        assert len(graphs) >= 2
        wanted, free = caught.value.wanted, caught.value.free
        assert wanted is not None
        assert free is not None
        assert 0 <= free < wanted
        for graph in graphs:
            await runs(npu, graph)
        for graph in graphs:
            await graph.unload()
        assert board.mmz.used == 0
        await runs(npu, await npu.load(image(work=ASCENDING[-1])))


async def test_one_workspace_serves_all_whose_needs_are_known() -> None:
    async with opened(ROOM, budget=BUDGET) as (board, npu):
        needs = programs(BUDGET, ASCENDING[:3])
        scratch = max(each.scratch for each in needs)
        for program in needs:
            await npu.load(loadable(program), scratch=scratch)
        assert board.mmz.used == sum(each.footprint for each in needs) + scratch


async def test_a_wish_leaves_room_for_the_model_itself() -> None:
    model = image(work=4 * PAGE)
    (program,) = programs(BUDGET, [4 * PAGE])
    for wish in range(4, 40):
        budget = program.footprint + program.scratch
        async with opened(ROOM, budget=budget) as (board, npu):
            await npu.load(model, scratch=wish * PAGE)
            assert board.mmz.used == budget


async def test_a_workspace_is_not_shared_with_a_run_of_several_jobs() -> None:
    """Nobody says that the programs of one run are not interleaved with those of another graph."""
    async with opened(ROOM) as (board, npu):
        whole = image(work=PAGE)
        (code,) = whole.codes
        for model in (whole, whole, replace(whole, codes=(code, code)), replace(whole, codes=(code, code))):
            await npu.load(model)
        blocks = board.mmz.blocks.values()
        assert [each.name for each in blocks].count(b"npu_workspace") == 3


async def test_six_models_are_served_within_the_budget(anyio_backend: object) -> None:
    boards: list[Board] = []
    used: list[int] = []

    def connect(world: World) -> Device:
        boards.append(board := Board(world, ROOM))

        def prepare(artifact: Artifact) -> Program:
            return prepare_xmm(artifact, simulated=True, via="cl", budget=BUDGET)

        def make() -> ClNpu:
            return ClNpu(board.library(), world, budget=BUDGET, node=Path("/dev/npu.0"))

        return XmNpuDevice(world, make, prepare, name="0", simulated=True, memory=BUDGET)

    async with open_virtual(connect) as rt:
        for turn in range(3):
            for size in ASCENDING:
                model = await rt.load(net(work=size), name=f"{size} {turn}")
                a, b = question(turn)
                found = await model.infer({"a": a, "b": b})
                assert (found["sum"].tobytes(), found["product"].tobytes()) == answers(a, b)
                used.append(boards[0].mmz.used)
        (group,) = rt.statistics().groups.values()
        assert group.evictions
    assert 0 < max(used) <= BUDGET
    assert boards[0].leaks() == boards[0].faults == []
