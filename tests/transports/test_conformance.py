"""Every device of the package keeps the device contract, in threads and in virtual time."""

from __future__ import annotations

import pytest

from repertory.transports.conformance import CHECKS, Check, Subject, check_device
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld

from .subjects import REAL_ONLY, SKETCHES, SUBJECTS, VIRTUAL_ONLY, in_memory

every_check = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)


@pytest.mark.realtime
@every_check
@pytest.mark.parametrize("device", [name for name in SUBJECTS if name not in VIRTUAL_ONLY])
async def test_in_real_time(device: str, check: Check, anyio_backend: object) -> None:
    async with RealWorld() as world:
        await check(SUBJECTS[device](), world)


@pytest.mark.virtual
@every_check
@pytest.mark.parametrize("device", [name for name in SUBJECTS if name not in REAL_ONLY])
async def test_in_virtual_time(device: str, check: Check, anyio_backend: object) -> None:
    async with VirtualWorld() as world:
        await check(SUBJECTS[device](), world)


@pytest.mark.virtual
async def test_the_suite_runs_without_a_test_runner(anyio_backend: object) -> None:
    subject = Subject(make=in_memory, artifacts=SKETCHES, foreign=SKETCHES[0])
    async with VirtualWorld() as world:
        with pytest.raises(Exception, match="foreign_file: `prepare` refuses"):
            await check_device(subject, world)
