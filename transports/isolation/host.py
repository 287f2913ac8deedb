"""The child's side: the real device on an event loop of its own, driven by what comes over the wire."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from typing import final

import anyio
from anyio.abc import TaskGroup

from repertory.models.errors import DeviceError, RepertoryError
from repertory.transports.device import Completion, Device
from repertory.transports.families import connect
from repertory.transports.frame import Fate, Outcome
from repertory.transports.real import RealWorld
from repertory.transports.world import Outbox

from .cargo import Frames, Programs
from .failures import pack
from .messages import (
    Abandon,
    Answer,
    Bind,
    Bound,
    Close,
    Closed,
    Done,
    Faulted,
    Logged,
    Open,
    Opened,
    Probe,
    Probed,
    Refused,
    Request,
    Run,
    Share,
    Ship,
    ToChild,
    ToParent,
)
from .wire import Wire, WireClosed

__all__ = ["Host"]

_log = logging.getLogger("repertory.isolation")


@final
class Host:
    """Serves one device until it is closed or the parent is gone.

    Args:
        end: the child's end of the connection.
        address: what to open.
    """

    def __init__(self, end: socket.socket, address: str) -> None:
        self._wire: Wire[ToParent, ToChild] = Wire(end, list[ToChild])
        self._address = address
        self._programs = Programs()
        self._frames = Frames()
        self._device: Device | None = None
        self._world: RealWorld
        self._logs: Outbox[ToParent]
        self._tasks: TaskGroup

    async def serve(self) -> None:
        """Obey until the parent closes the device, or is gone."""
        async with RealWorld() as self._world, anyio.create_task_group() as self._tasks:
            self._logs = self._world.outbox(self._send)
            try:
                while True:
                    await anyio.wait_readable(self._wire)
                    for message in self._wire.receive(wait=False):
                        self._obey(message)
            except WireClosed:
                self._logs.flush()  # the parent may still read why
                self._tasks.cancel_scope.cancel()

    def _obey(self, message: ToChild) -> None:
        try:
            self._dispatch(message)
        except Exception:  # noqa: BLE001  (a bad message must not end the process)
            _log.exception("%s could not be obeyed", type(message).__name__)

    def _dispatch(self, message: ToChild) -> None:
        match message:
            case Run():
                self._run(message)
            case Abandon(number):
                self._abandon(number)
            case Ship():
                with self._wire.file() as file:
                    self._programs.read(message, file, self._opened.prepare)
            case Share():
                with self._wire.file() as file:
                    self._frames.share(message, file)
            case _:
                self._tasks.start_soon(self._answer, message)

    # -- requests

    async def _answer(self, request: Request) -> None:
        try:
            answer = await self._carry_out(request)
        except Exception as error:  # noqa: BLE001  (told to whoever asked)
            if not isinstance(error, RepertoryError):
                _log.exception("%s failed", type(request).__name__)
            answer = Refused(request.serial, pack(error))
        self._logs.flush()  # what was logged meanwhile comes before the answer
        self._send([answer])
        if isinstance(answer, Closed):
            self._wire.shutdown()

    async def _carry_out(self, request: Request) -> Answer:
        match request:
            case Open(serial, level):
                return await self._open(serial, level)
            case Bind(serial, program, evict):
                return Bound(serial, await self._bind(program, evict))
            case Probe(serial):
                return Probed(serial, await self._opened.probe())
            case Close(serial, bound):
                if self._device is not None:
                    await self._device.close(bound=bound)
                return Closed(serial)

    async def _open(self, serial: int, level: int) -> Opened:
        forward = _Forward(self._logs, level)
        logging.getLogger("repertory").addHandler(forward)
        logging.getLogger("repertory").setLevel(level)
        self._device = device = connect(self._address, self._world)()
        await device.open(self._completed, self._fault)
        health = await device.probe()
        return Opened(serial, device.capabilities, dict(health.readings))

    @property
    def _opened(self) -> Device:
        assert self._device is not None, "the parent opens it before all else"
        return self._device

    async def _bind(self, key: str | None, evict: Sequence[str]) -> int | None:
        gone = self._programs.known(evict)
        try:
            program = None if key is None else self._programs[key].program
        except RepertoryError:
            await self._opened.bind(None, evict=gone)  # a bind that fails evicts all the same
            raise
        residency = await self._opened.bind(program, evict=gone)
        if program is None:
            self._programs.free(evict)
        return None if residency is None else residency.window

    # -- frames

    def _run(self, run: Run) -> None:
        try:
            self._frames.start(run, self._programs, self._opened.start)
        except Exception as error:  # noqa: BLE001  (whatever it was, the frame was not run)
            self._send([Done(run.number, Fate.UNDONE, failure=pack(error))])

    def _abandon(self, number: int) -> None:
        if (frame := self._frames.find(number)) is not None:
            frame.settle(Outcome.CANCELLED)
            self._opened.abandon(frame)

    def _completed(self, completions: Sequence[Completion]) -> None:
        self._send([self._frames.land(completion) for completion in completions])

    # -- to the parent

    def _fault(self, error: DeviceError) -> None:
        self._send([Faulted(pack(error))])

    def _send(self, messages: Sequence[ToParent]) -> None:
        try:
            self._wire.send(messages)
        except WireClosed:
            self._tasks.cancel_scope.cancel()


@final
class _Forward(logging.Handler):
    """Hands log records to the parent's logging."""

    def __init__(self, outbox: Outbox[ToParent], level: int) -> None:
        super().__init__(level)
        self._outbox = outbox

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._outbox.put(Logged(record.name, record.levelno, self.format(record)))
        except Exception:  # noqa: BLE001  (a bad record must not end whoever logs it)
            self.handleError(record)
