"""Each fault of a link or a DSP, at random moments: every request ends rightly, and the DSP serves again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

import anyio
import pytest
import sniffio

from repertory.models.errors import DeviceError
from repertory.runtime.model import Model
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.faults import Fault, Kind, Seen, scripted
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from tests.rpmsg.dsps import Board, answer, module, tensor
from tests.runtime.support import open_virtual, reconciles

RUNS = 200
"""Of each fault, on both backends together: they take turns at the seeds."""

CALLERS, REQUESTS = 4, 3
RUN_BOUND = 0.05
MESSAGES = 24
"""Replies of a run in which nothing goes wrong; a fault befalls one or two of these."""


@final
@dataclass
class Tally:
    """How the requests of one run ended.

    Attributes:
        board: what they ran on.
        ends: how many ended in each way; `right` and `wrong` are answers.
        after: how the last request ended, when the faults were over.
        befallen: faults that befell a reply.
    """

    board: Board
    befallen: list[Fault]
    ends: Counter[str] = field(default_factory=Counter[str])
    after: str = ""


def replies(
    seed: int, kind: Kind, seconds: Callable[[random.Random], float]
) -> Callable[[SimulatedDsp], None]:
    """Let one or two replies of a run go wrong."""
    draw = random.Random(seed)

    def prepare(dsp: SimulatedDsp) -> None:
        numbers = draw.sample(range(1, MESSAGES), draw.randint(1, 2))
        dsp.faults.on_reply = scripted({number: Fault(kind, seconds(draw)) for number in numbers})

    return prepare


def one_request(
    seed: int, kind: Kind, seconds: Callable[[random.Random], float]
) -> Callable[[SimulatedDsp], None]:
    """Let one request of a run do it."""
    draw = random.Random(seed)

    def prepare(dsp: SimulatedDsp) -> None:
        dsp.faults.on_request = scripted({draw.randrange(2, MESSAGES): Fault(kind, seconds(draw))})

    return prepare


def full_buffers(seed: int) -> Callable[[SimulatedDsp], None]:
    """Let bursts of sends find no free buffer."""
    draw = random.Random(seed)

    def prepare(dsp: SimulatedDsp) -> None:
        def burst(_seen: Seen) -> None:
            if draw.random() < 0.2:
                dsp.faults.refused_sends = draw.randint(1, 4)

        dsp.faults.refused_sends = draw.randint(0, 4)
        dsp.faults.on_reply = burst

    return prepare


async def ask(model: Model, number: int) -> str:
    try:
        found = await model.infer(tensor(number))
    except DeviceError as error:
        return type(error).__name__
    return "right" if found.tobytes() == answer(number) else "wrong"


async def wake_up(board: Board) -> None:
    """Restart a DSP that hangs, as an operator would after a while."""
    await anyio.sleep(5)
    if board.dsp.firmware.running:
        board.dsp.restart()


async def run(seed: int, prepare: Callable[[SimulatedDsp], None], *, operator: bool = False) -> Tally:
    params = SimulatedC7x(wire=2 if seed // 2 % 2 else 3, answers="hash", latency_ms=1.0, load_ms=1.0)
    befallen: list[Fault] = []

    def prepare_and_watch(dsp: SimulatedDsp) -> None:
        prepare(dsp)
        rule = dsp.faults.on_reply

        def watched(seen: Seen) -> Fault | None:
            fault = rule(seen) if rule else None
            befallen.extend([fault] if fault else [])
            return fault

        dsp.faults.on_reply = watched

    tally = Tally(Board(params, run_bound=RUN_BOUND, prepare=prepare_and_watch), befallen)
    async with open_virtual(tally.board.source()) as rt:
        model = await rt.load(module(), name="double")
        async with anyio.create_task_group() as tasks:
            if operator:
                tasks.start_soon(wake_up, tally.board)
            for first in range(0, CALLERS * REQUESTS, REQUESTS):
                tasks.start_soon(call, model, tally, range(first, first + REQUESTS))
        faults = tally.board.dsp.faults
        faults.on_reply = faults.on_request = None
        tally.after = await ask(model, 1000)
        statistics = rt.statistics().models["double"]
    assert reconciles(statistics)
    assert statistics.waiting == statistics.in_flight == 0
    assert sum(tally.ends.values()) == CALLERS * REQUESTS
    assert tally.board.dsp.leaks == []
    assert tally.board.dsp.firmware.loaded == []
    assert tally.board.dsp.firmware.faults == []
    return tally


async def call(model: Model, tally: Tally, numbers: range) -> None:
    for number in numbers:
        tally.ends[await ask(model, number)] += 1


async def runs(
    make: Callable[[int], Callable[[SimulatedDsp], None]], *, operator: bool = False
) -> list[Tally]:
    first = int(sniffio.current_async_library() == "trio")
    tallies = [await run(seed, make(seed), operator=operator) for seed in range(first, RUNS, 2)]
    assert [tally.after for tally in tallies] == ["right"] * (RUNS // 2)
    assert sum(tally.ends["wrong"] for tally in tallies) == 0
    return tallies


def none(_draw: random.Random) -> float:
    return 0.0


def total(tallies: list[Tally]) -> Counter[str]:
    return sum((tally.ends for tally in tallies), Counter[str]())


def untouched(tallies: list[Tally], kind: Kind | None = None) -> None:
    """Nobody noticed anything of what happened: a fault of this kind, or sends that found no buffer."""
    befallen = [fault.kind for tally in tallies for fault in tally.befallen]
    assert set(befallen) == ({kind} if kind else set())
    assert kind is None or len(befallen) > RUNS / 4
    assert not any(tally.board.dsp.faults.refused_sends for tally in tallies), "all of them were met with"
    assert set(total(tallies)) == {"right"}
    assert {tally.board.incarnations for tally in tallies} == {1}


def one_frame_a_fault(tallies: list[Tally]) -> None:
    """A reply that is lost costs its own frame, and never an answer that was right."""
    ends = total(tallies)
    assert set(ends) == {"right", "DeviceError"}
    assert max(tally.ends["DeviceError"] for tally in tallies) <= 2
    assert ends["DeviceError"] > RUNS / 4


@pytest.mark.virtual
@pytest.mark.parametrize("kind", [Kind.DROP, Kind.STALE, Kind.WRONG_TYPE, Kind.TRUNCATE, Kind.MANY_OUTPUTS])
async def test_a_reply_that_cannot_be_used(anyio_backend: object, kind: Kind) -> None:
    one_frame_a_fault(await runs(lambda seed: replies(seed, kind, none)))


@pytest.mark.virtual
async def test_a_duplicate_reply(anyio_backend: object) -> None:
    untouched(await runs(lambda seed: replies(seed, Kind.DUPLICATE, none)), Kind.DUPLICATE)


@pytest.mark.virtual
async def test_a_reply_that_comes_late(anyio_backend: object) -> None:
    """Later than the bound, but not later than a PING behind it may be."""
    untouched(
        await runs(lambda seed: replies(seed, Kind.DELAY, lambda draw: draw.uniform(0, 10 * RUN_BOUND))),
        Kind.DELAY,
    )


@pytest.mark.virtual
async def test_no_free_buffer(anyio_backend: object) -> None:
    untouched(await runs(full_buffers))


@pytest.mark.virtual
async def test_a_silent_hang(anyio_backend: object) -> None:
    """The frame that hangs is to blame; those behind it run after the restart."""
    tallies = await runs(lambda seed: one_request(seed, Kind.HANG, none), operator=True)
    assert set(total(tallies)) == {"right", "DeviceHung"}
    assert max(tally.ends["DeviceHung"] for tally in tallies) == 1
    assert max(tally.board.incarnations for tally in tallies) > 1


@pytest.mark.virtual
async def test_an_orderly_stop(anyio_backend: object) -> None:
    """Nobody is to blame: everything runs again."""
    tallies = await runs(lambda seed: one_request(seed, Kind.STOP, lambda draw: draw.uniform(0, 20)))
    assert set(total(tallies)) == {"right"}
    assert max(tally.board.incarnations for tally in tallies) == 2


@pytest.mark.virtual
async def test_a_crash_and_a_restart(anyio_backend: object) -> None:
    tallies = await runs(lambda seed: one_request(seed, Kind.CRASH, lambda draw: draw.uniform(0, 5)))
    assert set(total(tallies)) <= {"right", "DeviceHung", "DeviceLost"}
    assert max(sum(tally.ends.values()) - tally.ends["right"] for tally in tallies) == 1
