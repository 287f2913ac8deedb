"""Opening an address in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from repertory.models.errors import ConfigError
from repertory.transports.address import Address
from repertory.transports.families import Connect
from repertory.transports.world import World

from .device import Bounds, IsolatedDevice, Prepare
from .interpreter import interpreter

__all__ = ["isolated"]

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_BOUNDS: Final = Bounds()


def isolated(
    text: str,
    world: World,
    *,
    prepare: Prepare,
    bounds: Bounds = _BOUNDS,
    environment: Mapping[str, str] = _NONE,
) -> Connect:
    """Return what opens an address, each time in a new child process.

    Args:
        text: the address; it is opened in the child, and only looked at here.
        world: real time.
        prepare: reads a model file in this process.
        bounds: for the child's answers.
        environment: variables that the child finds beside those of this process.

    Raises:
        ConfigError: the address has no scheme, the time is virtual, or there is no Python to start.
    """
    family = Address.parse(text).scheme.removeprefix("sim+")
    if world.virtual:
        raise ConfigError(f"{text}: a process does not run on virtual time")
    interpreter()
    return lambda: IsolatedDevice(
        world, text, family=family, prepare=prepare, bounds=bounds, environment=environment
    )
