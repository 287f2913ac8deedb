"""The conformance suite of the device contract: every implementation passes every check.

Each check tries one clause of `device.py` on a device of its own. A test runs them one by one::

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    async def test_my_device(check):
        async with RealWorld() as world:
            await check(Subject(make=MyDevice, artifacts=(one, two), foreign=other), world)

Whoever has no test runner awaits `check_device`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from repertory.models.errors import ContractError

from . import frame_clauses, life_clauses
from .trial import Clause, Subject, Trial
from .world import World

__all__ = ["CHECKS", "Check", "Subject", "check_device"]


@final
@dataclass(frozen=True, slots=True)
class Check:
    """One clause of the contract; calling it tries a subject.

    Attributes:
        name: of the check.
        clause: what a device does, in one sentence.
        body: tries it.
    """

    name: str
    clause: str
    body: Clause

    async def __call__(self, subject: Subject, world: World) -> None:
        """Try one device, from open to close.

        Raises:
            ContractError: the device does not keep the clause, or did on the way what no device may do.
        """
        try:
            trial = Trial(subject, world)
            try:
                await self.body(trial)
            finally:
                await trial.close()
            trial.judge()
        except Exception as error:
            raise ContractError(f"{self.name}: {self.clause} ({error!r})") from error


CHECKS = tuple(
    Check(body.__name__.strip("_"), " ".join((body.__doc__ or "").rstrip(".").split()), body)
    for body in (*frame_clauses.CLAUSES, *life_clauses.CLAUSES)
)


async def check_device(subject: Subject, world: World) -> None:
    """Run the whole suite.

    Raises:
        ContractError: the first breach.
    """
    for check in CHECKS:
        await check(subject, world)
