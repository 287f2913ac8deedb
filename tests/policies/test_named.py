"""Policies by name."""

from __future__ import annotations

import pytest

from repertory.models.errors import ConfigError
from repertory.runtime.policies.named import POLICIES, policy_named

from .hand_made import context, entry, group, said


@pytest.mark.parametrize("name", POLICIES)
def test_every_name_makes_a_policy(name: str) -> None:
    policy = policy_named(name)
    assert policy.keeps_deadlines == (name in {"swap-aware", "rotation"})


@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("hailort", 16),
        ("hailort-burst-32", 32),
        ("hailort-burst-32:burst=3", 3),
        ("hailort: burst = 5, timeout=0.5", 5),
        ("mxa-manager", 20),
        ("mxa-manager:frame_limit=8,time_limit=2e-3", 8),
        ("rotation:quantum=7", 7),
    ],
)
def test_parameters_reach_the_policy(name: str, frames: int) -> None:
    state = group(entry(context("a", 99), 1), entry(context("b", 99), 0), residents="a")
    assert said(policy_named(name), state)[2] == frames


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("best", "policy 'best' came, one of swap-aware, .*, mxa-manager is wanted"),
        ("", "policy '' came"),
        (3, "policy 3 came, a name is wanted"),
        ("fifo:burst=1", "fifo has no parameter 'burst'; it has none"),
        ("hailort:", "hailort has no parameter ''; it has threshold, timeout, burst, idle_optimisation"),
        ("hailort:models=3", "no parameter 'models'"),
        ("hailort:burst", "burst= came, a whole number is wanted"),
        ("hailort:burst=2.5", "burst=2.5 came, a whole number is wanted"),
        ("hailort:timeout=soon", "timeout=soon came, a number is wanted"),
        ("hailort:idle_optimisation=2", "idle_optimisation=2 came, true or false is wanted"),
        ("hailort:burst=0", "a burst of 0 came"),
        ("hailort:burst=2,burst=3", "has burst twice"),
        ("rotation:quantum=0", "a quantum of 0 came"),
    ],
)
def test_what_is_wrong_with_a_name_is_said(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        policy_named(name)
