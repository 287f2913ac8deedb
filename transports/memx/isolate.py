"""A device group in a process of its own: its files are read here, its library is opened there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from repertory.models.program import Artifact, Program
from repertory.transports.address import Address
from repertory.transports.families import Connect
from repertory.transports.isolation.connect import isolated
from repertory.transports.isolation.device import Bounds
from repertory.transports.world import World

from .device import BIND_BOUND, PROBE_BOUND
from .program import prepare_dfp

__all__ = ["Isolation", "in_process"]

Isolation: TypeAlias = Literal["process", "none"]
"""Where a group's library and device are opened: in a child process, or in this one."""

_MARGIN: Final = 3.0  # seconds beyond the device's own bounds, in which a child process that is well answers


def in_process(address: Address, world: World, *, simulated: bool, bind_bound: float = BIND_BOUND) -> Connect:
    """Open an address in a child process, there without one.

    Raises:
        ConfigError: the time is virtual, or there is no Python to start.
    """

    def prepare(artifact: Artifact, readings: Mapping[str, float]) -> Program:
        return prepare_dfp(artifact, simulated=simulated, chips=int(readings.get("chips", 0)))

    bounds = Bounds(bind=bind_bound + _MARGIN, probe=PROBE_BOUND + _MARGIN)
    return isolated(address.given(isolation="none").text, world, prepare=prepare, bounds=bounds)
