"""The parent's end of the connection: one driver loop writes to the child, one reads."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from repertory.models.errors import DeviceLost
from repertory.models.program import Artifact, Program
from repertory.models.spec import Array
from repertory.transports.device import Completion
from repertory.transports.frame import Fate, Frame
from repertory.transports.world import Channel, ChannelClosed, Outbox, World

from .failures import as_device_error
from .layout import Layout
from .memory import Arena, sealed
from .messages import Abandon, Answer, Done, Faulted, Logged, Request, Run, Share, Ship, ToChild, ToParent
from .process import Process
from .wire import Wire, WireClosed

__all__ = ["Event", "Link", "Shipment"]

Event: TypeAlias = Completion | Answer | Faulted

_BURST: Final = 1 << 20
"""Bytes of tensors after which a batch goes out, so that the child begins while the rest is copied."""

_DYING: Final = 1.0
"""Seconds that a child may take to end after its connection has."""


@final
@dataclass(frozen=True, slots=True)
class Shipment:
    """The image of a program: the file, from which each child makes its own."""

    artifact: Artifact


@final
@dataclass(frozen=True, slots=True)
class _Ship:
    key: str
    artifact: Artifact


@final
@dataclass(frozen=True, slots=True)
class _Grow:
    slots: int
    slot_size: int


@final
@dataclass(frozen=True, slots=True)
class _Drop:
    frame: Frame


@final
@dataclass(frozen=True, slots=True)
class _Sent:
    """A frame in the child, and where its tensors lie."""

    frame: Frame
    layout: Layout
    arena: Arena
    slot: int


@final
class Link:
    """Takes orders on the event loop, and puts what comes back into an outbox.

    Tensors are copied in the loops, never on the event loop. What is ordered while the writer works goes out
    as one batch.

    Args:
        world: for the channel.
        process: the child, which has one link.
        outbox: gets completions, answers and faults.
        layouts: by program key and network name; the owner adds a program's before its frames.
        family: for errors.
    """

    def __init__(
        self,
        world: World,
        process: Process,
        outbox: Outbox[Event],
        layouts: Mapping[tuple[str, str], tuple[int, Layout]],
        *,
        family: str,
    ) -> None:
        self._process = process
        self._outbox = outbox
        self._layouts = layouts
        self._family = family
        self._wire: Wire[ToChild, ToParent] = Wire(process.end, list[ToParent])
        self._orders: deque[Frame | Request | _Ship | _Grow | _Drop] = deque()
        self._bell: Channel[None] = world.channel()
        self._rung = False
        self._batch: list[ToChild] = []
        self._copied = 0
        self._count = 0
        self._arena: Arena | None = None
        self._sent: dict[int, _Sent] = {}

    def run(self, frame: Frame) -> None:
        """Send a frame; it is completed as UNDONE where its caller has gone before."""
        self._order(frame)

    def abandon(self, frame: Frame) -> None:
        """Nobody waits for a frame any more."""
        self._order(_Drop(frame))

    def request(self, request: Request) -> None:
        """Send a request."""
        self._order(request)

    def ship(self, program: Program, artifact: Artifact) -> None:
        """Let the child read a program's file."""
        self._order(_Ship(program.key, artifact))

    def reserve(self, slots: int, slot_size: int) -> None:
        """Let later frames have slots of at least that size."""
        self._order(_Grow(slots, slot_size))

    def shutdown(self) -> None:
        """Let both loops end."""
        self._bell.close()
        self._wire.shutdown()

    def close(self) -> None:
        """Give back descriptors and memory; both loops have ended."""
        self._wire.close()
        self._arena = None
        self._sent.clear()
        self._orders.clear()

    # -- to the child

    async def write(self) -> None:
        """The writer's driver loop."""
        try:
            while True:
                await self._bell.get()
                self._rung = False  # before looking: what is ordered from here on rings again
                while self._orders:
                    self._put(self._orders.popleft())
                self._send()
        except (ChannelClosed, WireClosed):
            return  # the reader tells what became of the child

    def _order(self, order: Frame | Request | _Ship | _Grow | _Drop) -> None:
        self._orders.append(order)
        if not self._rung:
            self._rung = True
            self._bell.put(None)

    def _put(self, order: Frame | Request | _Ship | _Grow | _Drop) -> None:
        match order:
            case Frame():
                self._put_frame(order)
            case _Drop(frame):
                self._batch += [Abandon(n) for n, sent in list(self._sent.items()) if sent.frame is frame]
            case _Ship(key, artifact):
                self._put_file(key, artifact)
            case _Grow(slots, slot_size):
                self._grow(slots, slot_size)
            case _:
                self._batch.append(order)

    def _put_frame(self, frame: Frame) -> None:
        if frame.outcome is not None:
            lost = DeviceLost("the frame was not run", family=self._family)
            self._outbox.put(Completion(frame, Fate.UNDONE, error=lost))
            return
        assert frame.program is not None, "a started frame has its program"
        assert self._arena is not None, "a bind made place"
        key, arena = frame.program.key, self._arena
        index, layout = self._layouts[key, frame.network.name]
        slot = arena.take()
        inline = layout.inputs.store(frame.inputs, arena.memory, slot * arena.slot_size)
        number = self._count = self._count + 1
        self._sent[number] = _Sent(frame, layout, arena, slot)
        self._batch.append(Run(number, key, index, slot, inline))
        self._copied += frame.nbytes
        if self._copied >= _BURST:
            self._send()

    def _put_file(self, key: str, artifact: Artifact) -> None:
        parts = (artifact.twin, artifact.sidecar)
        with sealed(artifact.data, *(part or b"" for part in parts)) as file:
            native = artifact.native_outputs
            twin, sidecar = (None if part is None else len(part) for part in parts)
            ship = Ship(key, artifact.name, artifact.network, len(artifact.data), twin, sidecar, native)
            self._batch.append(ship)
            self._send(file)

    def _grow(self, slots: int, slot_size: int) -> None:
        if self._arena is not None and self._arena.slot_size >= slot_size:
            return
        with Arena.file(slots, slot_size) as file:
            self._arena = Arena(file, slot_size)
            self._batch.append(Share(slot_size))
            self._send(file)

    def _send(self, *files: int) -> None:
        batch, self._batch = self._batch, []
        self._copied = 0
        if batch:
            self._wire.send(batch, files)

    # -- from the child

    async def read(self) -> None:
        """The reader's driver loop; it ends when the child does.

        Raises:
            DeviceLost: tells how that was.
        """
        try:
            while True:
                for message in self._wire.receive(wait=True):
                    self._take(message)
        except WireClosed:
            self._process.kill()
            raise DeviceLost(self._process.autopsy(_DYING), family=self._family) from None

    def _take(self, message: ToParent) -> None:
        match message:
            case Done():
                self._complete(message)
            case Logged(logger, level, text):
                logging.getLogger(logger).log(level, "%s", text)
            case _:
                self._outbox.put(message)

    def _complete(self, done: Done) -> None:
        sent = self._sent.pop(done.number, None)
        if sent is None:
            return
        arena, frame = sent.arena, sent.frame
        outputs: tuple[Array, ...] = ()
        if done.fate is Fate.DONE:
            views = sent.layout.outputs.load(done.inline, arena.memory, sent.slot * arena.slot_size)
            outputs = tuple(view.copy() for view in views)
        arena.give_back(sent.slot)
        error = None if done.failure is None else as_device_error(done.failure)
        completion = Completion(
            frame, done.fate, outputs, error=error, busy=done.busy, transfer=done.transfer
        )
        self._outbox.put(completion)
