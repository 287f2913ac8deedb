"""A device in a child process keeps the device contract as it does in this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import anyio
import pytest

from repertory.models.program import Artifact, Program
from repertory.transports.conformance import CHECKS, Check, Subject
from repertory.transports.device import Device
from repertory.transports.isolation.connect import isolated
from repertory.transports.isolation.device import Prepare
from repertory.transports.memx.program import prepare_dfp
from repertory.transports.real import RealWorld
from repertory.transports.sketched import prepare_sketch
from repertory.transports.world import World
from tests.transports.subjects import FOREIGN, SKETCHES, SUBJECTS

AT_ONCE = 4  # children that start side by side: a start is an interpreter's, and most of a check's time


def _in_child(address: str, prepare: Prepare) -> Callable[[World], Device]:
    return lambda world: isolated(address, world, prepare=prepare)()


def _dfp(artifact: Artifact, readings: Mapping[str, float]) -> Program:
    return prepare_dfp(artifact, simulated=True, chips=int(readings.get("chips", 0)))


def _sketch(artifact: Artifact, readings: Mapping[str, float]) -> Program:
    return prepare_sketch(artifact)


def _memx() -> Subject:
    like = SUBJECTS["sim+memx"]()
    make = _in_child("sim+memx://?swap_ms=2&window=4&answers=hash", _dfp)
    return Subject(make=make, artifacts=like.artifacts, foreign=like.foreign)


def _sim() -> Subject:
    """Two residents, and every kind of port: open extents, scalars, all sorts of dtypes."""
    make = _in_child("sim://?swap_ms=2&residents=2&window=3", _sketch)
    return Subject(make=make, artifacts=SKETCHES, foreign=FOREIGN)


BESIDE = (
    "specified_outputs",
    "all_at_once",
    "interleaved",
    "inputs",
    "outputs_stay",
    "foreign_program",
    "evict",
)
"""Checks that try what an MX3 has not: programs side by side, and ports that are no images."""


@pytest.mark.parametrize(
    ("anyio_backend", "subject", "checks"),
    [
        ("trio", _memx, CHECKS),
        ("asyncio", _sim, [check for check in CHECKS if check.name in BESIDE]),
    ],
    indirect=["anyio_backend"],
    ids=["sim+memx", "sim"],
)
async def test_it_keeps_the_contract(
    subject: Callable[[], Subject], checks: Sequence[Check], anyio_backend: object
) -> None:
    free = anyio.Semaphore(AT_ONCE)
    tried = subject()

    async def run(check: Check, world: World) -> None:
        async with free:
            await check(tried, world)

    async with RealWorld() as world, anyio.create_task_group() as tasks:
        for check in checks:
            tasks.start_soon(run, check, world)
