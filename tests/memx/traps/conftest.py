from __future__ import annotations

from typing import Any

import pytest

from repertory.transports.memx.simulator.parameters import SimulatedMx3
from repertory.transports.memx.simulator.profile import PROFILES, ProfileName, Trap
from tests.integration.support import Machine

from .rig import CHIPS


@pytest.fixture
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Make the machine of `rig.meets`."""
    profile: ProfileName
    trap: Trap
    given: dict[str, Any]
    profile, trap, given = request.param
    assert profile == "strict" or trap in PROFILES[profile].traps
    monkeypatch.setattr(SimulatedMx3, "traps", property(lambda mx3: PROFILES[mx3.profile].traps & trap))
    options: dict[str, Any] = {"chips": CHIPS, **given}
    return Machine(SimulatedMx3(profile=profile, **options))
