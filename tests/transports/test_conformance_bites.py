"""Every check of the conformance suite fails on a device that breaks its clause, and on no sound one."""

from __future__ import annotations

import pytest

from repertory.models.errors import ContractError
from repertory.transports.conformance import CHECKS, Check, Subject
from repertory.transports.virtual import VirtualWorld

from . import bent_answers, bent_frames, bent_life
from .bent import Sound
from .subjects import FOREIGN, SKETCHES

pytestmark = pytest.mark.virtual

BENT = [*bent_frames.BENT, *bent_answers.BENT, *bent_life.BENT]
BY_NAME = {check.name: check for check in CHECKS}


async def try_it(kind: type[Sound], check: Check) -> None:
    async with VirtualWorld() as world:
        await check(Subject(make=kind, artifacts=SKETCHES, foreign=FOREIGN), world)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_a_sound_device_passes(check: Check, anyio_backend: object) -> None:
    await try_it(Sound, check)


@pytest.mark.parametrize(("name", "complaint", "kind"), BENT, ids=[kind.__name__ for _, _, kind in BENT])
async def test_a_bent_device_fails(
    name: str, complaint: str, kind: type[Sound], anyio_backend: object
) -> None:
    with pytest.raises(ContractError, match=rf"(?s)^{name}: .*{complaint}"):
        await try_it(kind, BY_NAME[name])


def test_every_check_bites() -> None:
    assert {name for name, _, _ in BENT} == set(BY_NAME)


def test_every_check_says_its_clause() -> None:
    assert all(len(check.clause) > 20 for check in CHECKS)
    assert len(BY_NAME) == len(CHECKS)
