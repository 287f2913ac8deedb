"""Policies by name, as a command line gives them: `hailort:burst=32,timeout=0.05`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, final

from repertory.actors.policy import Policy
from repertory.models.checks import is_a
from repertory.models.errors import ConfigError

from .fifo import Fifo
from .hailort import HailoRt
from .mxa_manager import MxaManager
from .rotation import Rotation
from .swap_aware import SwapAware

__all__ = ["POLICIES", "policy_named"]

_Value: TypeAlias = int | float | bool


@final
class _Named(NamedTuple):
    """What makes a policy, and what its name implies."""

    make: Callable[..., Policy]
    implied: Mapping[str, _Value] = MappingProxyType({})


_NAMED: Final[Mapping[str, _Named]] = {
    "swap-aware": _Named(SwapAware),
    "rotation": _Named(Rotation),
    "fifo": _Named(Fifo),
    "hailort": _Named(HailoRt),
    "hailort-burst-32": _Named(HailoRt, {"burst": 32}),
    "mxa-manager": _Named(MxaManager),
}

_WORDS: Final = {"true": True, "false": False}

POLICIES: Final = tuple(_NAMED)
"""Names that `policy_named` knows."""


def policy_named(name: str) -> Policy:
    """Return a policy by its name, with its parameters after a colon: numbers, `true` or `false`.

    They are those of the policy's class that take one of these.

    Raises:
        ConfigError: there is no such policy or parameter, or a value is wrong.
    """
    if not is_a(name, str):
        raise ConfigError(f"policy {name!r} came, a name is wanted")
    kind, colon, given = name.partition(":")
    named = _NAMED.get(kind)
    if named is None:
        raise ConfigError(f"policy {kind!r} came, one of {', '.join(POLICIES)} is wanted")
    values: dict[str, _Value] = {}
    for setting in given.split(",") if colon else ():
        parameter, value = _setting(kind, setting, _parameters(named.make))
        if parameter in values:
            raise ConfigError(f"policy {name!r} has {parameter} twice")
        values[parameter] = value
    return named.make(**{**named.implied, **values})


def _parameters(make: Callable[..., Policy]) -> dict[str, type]:
    """Return the parameters that a name can set, and their types."""
    defaults = {each.name: each.default for each in signature(make).parameters.values()}
    kinds: dict[str, type] = {
        each: int if default is None else type(default) for each, default in defaults.items()
    }
    return {each: kind for each, kind in kinds.items() if kind in (int, float, bool)}


def _setting(policy: str, setting: str, parameters: Mapping[str, type]) -> tuple[str, _Value]:
    """Read `parameter=value`."""
    parameter, _, value = (part.strip() for part in setting.partition("="))
    kind = parameters.get(parameter)
    if kind is None:
        known = ", ".join(parameters) or "none"
        raise ConfigError(f"policy {policy} has no parameter {parameter!r}; it has {known}")
    try:
        return parameter, _WORDS[value.lower()] if kind is bool else kind(value)
    except (ValueError, KeyError):
        wanted = {int: "a whole number", float: "a number", bool: "true or false"}[kind]
        raise ConfigError(f"policy {policy}: {parameter}={value} came, {wanted} is wanted") from None
