from __future__ import annotations

from typing import Any

import pytest

from repertory.transports.memx.parameters import SimulatedMx3
from repertory.transports.memx.profile import PROFILES, ProfileName, Trap
from tests.integration.support import Machine

from .rig import CHIPS


@pytest.fixture
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Make the machine of `rig.meets`."""
    profile: ProfileName
    trap: Trap
    options: dict[str, Any]
    profile, trap, options = request.param
    assert profile == "strict" or trap in PROFILES[profile].traps
    monkeypatch.setattr(SimulatedMx3, "traps", property(lambda mx3: PROFILES[mx3.profile].traps & trap))
    return Machine(SimulatedMx3(**{"chips": CHIPS, "profile": profile, **options}))
