"""A simulated C7x in a process of its own, so that it shares no interpreter with the host that it serves.

It never sleeps, as a DSP needs no scheduler of Linux to look at its mailbox: it takes one core.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal, final

from repertory.transports.device import Device
from repertory.transports.rpmsg.device import C7xDevice
from repertory.transports.rpmsg.dsp import Dsp
from repertory.transports.rpmsg.endpoint import Endpoint
from repertory.transports.rpmsg.linux.endpoint import READ, FdEndpoint
from repertory.transports.rpmsg.memory import Buffer
from repertory.transports.rpmsg.simulator.board import Board
from repertory.transports.rpmsg.simulator.memory import Carveout
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from repertory.transports.world import World

__all__ = ["ProcessDsp", "device"]

CARVEOUT = 512 << 20


@final
class ProcessDsp(Dsp):
    """One DSP for one connection; it ends when that is closed.

    Args:
        wire: protocol version.
        latency_ms: of a job.
    """

    name = "another process"
    simulated = True

    def __init__(self, wire: int, latency_ms: float) -> None:
        memory = os.memfd_create("repertory-c7x", os.MFD_CLOEXEC)
        os.truncate(memory, CARVEOUT)
        self._carveout = Carveout(CARVEOUT, coherent=True, first_fit=True, file=memory)
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._child = subprocess.Popen(  # noqa: S603  (this very file)
                [sys.executable, str(Path(__file__)), *map(str, (theirs.fileno(), memory, wire, latency_ms))],
                pass_fds=(theirs.fileno(), memory),
            )
        os.close(memory)

    async def open_endpoint(self) -> Endpoint:
        return FdEndpoint(self._ours.detach(), now=time.monotonic, empty_is_end=True)

    def allocate(self, size: int) -> Buffer:
        return self._carveout.allocate(size)

    def close(self) -> None:
        self._child.wait()


def device(world: World, wire: int, latency_ms: float) -> Device:
    """Return a device that serves such a DSP."""
    return C7xDevice(world, lambda: ProcessDsp(wire, latency_ms), name=ProcessDsp.name, simulated=True)


def serve(link: socket.socket, memory: int, wire: Literal[2, 3], latency_ms: float) -> None:
    """Be the DSP until the host closes its end."""
    params = SimulatedC7x(wire=wire, latency_ms=latency_ms, load_ms=1, answers="hash")
    carveout = Carveout(CARVEOUT, coherent=True, first_fit=True, file=memory)
    board = Board(params, ProcessDsp.name, time.monotonic(), carveout=carveout)
    carveout.allocate(CARVEOUT)  # what the host attaches is all attached here
    port = board.open_port(time.monotonic(), inline=True)
    link.setblocking(False)
    with suppress(ConnectionError):  # the host is gone
        while True:
            now = time.monotonic()
            board.advance(now)
            while (reply := port.take(now)) is not None:
                link.send(reply)
            with suppress(BlockingIOError):
                if not (message := link.recv(READ)):
                    return
                board.deliver(port, message, time.monotonic())


if __name__ == "__main__":
    fd, memory_fd, version, latency = sys.argv[1:]
    serve(socket.socket(fileno=int(fd)), int(memory_fd), 2 if version == "2" else 3, float(latency))
