"""The driver loop of one DSP: stages inputs, sends jobs, copies results out.

Inputs are laid into slots, one more than jobs may be outstanding; a staged job is sent when a result area
is free. Version 2 of the protocol has one area, for every result lands at the same place: so the next job
is staged while one runs, and sent only after the result of that one has been copied. Version 3 names the
area in the request: there are two, and the DSP never waits for us.

One loop, in one thread, owns the endpoint and the memory. So nothing is locked, and a cache is never
invalidated with bytes in it that were not yet flushed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

from repertory.models.errors import DeviceError, DeviceHung, DeviceLost
from repertory.models.spec import Array, TensorSpec
from repertory.transports.device import Completion
from repertory.transports.frame import Fate, Frame
from repertory.transports.pump import Order, Orders
from repertory.transports.world import Channel, ChannelClosed, Outbox, World

from .client import PING_BOUND, Request, refusal
from .errors import Status
from .memory import Window
from .session import Session
from .tensors import Staged, read_outputs, stage
from .wire import requests
from .wire.messages import Inferred, Job, Opcode, Span

__all__ = ["PINGS", "RUN_BOUND", "Engine"]

RUN_BOUND: Final = 10.0
"""Seconds without an answer, while jobs are outstanding, after which the DSP is asked whether it lives."""

PINGS: Final = 2
"""How many it is sent, a second apart, before it counts as hung: one message may be lost."""

_FORGOTTEN: Final = frozenset({Status.HANDLE, Status.SYMBOL})
"""What a DSP that has restarted says of a handle."""


@final
@dataclass(slots=True, eq=False)
class _Run:
    """A frame on its way through the DSP."""

    frame: Frame
    slot: Window
    staged: Staged
    transfer: float
    sent: float = 0.0
    area: Window | None = None


@final
class Engine:
    """Serves the frames of one DSP.

    Args:
        world: real or virtual.
        connect: makes the session.
        outbox: for completions.
        run_bound: see `RUN_BOUND`.
        tsc_hz: ticks of the DSP's counter in a second.

    Attributes:
        orders: control calls into this loop; each is run while nothing is in flight.
        fallen: the ends of those frames that the loop's own end by an error cut short. Whoever is told of one
            may start it again at once, so they and the error are told in one step.
    """

    def __init__(
        self,
        world: World,
        connect: Callable[[], Awaitable[Session]],
        outbox: Outbox[Completion],
        *,
        run_bound: float,
        tsc_hz: float,
    ) -> None:
        self.orders = Orders(world, family="c7x", post=self._post)
        self.fallen: list[Completion] = []
        self._now = world.now
        self._connect = connect
        self._outbox = outbox
        self._run_bound = run_bound
        self._tsc_hz = tsc_hz
        self._first: Channel[Order[Any]] = world.channel()
        self._calls: deque[Order[Any]] = deque()
        self._frames: deque[Frame] = deque()
        self._staged: deque[_Run] = deque()
        self._running: dict[Request, _Run] = {}
        self._slots: deque[Window] = deque()
        self._areas: deque[Window] = deque()
        self._pings = 0
        self._session: Session | None = None
        self._closing = False
        self._giving_up = False

    # -- from the event loop -----------------------------------------------------------------------

    def put(self, frame: Frame) -> None:
        """Serve a frame."""
        self._frames.append(frame)
        self._wake()

    def close(self) -> None:
        """Land what is in flight, then unload and end."""
        self.orders.close()
        self._closing = True
        self._first.close()
        self._wake()

    def give_up(self) -> None:
        """End now, whatever is in flight."""
        self._giving_up = True
        self.close()

    @property
    def interrupted(self) -> bool:
        """Whether a control call shall end early. A load is given its time, an opening is not."""
        return self._giving_up or (self._closing and self._session is None)

    def ended(self, error: DeviceError) -> None:
        """The loop has ended by an error: whatever is still asked of it gets that."""
        self.orders.lost = error
        self._refuse(error)

    def _post(self, order: Order[Any]) -> None:
        if self._session is None:
            self._first.put(order)
        else:
            self._calls.append(order)
            self._wake()

    def _wake(self) -> None:
        if self._session is not None:
            self._session.client.wake()

    # -- control calls, run in the loop -------------------------------------------------------------

    async def connect(self) -> Session:
        """Connect; the first call."""
        self._session = await self._connect()
        return self._session

    def rearranged(self) -> None:
        """The workspace was arranged anew, while nothing was in flight."""
        workspace = self._connected().workspace
        self._slots = deque(workspace.slots)
        self._areas = deque(workspace.areas)

    # -- the loop -----------------------------------------------------------------------------------

    async def serve(self) -> None:
        """The driver loop; raises what made the DSP unusable."""
        try:
            await self.orders.carry_out(await self._first.get())
        except ChannelClosed:
            return
        if self._session is None:
            return
        try:
            while not self._done():
                await self._turn()
        except Exception as error:
            lost = error if isinstance(error, DeviceError) else _failed(error)
            _forget_frames(error)
            self.fallen = self._aborted(lost)
            self._refuse(lost)
            raise
        else:
            if self._giving_up:
                for completion in self._aborted(DeviceLost("the device is closed", family="c7x")):
                    self._outbox.put(completion)
            else:
                await self._leave()
        finally:
            self._session.close()
            self._refuse(DeviceLost("the device is closed", family="c7x"))

    def _done(self) -> bool:
        return self._giving_up or (self._closing and not self._busy() and not self._frames)

    def _busy(self) -> bool:
        return bool(self._running or self._staged)

    async def _turn(self) -> None:
        while self._calls and not self._busy():
            await self.orders.carry_out(self._calls.popleft())
        self._stage()
        self._send()
        if self._done():
            return
        settled = await self._connected().client.receive(self._patience())
        landed: list[Completion] = []
        try:
            landed += filter(None, map(self._settled, settled))
            self._send()  # before anybody is told: the DSP may be waiting for it
        finally:
            for completion in landed:
                self._outbox.put(completion)
        self._watch()

    def _connected(self) -> Session:
        assert self._session is not None, "connected by the first call"
        return self._session

    def _stage(self) -> None:
        """Lay inputs into free slots."""
        while self._frames and self._slots:
            frame = self._frames.popleft()
            if frame.outcome is not None:
                self._skip(frame)
                continue
            began = self._now()
            slot = self._slots.popleft()
            staged = stage(frame.inputs, slot)
            self._staged.append(_Run(frame, slot, staged, self._now() - began))

    def _send(self) -> None:
        """Send staged jobs while there is a place for their results."""
        while self._staged and self._areas:
            run = self._staged[0]
            if run.frame.outcome is None:
                if not self._sent(run):
                    return
            else:
                self._skip(run.frame)
                self._slots.append(run.slot)
            self._staged.popleft()

    def _sent(self, run: _Run) -> bool:
        client, area = self._connected().client, self._areas[0]
        job = self._job(run, area)
        call = Opcode.INFER if job.table is None else Opcode.INFER_LARGE
        request = client.post(call, partial(client.wire.infer, job=job))
        if request is None:
            self._check_link()
            return False
        run.sent = self._now()
        run.area = self._areas.popleft()
        self._running[request] = run
        return True

    def _job(self, run: _Run, area: Window) -> Job:
        return Job(
            self._connected().handle,
            run.staged.descriptors,
            table=run.staged.table,
            input=Span(run.slot.address, run.slot.size),
            result=Span(area.address, area.size),
        )

    # -- answers ------------------------------------------------------------------------------------

    def _settled(self, request: Request) -> Completion | None:
        """Free the places of a job, and return how it ended; None where the request was none."""
        self._pings = 0
        run = self._running.get(request)
        if run is None:
            return None
        completion = self._completion(run, request)
        del self._running[request]
        self._slots.append(run.slot)
        if run.area is not None:
            self._areas.append(run.area)
        return completion

    def _completion(self, run: _Run, request: Request) -> Completion:
        """Read the answer, and copy the result out.

        Raises:
            DeviceLost: the DSP does not know the module any more.
        """
        reply, frame = request.reply, run.frame
        if reply is None:
            lost = DeviceError(f"the reply to {request.call.name} was lost", family="c7x")
            return Completion(frame, Fate.FAILED, error=lost)
        if reply.status in _FORGOTTEN:
            raise DeviceLost("the DSP has restarted: it does not know the module", family="c7x") from refusal(
                request
            )
        if reply.status != Status.OK:
            return Completion(frame, Fate.FAILED, error=refusal(request))
        assert isinstance(reply, Inferred), "of the kind that was asked for, and no refusal"
        assert run.area is not None, "it was sent"
        try:
            outputs = _checked(read_outputs(reply, run.area), frame.network.outputs)
        except (DeviceLost, DeviceHung):
            raise  # it is the memory that failed, not this answer
        except DeviceError as error:
            _forget_frames(error)
            return Completion(frame, Fate.FAILED, error=error)
        busy = reply.cycles / self._tsc_hz
        return Completion(frame, Fate.DONE, outputs, busy=busy, transfer=run.transfer)

    def _skip(self, frame: Frame) -> None:
        """Nobody waits for a frame that the DSP has not seen."""
        unseen = DeviceLost("the frame was not run", family="c7x")
        self._outbox.put(Completion(frame, Fate.UNDONE, error=unseen))

    # -- bounds -------------------------------------------------------------------------------------

    def _patience(self) -> float | None:
        """Seconds until something is due that nobody announces; None for never."""
        client = self._connected().client
        due: list[float] = []
        if self._staged and self._areas:
            due.append(client.next_offer)
        if self._running:
            due.append(max(self._patient_until(), client.next_offer))
        return max(min(due) - self._now(), 0.0) if due else None

    def _watch(self) -> None:
        """Send a PING behind a job that takes long; give up on a DSP that does not answer it.

        Raises:
            DeviceHung: neither the job nor the PING was answered, or no message is taken.
        """
        client = self._connected().client
        if not self._running or self._now() < max(self._patient_until(), client.next_offer):
            return
        if self._pings == PINGS:
            silent = f"INFER has not been answered in {self._run_bound:g} s, nor has a PING behind it"
            raise DeviceHung(silent, family="c7x", call="INFER")
        if client.post(Opcode.PING, requests.ping) is None:
            self._check_link()
        else:
            self._pings += 1

    def _check_link(self) -> None:
        """A message was just refused; see whether that has gone on for too long.

        Raises:
            DeviceHung: it has.
        """
        now, blocked = self._now(), self._connected().client.blocked_since
        if blocked is not None and now >= blocked + self._run_bound:
            raise DeviceHung(
                f"the DSP has taken no message for {now - blocked:.1f} s", family="c7x", call="INFER"
            )

    def _patient_until(self) -> float:
        """When a job that runs has taken too long for the next PING, or for patience."""
        head = next(iter(self._running.values()))
        begun = max(head.sent, self._connected().client.heard)
        return begun + self._run_bound + self._pings * PING_BOUND

    # -- the end ------------------------------------------------------------------------------------

    def _aborted(self, error: DeviceError) -> list[Completion]:
        """End everything. The job that a hung DSP is at is to blame, and the others never ran."""
        blamed = bool(self._running) and isinstance(error, DeviceHung)
        frames = [run.frame for run in (*self._running.values(), *self._staged)]
        while self._frames:  # more may come meanwhile, from another thread
            frames.append(self._frames.popleft())
        fates = [Fate.FAILED if blamed and not at else Fate.UNDONE for at in range(len(frames))]
        self._running.clear()
        self._staged.clear()
        return [Completion(frame, fate, error=error) for frame, fate in zip(frames, fates, strict=True)]

    def _refuse(self, error: DeviceError) -> None:
        """Answer the calls that will not be run."""
        while self._calls:
            self.orders.refuse(self._calls.popleft(), error)

    async def _leave(self) -> None:
        """Unload, so that the DSP's slot is free for whoever comes next."""
        with suppress(DeviceError):
            await self._connected().unload()


def _checked(outputs: Sequence[Array], specs: Sequence[TensorSpec]) -> tuple[Array, ...]:
    """Copy what is as it was specified.

    Raises:
        DeviceError: it is not; the sidecar may be that of another module.
    """
    if len(outputs) != len(specs):
        raise _other(f"{len(outputs)} outputs", f"{len(specs)}")
    for output, spec in zip(outputs, specs, strict=True):
        if output.dtype != spec.dtype or output.shape != spec.shape:
            raise _other(f"{spec.name} as {output.dtype}{list(output.shape)}", str(spec))
    return tuple(output.copy() for output in outputs)


def _other(came: str, wanted: str) -> DeviceError:
    return DeviceError(f"the module gave {came}, it is specified as {wanted}", family="c7x", call="INFER")


def _forget_frames(error: BaseException) -> None:
    """Drop tracebacks: they would keep shared memory from its heap as long as somebody keeps the error."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__


def _failed(error: Exception) -> DeviceError:
    return DeviceLost(f"driver: {error!r}", family="c7x")
