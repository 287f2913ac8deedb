"""Models come and go within a budget of memory: evictions are counted, and nothing is left behind."""

from __future__ import annotations

import random

import pytest

from repertory.models.errors import ArtifactError
from repertory.models.program import Artifact
from tests.runtime.support import open_virtual

from .boards import WAYS, BoardSource, Via, affine, answer, question

FACTORS = (2, 3, 5, 7, 11)
CYCLES = 200
PADDING = 40_000

pytestmark = pytest.mark.virtual


def _room_for_two(via: Via) -> float:
    """Return megabytes that hold two of the models and not three."""
    source = BoardSource(via)
    programs = [source.reading()(Artifact("x.xmm", affine(factor, padding=PADDING))) for factor in FACTORS]
    sizes = sorted(program.footprint for program in programs)
    scratch = max(program.scratch for program in programs)
    budget = sum(sizes[-2:]) + scratch
    assert sum(sizes[:3]) + scratch > budget
    return budget / 2**20


@WAYS
async def test_two_hundred_cycles_in_room_for_two_of_five(anyio_backend: object, via: Via) -> None:
    draw = random.Random(7)
    source = BoardSource(via, mmz_mb=_room_for_two(via))
    used: list[int] = []
    async with open_virtual(source) as rt:
        for cycle in range(CYCLES):
            factor = draw.choice(FACTORS)
            model = await rt.load(affine(factor, padding=PADDING), name=f"{factor} {cycle}")
            assert (await model.infer(question(cycle))).tobytes() == answer(factor, cycle)
            if cycle % 3 == 0:
                await rt.unload(model.name)
            used.append(source.board.mmz.used)
        (group,) = rt.statistics().groups.values()
        assert len(group.residents) <= 2
        assert group.evictions > CYCLES // 4
    assert max(used) == max(used[:20]), "what is taken does not grow"
    source.check_clean()


@WAYS
async def test_a_model_that_never_fits_is_refused_with_the_numbers(anyio_backend: object, via: Via) -> None:
    source = BoardSource(via, mmz_mb=0.0625)
    async with open_virtual(source) as rt:
        with pytest.raises(ArtifactError, match=r"\d+ bytes.*65536"):
            await rt.load(affine(3, padding=100_000))
        small = await rt.load(affine(2))
        assert (await small.infer(question(1))).tobytes() == answer(2, 1)
    source.check_clean()


@WAYS
async def test_memory_that_others_have_taken_costs_an_eviction_or_an_error(
    anyio_backend: object, via: Via
) -> None:
    source = BoardSource(via, mmz_mb=4)
    async with open_virtual(source) as rt:
        first = await rt.load(affine(2))
        assert (await first.infer(question(1))).tobytes() == answer(2, 1)
        source.board.switches.full = True
        second = await rt.load(affine(3))
        with pytest.raises(ArtifactError, match="bytes"):
            await second.infer(question(1))
        source.board.switches.full = False
        again = await rt.load(affine(3), name="again")
        assert (await again.infer(question(4))).tobytes() == answer(3, 4)
        assert (await first.infer(question(5))).tobytes() == answer(2, 5)
    source.check_clean()
