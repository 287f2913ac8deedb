"""An NPU in a process of its own: model files are read here, and loaded there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from repertory.models.program import Artifact, Program
from repertory.transports.address import Address
from repertory.transports.families import Connect
from repertory.transports.isolation.connect import isolated
from repertory.transports.isolation.device import Bounds
from repertory.transports.world import World

from .device import OPEN_BOUND, PROBE_BOUND, UNLOAD_BOUND, Prepare

__all__ = ["Isolation", "in_process"]

Isolation: TypeAlias = Literal["process", "none"]
"""Where an NPU is opened: in a child process, or in this one."""

_MARGIN: Final = 5.0  # seconds beyond the device's own bounds, in which a child process that is well answers
_START: Final = 15.0  # likewise for the open, with the start of the process


def in_process(
    address: Address,
    world: World,
    prepare: Prepare,
    *,
    run_bound: float,
    load_bound: float,
) -> Connect:
    """Open an address of an NPU in a child process, there without one.

    Raises:
        ConfigError: the time is virtual, or there is no Python to start.
    """

    def read(artifact: Artifact, _readings: Mapping[str, float]) -> Program:
        return prepare(artifact)

    bounds = Bounds(
        open=OPEN_BOUND + _START,
        bind=load_bound + run_bound + UNLOAD_BOUND + _MARGIN,
        probe=PROBE_BOUND + _MARGIN,
    )
    return isolated(address.given(isolation="none").text, world, prepare=read, bounds=bounds)
