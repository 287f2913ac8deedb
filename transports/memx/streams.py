"""The stream calls: one driver loop writes frames, one reads them; pairs are made by counting.

libmemx keeps strict order within a flow, in and out, and tells nothing of which output belongs to which
input. So frames are written whole, one after the other, and read in that very order; a frame that was
begun is never withdrawn, and one whose caller has gone is read out all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from repertory.models.errors import DeviceError, DeviceLost
from repertory.models.port import Port
from repertory.models.spec import Array
from repertory.transports.device import Completion
from repertory.transports.frame import Fate, Frame
from repertory.transports.pump import NativeTimeout
from repertory.transports.world import Channel, ChannelClosed, Outbox, World

from .library import Libmemx
from .program import Ports, loadable
from .transfer import GivenUp, Transfer

__all__ = ["Streams"]


@final
@dataclass(slots=True)
class _Written:
    """A frame on its way to the reader: written from `began` to `ended`, or skipped (None)."""

    frame: Frame
    began: float
    ended: float | None


@final
class Streams:
    """Both directions of one group's running context; no call is made while nothing is outstanding.

    Attributes:
        model_id: the running context's; changed only while no frame is in flight.
        closing: lets the writer skip what it has not begun; what was written is still read out.
    """

    def __init__(
        self,
        library: Libmemx,
        world: World,
        outbox: Outbox[Completion],
        timeout: NativeTimeout,
        *,
        zero_copy: bool,
    ) -> None:
        self.model_id = 0
        self.closing = False
        self.to_write: Channel[Frame] = world.channel()
        self._to_read: Channel[_Written] = world.channel()
        self._world = world
        self._outbox = outbox
        self._timeout = timeout
        self._transfer = Transfer(library, timeout, zero_copy=zero_copy)
        self._last_done = 0.0

    def give_up(self) -> None:
        """Let both loops end instead of waiting on; the reader too where the writer's call never returns."""
        self._transfer.given_up = True
        self._to_read.close()

    async def write(self) -> None:
        """The writer's driver loop."""
        try:
            while True:
                self._to_read.put(await self._send(await self.to_write.get()))  # no name keeps the last frame
        except (ChannelClosed, GivenUp):
            self._to_read.close()

    async def read(self) -> None:
        """The reader's driver loop."""
        try:
            while True:
                self._outbox.put(await self._read(await self._to_read.get()))
        except ChannelClosed:
            return

    async def calibrate(self, port: Port) -> None:
        """Measure on an empty output how long one short time-out of the library really takes."""
        began = self._world.now()
        if await self._transfer.times_out(self.model_id, port, 1):
            self._timeout.learn(asked=1, took=self._world.now() - began)

    async def _send(self, frame: Frame) -> _Written:
        began = self._world.now()
        skipped = frame.outcome is not None or self.closing
        ended = None if skipped else await self._write(frame)
        return _Written(frame, began, ended)

    async def _write(self, frame: Frame) -> float:
        """Send a frame's ports, unbroken; return when the last one was sent."""
        for port, array in zip(_ports(frame).inputs, frame.inputs, strict=True):
            await self._transfer.send(self.model_id, port, array)
        return self._world.now()

    async def _read(self, written: _Written) -> Completion:
        frame = written.frame
        if written.ended is None:
            return _undone(frame)
        outputs: list[Array] = []
        try:
            for port in _ports(frame).outputs:
                outputs.append(await self._transfer.receive(self.model_id, port))  # noqa: PERF401
        except GivenUp:
            return _undone(frame)
        now = self._world.now()
        busy = now - max(written.ended, self._last_done)
        self._last_done = now
        transfer = written.ended - written.began
        return Completion(frame, Fate.DONE, tuple(outputs), busy=busy, transfer=transfer)


def _ports(frame: Frame) -> Ports:
    assert frame.program is not None, "a started frame has its program"
    return loadable(frame.program).ports[frame.network.name]


def _undone(frame: Frame) -> Completion:
    error: DeviceError = DeviceLost("the frame was not run", family="memx")
    return Completion(frame, Fate.UNDONE, error=error)
