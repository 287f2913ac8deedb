"""The lowest interface: one DSP, as Linux shows it to a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from .endpoint import Endpoint
from .memory import Buffer

__all__ = ["DSPS", "Dsp", "dsp_name"]

DSPS: Final = ("7e000000.dsp", "7e200000.dsp")
"""The C7x of AM67A and J722S, by their names in the device tree; c7x_compute is made for the first."""


def dsp_name(target: str) -> str:
    """Return the DSP that an address's target means: a number is an index of `DSPS`, nothing is the first."""
    return {"": DSPS[0], "0": DSPS[0], "1": DSPS[1]}.get(target, target)


class Dsp(ABC):
    """A DSP that runs c7x_compute; used by one driver loop, and by one process at a time.

    Attributes:
        name: as in its address: `7e000000.dsp`.
        simulated: whether no hardware stands behind it.
    """

    name: str
    simulated: bool

    @abstractmethod
    async def open_endpoint(self) -> Endpoint:
        """Make an endpoint towards the firmware; driver code, and may wait for udev for some seconds.

        Raises:
            DeviceLost: the DSP is not there, runs no such firmware, or this process may not use it; says
                which node, and what to do.
            DeviceBusy: somebody else has the endpoint.
        """

    @abstractmethod
    def allocate(self, size: int) -> Buffer:
        """Take memory from the DSP's carveout, rounded up to whole pages, and attach it.

        The kernel gives the first stretch that is free: on an empty carveout, buffers lie one behind the
        other in the order of their allocation.

        Raises:
            DeviceBusy: the carveout is full; another process may have it.
            DeviceLost: there is no such heap, or this process may not use it.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back what the endpoint and the buffers do not own. Any number of times."""
