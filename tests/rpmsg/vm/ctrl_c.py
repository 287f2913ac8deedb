"""A DSP at whose first wait for an answer somebody presses Ctrl-C."""

from __future__ import annotations

import os
import signal
from typing import final

from repertory.transports.rpmsg.dsp import Dsp
from repertory.transports.rpmsg.endpoint import Endpoint
from repertory.transports.rpmsg.memory import Buffer

__all__ = ["INFER", "LOAD", "CtrlC"]

LOAD, INFER = b"\x10\0\0\0", b"\x21\0\0\0"


@final
class CtrlC(Dsp):
    """Another DSP, and the signal.

    Attributes:
        at: how the request begins at whose wait the signal comes, once; empty for none.
        signal: which.
    """

    def __init__(self, dsp: Dsp) -> None:
        self.name, self.simulated = dsp.name, dsp.simulated
        self.at = b""
        self.signal = signal.SIGINT
        self._dsp = dsp

    async def open_endpoint(self) -> Endpoint:
        return _Endpoint(await self._dsp.open_endpoint(), self)

    def allocate(self, size: int) -> Buffer:
        return self._dsp.allocate(size)

    def close(self) -> None:
        self._dsp.close()


@final
class _Endpoint(Endpoint):
    def __init__(self, endpoint: Endpoint, owner: CtrlC) -> None:
        self._endpoint = endpoint
        self._owner = owner
        self._due = False

    def send(self, message: bytes) -> bool:
        if self._owner.at and message.startswith(self._owner.at):
            self._owner.at, self._due = b"", True
        return self._endpoint.send(message)

    async def receive(self, timeout: float | None) -> bytes | None:
        if self._due:
            self._due = False
            os.kill(os.getpid(), self._owner.signal)
        return await self._endpoint.receive(timeout)

    def wake(self) -> None:
        self._endpoint.wake()

    def close(self) -> None:
        self._endpoint.close()
