"""The DSP, its memory and its link to Linux: what is up, who is connected, and what is under way."""

from __future__ import annotations

import math
from collections import deque
from typing import Final, final

from repertory.models.errors import DeviceBusy, DeviceLost
from repertory.transports.rpmsg.endpoint import CREDITS

from .faults import Fault, Faults, Kind, bent
from .firmware import Firmware
from .memory import Carveout
from .module import Shelf
from .parameters import SimulatedC7x
from .protocol import header

__all__ = ["Board", "Port"]

_MIB: Final = 1 << 20


@final
class Port:
    """The host's end of a connection: replies that lie there, or will.

    Attributes:
        number: which connection this is.
        inbox: from when on a reply is visible, and its bytes; in their order.
        loss: why there will be no more, or None.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.inbox: deque[tuple[float, bytes]] = deque()
        self.loss: str | None = None

    def take(self, now: float) -> bytes | None:
        """Take the oldest message, if it is visible; those behind it wait for it."""
        if self.inbox and self.inbox[0][0] <= now:
            return self.inbox.popleft()[1]
        return None

    def lose(self, why: str) -> None:
        """End the connection; what lay there is lost too, as the kernel does it."""
        self.loss = self.loss or why
        self.inbox.clear()

    def check(self) -> None:
        """Raise DeviceLost where the connection has ended."""
        if self.loss is not None:
            raise DeviceLost(f"endpoint lost: {self.loss}", family="c7x", call="read")


@final
class Board:
    """State that changes by calls and by time; whoever calls holds what guards it.

    Args:
        params: what it is like.
        name: the DSP's.
        now: when it boots first.
        carveout: the shared memory; a new one, as the parameters say, without it.

    Attributes:
        faults: switches.
        notes: what hosts did wrong and no status told, over all boots.
        carveout: the shared memory.
        firmware: of this boot.
        boots: how often it has booted.
        port: the connection, or None.
    """

    def __init__(
        self, params: SimulatedC7x, name: str, now: float, *, carveout: Carveout | None = None
    ) -> None:
        self.faults = Faults()
        self.notes: list[str] = []
        self.carveout = carveout or Carveout(
            params.carveout_mb * _MIB, coherent=params.coherent, first_fit=params.first_fit
        )
        self.boots = 0
        self.port: Port | None = None
        self._params = params
        self._name = name
        self._shelf = Shelf(params)
        self._restart_at = math.inf
        self._ports = 0
        self._stopped = False
        self._inline = True
        self.firmware = self._booted(now, params.uptime_ms)

    def open_port(self, now: float, *, inline: bool) -> Port:
        """Connect; `inline` as for `Firmware`.

        Raises:
            DeviceLost: the core is stopped.
            DeviceBusy: somebody is connected.
        """
        self.advance(now)
        if self._stopped:
            raise DeviceLost(f"{self._name}: remoteproc is offline", family="c7x", call="open")
        if self.port is not None and self.port.loss is None:
            raise DeviceBusy(f"{self._name}: the endpoint is in use", family="c7x", call="open", status=-16)
        self._ports += 1
        self.port = Port(self._ports)
        self._inline = self.firmware.inline = inline
        return self.port

    def close_port(self, port: Port) -> None:
        """Disconnect. What the firmware still answers goes nowhere; what it was asked it still does."""
        port.lose("it was closed")
        if self.port is port:
            self.port = None
            self.firmware.inline = True  # no thread is left that would compute

    def accepts(self) -> bool:
        """Whether a buffer is free for the request that is to be sent."""
        return not self.faults.refuse_send() and self.firmware.waiting < CREDITS

    def deliver(self, port: Port, message: bytes, now: float) -> None:
        """Let a request arrive."""
        self.advance(now)
        if port.loss is None:
            self.firmware.deliver(port.number, message, now)

    def advance(self, now: float) -> None:
        """Do all that falls due up to `now`."""
        self.firmware.advance(now)
        while self._restart_at <= now:
            self.restart(self._restart_at)

    def next_event(self) -> float:
        """Return when something will happen by itself."""
        port = self.port
        arrival = port.inbox[0][0] if port is not None and port.inbox else math.inf
        return min(arrival, self._restart_at, self.firmware.next_event())

    def stop(self, seconds: float, now: float) -> None:
        """Stop the core in order: who is connected is told; it boots again after `seconds`."""
        self._lose_port("the core was stopped")
        self._stopped = True
        self._halt(seconds, now)

    def crash(self, seconds: float, now: float) -> None:
        """Let the core fall silent; for Linux it still runs."""
        self._halt(seconds, now)

    def restart(self, now: float) -> None:
        """Boot anew: handles and attachments are void, the uptime begins at 0."""
        self._lose_port("the core was restarted")
        self._stopped = False
        self._restart_at = math.inf
        self.carveout.detach()
        self.firmware = self._booted(now, 0)

    def _halt(self, seconds: float, now: float) -> None:
        self.firmware.halted = True
        self._restart_at = now + seconds

    def _lose_port(self, why: str) -> None:
        if self.port is not None:
            self.port.lose(why)

    def _booted(self, now: float, uptime_ms: int) -> Firmware:
        self.boots += 1
        firmware = Firmware(
            self._params,
            self.carveout,
            self._shelf,
            faults=self.faults,
            notes=self.notes,
            emit=self._emit,
            trouble=self._trouble,
            boot=(now, uptime_ms),
        )
        firmware.inline = self._inline
        return firmware

    def _trouble(self, fault: Fault, at: float) -> None:
        if fault.kind is Kind.STOP:
            self.stop(fault.seconds, at)
        else:
            self.crash(fault.seconds, at)

    def _emit(self, number: int, at: float, message: bytes) -> None:
        """Send a reply to the connection that asked, if it still is there."""
        fault = self.faults.reply(*header(message), at)
        port = self.port
        if port is None or port.number != number or port.loss is not None:
            return
        if fault is not None and fault.kind is Kind.DELAY:
            at += fault.seconds
        if self.faults.reader_delay is not None:
            at += self.faults.reader_delay()
        for arriving in [message] if fault is None else bent(message, fault.kind):
            port.inbox.append((at, arriving))
