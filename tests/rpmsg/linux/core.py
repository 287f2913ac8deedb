"""The simulated firmware at the other end of a fake kernel: as near to a board as no board comes."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, cast, final

from repertory.transports.rpmsg.simulator.faults import Fault, Faults
from repertory.transports.rpmsg.simulator.firmware import Firmware
from repertory.transports.rpmsg.simulator.memory import Carveout
from repertory.transports.rpmsg.simulator.module import Shelf
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x

from .machine import BASE, CARVEOUT, Channel, DmaBuf, Machine

__all__ = ["Core", "running"]


@final
class _Memory:
    """What the DSP sees of the machine's dma-bufs, and only of those that are attached."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def holds(self, address: int, size: int) -> bool:
        return address >= BASE and address + size <= BASE + CARVEOUT

    def attached(self, address: int, size: int) -> bool:
        """Whether first and last byte are; nothing the DSP reads or writes spans a buffer in between."""
        return self._buffer(address) is not None and self._buffer(address + max(size, 1) - 1) is not None

    def read(self, address: int, size: int) -> bytes:
        buffer = self._buffer(address)
        assert buffer is not None, f"the DSP reads at {address:#x}, where nothing is attached"
        return os.pread(buffer.fd, size, address - buffer.address)

    def write(self, address: int, data: bytes) -> None:
        buffer = self._buffer(address)
        assert buffer is not None, f"the DSP writes at {address:#x}, where nothing is attached"
        os.pwrite(buffer.fd, data, address - buffer.address)

    def _buffer(self, address: int) -> DmaBuf | None:
        for buffer in self._machine.buffers:
            if buffer.attached and buffer.address <= address < buffer.address + buffer.size:
                return buffer
        return None


@final
class Core:
    """A core in a thread, which takes what is written to endpoints and answers there.

    Attributes:
        firmware: of this boot.
        notes: what the host did wrong, over all boots.
    """

    def __init__(self, machine: Machine, params: SimulatedC7x) -> None:
        self.notes: list[str] = []
        self._machine = machine
        self._params = params
        self._shelf = Shelf(params)
        self._condition = threading.Condition()
        self._channels: dict[int, Channel] = {}
        self._ended = False
        self.firmware: Firmware
        self.boot()
        machine.served = self._served

    def boot(self) -> None:
        """Begin anew."""
        with self._condition:
            self._channels.clear()
            self.firmware = Firmware(
                self._params,
                cast("Carveout", _Memory(self._machine)),
                self._shelf,
                faults=Faults(),
                notes=self.notes,
                emit=self._emit,
                trouble=_none,
                boot=(time.monotonic(), self._params.uptime_ms),
            )

    def run(self) -> None:
        """Let time pass for the firmware."""
        with self._condition:
            while not self._ended:
                self.firmware.advance(time.monotonic())
                at = self.firmware.next_event()
                self._condition.wait(None if at == math.inf else max(at - time.monotonic(), 0))

    def end(self) -> None:
        with self._condition:
            self._ended = True
            self._condition.notify()

    def _served(self, channel: Channel) -> None:
        with self._condition:
            self._channels[channel.fd] = channel
            self.firmware.deliver(channel.fd, self._machine.consume(channel), time.monotonic())
            self._condition.notify()

    def _emit(self, port: int, _at: float, message: bytes) -> None:
        """A reply to an endpoint that is gone goes nowhere."""
        channel = self._channels[port]
        if channel.fd == port and channel.peer is not None:
            with suppress(OSError):
                channel.peer.send(message)


def _none(_fault: Fault, _at: float) -> None:
    """No faults are asked for here."""


@contextmanager
def running(machine: Machine, wire: Any, **options: Any) -> Generator[Core]:
    """Let a DSP run behind a fake kernel."""
    usual: dict[str, Any] = {"answers": "hash", "load_ms": 1.0}
    core = Core(machine, SimulatedC7x(wire=wire, **{**usual, **options}))
    thread = threading.Thread(target=core.run, daemon=True)
    thread.start()
    try:
        yield core
    finally:
        core.end()
        thread.join(10)
        assert not thread.is_alive()
