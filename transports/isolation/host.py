"""The child's side: the real device on an event loop of its own, driven by what comes over the wire."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import anyio
from anyio.abc import TaskGroup

from repertory.models.errors import ArtifactError, DeviceError, RepertoryError
from repertory.models.program import Artifact, Program
from repertory.transports.device import Completion, Device
from repertory.transports.families import connect
from repertory.transports.frame import Fate, Frame, Outcome
from repertory.transports.real import RealWorld
from repertory.transports.world import Outbox

from .failures import as_device_error, pack
from .layout import Layout
from .memory import Arena, content
from .messages import (
    Abandon,
    Answer,
    Bind,
    Bound,
    Close,
    Closed,
    Done,
    Faulted,
    Inline,
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
@dataclass(frozen=True, slots=True)
class _Running:
    """A frame on the device, by its number, and where its outputs go."""

    number: int
    layout: Layout
    arena: Arena
    slot: int


@final
@dataclass(frozen=True, slots=True)
class _Loaded:
    """A program as the device here prepared it, with its networks' layouts."""

    program: Program
    layouts: tuple[Layout, ...]


@final
class Host:
    """Serves one device until it is closed or the parent is gone.

    Args:
        end: the child's end of the connection.
        address: what to open.
    """

    def __init__(self, end: socket.socket, address: str) -> None:
        self._wire: Wire[ToParent, ToChild] = Wire(end, ToChild)
        self._address = address
        self._programs: dict[str, _Loaded | RepertoryError] = {}
        self._running: dict[Frame, _Running] = {}
        self._frames: dict[int, Frame] = {}
        self._arena: Arena | None = None
        self._device: Device | None = None
        self._world: RealWorld
        self._tasks: TaskGroup

    async def serve(self) -> None:
        """Obey until the parent closes the device, or is gone."""
        async with RealWorld() as self._world, anyio.create_task_group() as self._tasks:
            try:
                while True:
                    await anyio.wait_readable(self._wire)
                    for message in self._wire.receive(wait=False):
                        self._obey(message)
            except WireClosed:
                self._tasks.cancel_scope.cancel()

    def settled(self, frame: Frame, /) -> None:
        """Its callers are in the parent."""

    def expire(self, frame: Frame, /) -> None:
        """Deadlines are kept in the parent."""

    def _obey(self, message: ToChild) -> None:
        try:
            self._dispatch(message)
        except Exception:
            _log.exception("%s could not be obeyed", type(message).__name__)

    def _dispatch(self, message: ToChild) -> None:
        match message:
            case Run():
                self._run(message)
            case Abandon(number):
                self._abandon(number)
            case Ship():
                self._programs[message.key] = self._read(message)
            case Share(slot_size):
                self._arena = self._map(slot_size)
            case _:
                self._tasks.start_soon(self._answer, message)

    # -- requests

    async def _answer(self, request: Request) -> None:
        try:
            answer = await self._carry_out(request)
        except Exception as error:
            if not isinstance(error, RepertoryError):
                _log.exception("%s failed", type(request).__name__)
            answer = Refused(request.serial, pack(error))
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
        forward = _Forward(self._world.outbox(self._send), level)
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
        gone = [loaded.program for each in evict if isinstance(loaded := self._programs.get(each), _Loaded)]
        loaded = None if key is None else self._programs[key]
        if isinstance(loaded, _Loaded):
            residency = await self._opened.bind(loaded.program, evict=gone)
            return None if residency is None else residency.window
        await self._opened.bind(None, evict=gone)
        if loaded is not None:
            raise loaded
        for each in evict:
            self._programs.pop(each, None)
        return None

    # -- files and memory

    def _read(self, ship: Ship) -> _Loaded | RepertoryError:
        try:
            with self._wire.file() as file:
                data, twin = content(file, ship.size, ship.twin or 0)
            artifact = Artifact(ship.name, data, ship.network, None if ship.twin is None else twin)
            program = self._opened.prepare(artifact)
        except RepertoryError as error:
            return error
        if program.key != ship.key:
            return ArtifactError(f"{ship.name} is another program to the device than to who prepared it")
        return _Loaded(program, tuple(map(Layout, program.networks)))

    def _map(self, slot_size: int) -> Arena:
        with self._wire.file() as file:
            return Arena(file, slot_size)

    # -- frames

    def _run(self, run: Run) -> None:
        try:
            frame, place = self._place(run)
            self._opened.start(frame)
        except Exception as error:  # noqa: BLE001  (whatever it was, the frame was not run)
            self._send([Done(run.number, Fate.UNDONE, failure=pack(error))])
        else:
            self._running[frame] = place
            self._frames[run.number] = frame

    def _place(self, run: Run) -> tuple[Frame, _Running]:
        loaded, arena = self._programs[run.program], self._arena
        assert isinstance(loaded, _Loaded), "frames come after a bind"
        assert arena is not None, "frames come after their memory"
        layout, network = loaded.layouts[run.network], loaded.program.networks[run.network]
        inputs = tuple(layout.inputs.load(run.inline, arena.memory, run.slot * arena.slot_size))
        frame = Frame(self, network, inputs, program=loaded.program)
        return frame, _Running(run.number, layout, arena, run.slot)

    def _abandon(self, number: int) -> None:
        if (frame := self._frames.get(number)) is not None:
            frame.settle(Outcome.CANCELLED)
            self._opened.abandon(frame)

    def _completed(self, completions: Sequence[Completion]) -> None:
        self._send([self._done(completion) for completion in completions])

    def _done(self, completion: Completion) -> Done:
        """Bring a frame's outputs to its slot; one that has too many or too few is FAILED."""
        running = self._running.pop(completion.frame)
        del self._frames[running.number]
        arena, failure = running.arena, completion.error
        inline: list[Inline | None] = []
        fate = completion.fate
        if fate is Fate.DONE:
            try:
                base = running.slot * arena.slot_size
                inline = running.layout.outputs.store(completion.outputs, arena.memory, base)
            except Exception as error:  # noqa: BLE001  (the device's outputs are not what they should be)
                fate, failure = Fate.FAILED, as_device_error(pack(error))
        if completion.release is not None:
            completion.release()
        told = None if failure is None else pack(failure)
        return Done(running.number, fate, inline, told, completion.busy, completion.transfer)

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
        self._outbox.put(Logged(record.name, record.levelno, self.format(record)))
