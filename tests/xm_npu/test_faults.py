"""Each fault of an NPU at random moments: every request ends rightly, and the NPU serves again."""

from __future__ import annotations

import random
from collections import Counter

import anyio
import pytest
import sniffio

from repertory.models.errors import DeviceError
from repertory.runtime.model import Model
from repertory.transports.xm_npu.simulator.board import Board
from repertory.transports.xm_npu.simulator.faults import Fault, Kind, scripted
from tests.runtime.support import open_virtual, reconciles

from .boards import BoardSource, Via, affine, answer, question

RUNS = 24
"""Of each fault and way, on both backends together: they take turns at the seeds."""
CALLERS, REQUESTS = 4, 4
FACTORS = (2, 3)
RUN_BOUND = 0.1

pytestmark = pytest.mark.virtual

COMBINATIONS = [
    ("ioctl", Kind.ABORT),
    ("ioctl", Kind.HANG),
    ("ioctl", Kind.LOST_INTERRUPT),
    ("ioctl", Kind.SLOW),
    ("ioctl", Kind.FOREIGN_RESET),
    ("cl", Kind.ABORT),
    ("cl", Kind.SLOW),
]
"""What can be mended without the device being lost."""


async def _run(seed: int, via: Via, kind: Kind) -> tuple[BoardSource, Counter[str]]:
    draw = random.Random(seed)
    ends = Counter[str]()

    def prepare(board: Board) -> None:
        numbers = draw.sample(range(CALLERS * REQUESTS), draw.randint(1, 2))
        board.switches.on_job = scripted({number: Fault(kind) for number in numbers})

    source = BoardSource(via, prepare, latency_ms=2.0, run_bound=RUN_BOUND)
    async with open_virtual(source) as rt:
        models = [await rt.load(affine(factor), name=f"times{factor}") for factor in FACTORS]

        async def ask(model: Model, factor: int, first: int) -> None:
            for number in range(first, first + REQUESTS):
                try:
                    found = await model.infer(question(number))
                except DeviceError:
                    ends["error"] += 1
                else:
                    ends["right" if found.tobytes() == answer(factor, number) else "wrong"] += 1

        async with anyio.create_task_group() as tasks:
            for caller in range(CALLERS):
                at = caller % len(FACTORS)
                tasks.start_soon(ask, models[at], FACTORS[at], 1 + caller * REQUESTS)
        source.board.switches.on_job = None
        for model, factor in zip(models, FACTORS, strict=True):
            assert (await model.infer(question(999))).tobytes() == answer(factor, 999)
        assert all(reconciles(statistics) for statistics in rt.statistics().models.values())
    return source, ends


@pytest.mark.parametrize(("via", "kind"), COMBINATIONS)
async def test_a_fault_costs_at_most_the_jobs_it_hits(anyio_backend: object, via: Via, kind: Kind) -> None:
    total = Counter[str]()
    for seed in range(sniffio.current_async_library() == "trio", RUNS, 2):
        source, ends = await _run(seed, via, kind)
        assert source.incarnations == 1, f"seed {seed}: the device was never lost"
        assert ends["wrong"] == 0, f"seed {seed}"
        assert ends["error"] <= 2, f"seed {seed}: {ends}"
        assert ends.total() == CALLERS * REQUESTS
        source.check_clean()
        total += ends
    if kind is not Kind.FOREIGN_RESET:  # two of these may hit one frame, which runs again only once
        assert (total["error"] > 0) is (kind is not Kind.SLOW)


async def _plug_in(source: BoardSource) -> None:
    """Wait until the NPU has vanished, and be somebody who plugs it in again."""
    while not source.board.core.gone:  # noqa: ASYNC110  (virtual time; the simulator tells nobody)
        await anyio.sleep(0.01)
    await anyio.sleep(0.05)
    source.board.core.gone = False


@pytest.mark.parametrize(
    ("via", "kind"),
    [("cl", Kind.HANG), ("cl", Kind.LOST_INTERRUPT), ("cl", Kind.GONE), ("ioctl", Kind.GONE)],
)
async def test_what_only_another_incarnation_mends(anyio_backend: object, via: Via, kind: Kind) -> None:
    """The library cannot stop a job: the device is lost, its process ends, and it is opened anew."""

    def prepare(board: Board) -> None:
        board.switches.on_job = scripted({5: Fault(kind)})

    source = BoardSource(via, prepare, latency_ms=2.0, run_bound=RUN_BOUND)
    async with open_virtual(source) as rt, anyio.create_task_group() as tasks:
        if kind is Kind.GONE:
            tasks.start_soon(_plug_in, source)
        model = await rt.load(affine(2))
        ends = Counter[str]()
        for number in range(1, 12):
            try:
                ends[str((await model.infer(question(number))).tobytes() == answer(2, number))] += 1
            except DeviceError:
                ends["error"] += 1
        assert ends["False"] == 0
        assert ends["error"] <= 1
    assert source.incarnations == 2
    assert (source.board.mmz.blocks, source.board.faults) == ({}, [])
    killed = [leak for leak in source.board.leaks() if "MMB LEAK" not in leak]
    assert killed == [], killed
