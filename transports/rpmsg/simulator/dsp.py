"""A simulated DSP as Linux would show it, and as a test sees it from outside."""

from __future__ import annotations

import math
import os
from typing import final

from repertory.models.errors import DeviceLost
from repertory.transports.real import RealWorld
from repertory.transports.rpmsg.dsp import Dsp
from repertory.transports.rpmsg.endpoint import Endpoint
from repertory.transports.world import World

from .board import Board
from .faults import Faults
from .firmware import Firmware
from .memory import SimulatedBuffer
from .parameters import SimulatedC7x
from .sockets import SocketEndpoint
from .virtual import VirtualEndpoint

__all__ = ["SimulatedDsp"]


@final
class SimulatedDsp(Dsp):
    """Outlives whoever opens it, as hardware does: what they left loaded stays loaded. A fork cannot use it.

    Args:
        params: what it is like.
        world: virtual time, in which endpoints are plain calls; or real time, with sockets and a thread for
            each endpoint. Without one, real time.
        name: as in an address.

    Attributes:
        faults: switches.
    """

    simulated = True

    def __init__(
        self, params: SimulatedC7x | None = None, world: World | None = None, *, name: str = "7e000000.dsp"
    ) -> None:
        self.name = name
        self._process = os.getpid()
        self._world = RealWorld() if world is None else world
        self._now = self._world.now
        self._condition = self._world.condition()
        self._board = Board(SimulatedC7x() if params is None else params, name, self._now())
        self.faults: Faults = self._board.faults

    @property
    def firmware(self) -> Firmware:
        """The firmware of this boot, brought up to the present."""
        with self._condition:
            self._board.advance(self._now())
            return self._board.firmware

    @property
    def boots(self) -> int:
        """How often it has booted."""
        with self._condition:
            self._board.advance(self._now())
            return self._board.boots

    @property
    def leaks(self) -> list[SimulatedBuffer]:
        """Buffers that nobody has closed."""
        return list(self._board.carveout.buffers)

    async def open_endpoint(self) -> Endpoint:
        self._check_process()
        if self._world.virtual:
            return VirtualEndpoint(self._board, self._condition, self._now)
        return SocketEndpoint(self._board, self._condition, self._now, self.name)

    def allocate(self, size: int) -> SimulatedBuffer:
        self._check_process()
        with self._condition:
            return self._board.carveout.allocate(size)

    def close(self) -> None:
        """Nothing: endpoint and buffers own all there is."""

    def stop(self, seconds: float = math.inf) -> None:
        """Stop the core as Linux does: endpoints are lost, until it boots again after `seconds`."""
        with self._condition:
            self._board.advance(self._now())
            self._board.stop(seconds, self._now())
            self._condition.notify()

    def crash(self, seconds: float = math.inf) -> None:
        """Let the core fall silent, which nobody is told; it boots again after `seconds`."""
        with self._condition:
            self._board.advance(self._now())
            self._board.crash(seconds, self._now())
            self._condition.notify()

    def hang(self) -> None:
        """Let the request that runs never end, or else the next one that takes time."""
        with self._condition:
            self._board.advance(self._now())
            self._board.firmware.hang()
            self._condition.notify()

    def restart(self) -> None:
        """Boot anew, now."""
        with self._condition:
            self._board.advance(self._now())
            self._board.restart(self._now())
            self._condition.notify()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise DeviceLost(
                f"{self.name}: this simulated DSP is that of another process, which forked", family="c7x"
            )
