"""A DSP in a process of its own: its modules are read here, and run there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from repertory.models.program import Artifact, Program
from repertory.transports.address import Address
from repertory.transports.families import Connect
from repertory.transports.isolation.connect import isolated
from repertory.transports.isolation.device import Bounds
from repertory.transports.world import World

from .device import PROBE_BOUND
from .engine import RUN_BOUND
from .program import prepare_dynmod
from .session import LOAD_BOUND, OPEN_BOUND

__all__ = ["Isolation", "in_process"]

Isolation: TypeAlias = Literal["process", "none"]
"""Where a DSP is opened: in a child process, or in this one."""

_MARGIN: Final = 5.0  # seconds beyond the device's own bounds, in which a child process that is well answers
_START: Final = 15.0  # likewise for the open, with the start of the process


def in_process(
    address: Address,
    world: World,
    *,
    simulated: bool = True,
    any_machine: bool = False,
    run_bound: float = RUN_BOUND,
    load_bound: float = LOAD_BOUND,
) -> Connect:
    """Open an address of a DSP in a child process, there without one.

    Raises:
        ConfigError: the time is virtual, or there is no Python to start.
    """

    def prepare(artifact: Artifact, _readings: Mapping[str, float]) -> Program:
        return prepare_dynmod(artifact, simulated=simulated, any_machine=any_machine)

    bounds = Bounds(
        open=max(OPEN_BOUND, run_bound) + _START,
        bind=2 * load_bound + _MARGIN,
        probe=PROBE_BOUND + _MARGIN,
    )
    return isolated(address.given(isolation="none").text, world, prepare=prepare, bounds=bounds)
