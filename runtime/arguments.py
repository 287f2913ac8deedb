"""Arguments that callers may give in several ways, and what they come to."""

from __future__ import annotations

import math

from repertory.actors.intake import Intake
from repertory.actors.limits import Limits, whole
from repertory.actors.policy import Policy
from repertory.models.checks import is_a
from repertory.models.errors import ConfigError

from .policies.named import policy_named
from .policies.swap_aware import SwapAware

__all__ = ["intake_of", "limits_of", "policy_of"]

_DEFAULTS = Limits()
"""What counts as not said."""


def policy_of(policy: Policy | str | None) -> Policy:
    """Return the policy that is meant: itself, the one of that name, or the default one.

    Raises:
        ConfigError: there is none of that name, or it is no policy.
    """
    if policy is None:
        return SwapAware()
    if isinstance(policy, str):
        return policy_named(policy)
    if not is_a(policy, Policy):
        raise ConfigError(f"policy {policy!r} came, a Policy or the name of one is wanted")
    return policy


def intake_of(queue: int | None, queue_bytes: int | None) -> Intake | None:
    """Return the bounds of what waits in all models together; None without any.

    Raises:
        ConfigError: a bound is no whole number above 0.
    """
    if queue is None and queue_bytes is None:
        return None
    return Intake(
        math.inf if queue is None else whole("queue", queue),
        math.inf if queue_bytes is None else whole("queue_bytes", queue_bytes),
    )


def limits_of(limits: Limits | None, timeout: float | None, priority: int | None) -> Limits:
    """Put `timeout` and `priority` into the limits, unless those say something else.

    Raises:
        ConfigError: a value is wrong, or the two say different things.
    """
    if limits is None:
        return Limits(timeout=timeout, priority=0 if priority is None else priority)
    if not is_a(limits, Limits):
        raise ConfigError(f"limits {limits!r} came, a Limits is wanted")
    changed = limits
    if timeout is not None:
        changed = changed.changed({"timeout": timeout})
    if priority is not None:
        changed = changed.changed({"priority": priority})
    for name in ("timeout", "priority"):
        here, there = getattr(changed, name), getattr(limits, name)
        if there not in {here, getattr(_DEFAULTS, name)}:
            raise ConfigError(f"{name} {here!r} and limits with {name} {there!r} contradict each other")
    return changed
