"""Running a test in the real world and in the virtual one."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import Driver, World

__all__ = ["BOUND", "MakeWorld", "ended", "in_both_worlds", "never"]

MakeWorld = Callable[[], World]
BOUND = 10.0
"""Seconds after which a driver counts as stuck."""

in_both_worlds = pytest.mark.parametrize(
    ("make_world", "anyio_backend"),
    [
        *((RealWorld, backend) for backend in ("asyncio", "trio", "uvloop")),
        *(pytest.param(VirtualWorld, backend, marks=pytest.mark.virtual) for backend in ("asyncio", "trio")),
    ],
    indirect=["anyio_backend"],
)


async def ended(*drivers: Driver, bound: float = BOUND) -> None:
    """Wait for drivers, and raise what one raised."""
    for driver in drivers:
        assert await driver.join(bound), f"{driver.name} does not end"
        if driver.error is not None:
            raise driver.error


def never() -> float:
    """Tell a condition that its state changes by calls alone."""
    return math.inf
