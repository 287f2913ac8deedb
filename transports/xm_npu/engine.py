"""The driver loop of one NPU: stages frames, keeps one job a graph on the NPU, and copies results out.

One loop, in one thread, makes all calls: vendors' libraries promise nothing to several threads. While a graph
runs, the next frame's inputs are laid into its other place, if it has one; as soon as the job has ended the
next one is submitted, and only then are the results of the first copied. Several graphs have jobs queued at
once, so that the NPU never waits for us.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

from repertory.models.errors import DeviceError, DeviceHung, DeviceLost
from repertory.models.program import Program
from repertory.transports.device import Completion, Health
from repertory.transports.frame import Fate, Frame
from repertory.transports.pump import Order, Orders
from repertory.transports.world import Channel, ChannelClosed, Outbox, World

from .errors import NpuRefusal
from .npu import Ended, Npu, Run
from .program import loadable
from .seat import Job, Seat
from .tensors import take

__all__ = ["RUN_BOUND", "Engine"]

RUN_BOUND: Final = 10.0
"""Seconds in which the job at the head of the NPU's queue must end; the library itself waits 100."""

_log = logging.getLogger("repertory.xm_npu")


@final
class Engine:
    """Serves the frames of one NPU.

    Args:
        world: real or virtual.
        connect: makes the way to the NPU.
        outbox: for completions.
        run_bound: see `RUN_BOUND`.

    Attributes:
        scratch: the most workspace that a program is known to need, in bytes; set it from any thread.
        orders: control calls into this loop; jobs may be in flight meanwhile.
        fallen: the end of the frame that is to blame for the end of the loop itself, if one is. It and the
            error are told in one step.
    """

    def __init__(
        self, world: World, connect: Callable[[], Npu], outbox: Outbox[Completion], *, run_bound: float
    ) -> None:
        self.orders = Orders(world, family="xm-npu", post=self._post)
        self.scratch = 0
        self.fallen: list[Completion] = []
        self._now = world.now
        self._connect = connect
        self._outbox = outbox
        self._run_bound = run_bound
        self._first: Channel[Order[Any]] = world.channel()
        self._bell = world.condition()
        self._rung = False
        self._calls: deque[Order[Any]] = deque()
        self._frames: deque[Frame] = deque()
        self._seats: dict[str, Seat] = {}
        self._jobs: dict[Run, tuple[Seat, Job]] = {}
        self._npu: Npu | None = None
        self._progress = 0.0
        self._closing = False
        self._giving_up = False

    # -- from the event loop -----------------------------------------------------------------------

    def put(self, frame: Frame) -> None:
        """Serve a frame of a program that was loaded."""
        self._frames.append(frame)
        self.ring()

    def close(self) -> None:
        """Land what is in flight, then give everything back and end."""
        self.orders.close()
        self._closing = True
        self._first.close()
        self.ring()

    def give_up(self) -> None:
        """End now, whatever is in flight."""
        self._giving_up = True
        self.close()

    def refuse(self, error: DeviceError) -> None:
        """The loop has ended: the calls that it has not come to get that."""
        while self._calls:
            self.orders.refuse(self._calls.popleft(), error)

    def ring(self) -> None:
        """Let the loop look again; from any thread."""
        with self._bell:
            self._rung = True
            self._bell.notify()

    def _post(self, order: Order[Any]) -> None:
        if self._npu is None:
            self._first.put(order)
        else:
            self._calls.append(order)
            self.ring()

    # -- control calls, run in the loop -------------------------------------------------------------

    async def connect(self) -> None:
        """Take the NPU; the first call."""
        npu = self._connect()
        await npu.open(self.ring)
        self._npu = npu

    async def load(self, program: Program) -> None:
        """Make a program resident.

        Raises:
            NoRoom, NpuRefusal, DeviceLost: as `Npu.load`.
        """
        if program.key not in self._seats:
            model = loadable(program)
            graph = await self._opened().load(model, scratch=self.scratch)
            self._seats[program.key] = Seat(model, graph, self._now)

    async def unload(self, programs: Iterable[Program]) -> None:
        """Take programs without frames in flight off the NPU; those that are not there are passed over."""
        for program in programs:
            seat = self._seats.pop(program.key, None)
            if seat is None:
                continue
            try:
                await seat.graph.unload()
            except NpuRefusal as refusal:  # it is gone for us all the same
                _log.warning("%s: %s", program.name, refusal)

    async def look(self) -> Health:
        """Read the NPU's health."""
        return Health(well=True, readings=await self._opened().health())

    # -- the loop -----------------------------------------------------------------------------------

    async def serve(self) -> None:
        """The driver loop; raises what made the NPU unusable."""
        try:
            await self.orders.carry_out(await self._first.get())
        except ChannelClosed:
            return
        if self._npu is None:
            return
        npu = self._npu
        try:
            while not self._done():
                await self._turn(npu)
        except DeviceError as error:
            self.fallen = self._blamed(error)
            raise
        finally:
            await npu.close()

    def _opened(self) -> Npu:
        assert self._npu is not None, "taken by the first call"
        return self._npu

    def _done(self) -> bool:
        return self._giving_up or (self._closing and not self._busy())

    def _busy(self) -> bool:
        return bool(self._frames) or any(seat.busy for seat in self._seats.values())

    async def _turn(self, npu: Npu) -> None:
        while self._calls and not self._giving_up:
            await self.orders.carry_out(self._calls.popleft())
        self._seat_frames()
        await self._feed()
        if self._done():
            return
        await self._bell.wait(self._heard, timeout=self._patience(npu), next_event=lambda: math.inf)
        if self._jobs:
            await self._settle(await npu.collect())
            await self._watch(npu)

    def _heard(self) -> bool:
        rung, self._rung = self._rung, False
        return rung

    def _seat_frames(self) -> None:
        """Bring new frames to their graphs."""
        while self._frames:
            frame = self._frames.popleft()
            assert frame.program is not None, "checked by whoever started it"
            self._seats[frame.program.key].waiting.append(frame)

    async def _feed(self) -> None:
        """Stage what there is a place for; the first frame is submitted before the next one is staged."""
        for seat in self._seats.values():
            ends: list[Completion] = []
            try:
                while seat.stage(ends):
                    await self._submit(seat, ends)
            finally:
                self._tell(ends)

    async def _submit(self, seat: Seat, ends: list[Completion]) -> None:
        """Hand over the graph's next job, if none of it is on the NPU; `ends` gets what became of others."""
        while True:
            job = seat.next(ends)
            if job is None:
                return
            if not self._jobs:
                self._progress = self._now()
            seat.running = job
            try:
                job.run = await seat.graph.submit(job.place)
            except (DeviceLost, DeviceHung):
                raise
            except DeviceError as error:
                seat.running = None
                seat.release(job.place)
                ends.append(Completion(job.frame, Fate.FAILED, error=error))
                continue
            self._jobs[job.run] = seat, job
            return

    def _tell(self, ends: Iterable[Completion]) -> None:
        for end in ends:
            self._outbox.put(end)

    # -- ends ---------------------------------------------------------------------------------------

    async def _settle(self, ends: Sequence[Ended]) -> None:
        """Submit what follows, then copy results out and tell."""
        landed: list[tuple[Seat, Job, Ended, float]] = []
        for end in ends:
            seat, job = self._jobs.pop(end.run)
            seat.running = None
            if end.fate is not Fate.DONE:
                seat.unstage()
            busy = max(end.at - self._progress, 0.0)
            self._progress = max(self._progress, end.at)
            landed.append((seat, job, end, busy))
        behind: list[Completion] = []
        try:
            for seat, *_ in landed:
                await self._submit(seat, behind)
        finally:
            for seat, job, end, busy in landed:
                self._outbox.put(_completion(seat, job, end, busy))
                seat.release(job.place)
            self._tell(behind)

    def _patience(self, npu: Npu) -> float | None:
        if not self._jobs:
            return None
        return max(min(npu.patience, self._progress + self._run_bound - self._now()), 0.0)

    async def _watch(self, npu: Npu) -> None:
        """Get rid of a job that does not end.

        Raises:
            DeviceHung: that cannot be done.
        """
        if not self._jobs or self._now() < self._progress + self._run_bound:
            return
        _, job = next(iter(self._jobs.values()))
        why = DeviceHung(
            f"{job.frame.network.name}: its job has not ended within {self._run_bound:g} s", family="xm-npu"
        )
        await self._settle(await npu.break_off(why))
        self._progress = self._now()

    def _blamed(self, error: DeviceError) -> list[Completion]:
        """The job that a hung NPU is at is to blame. All others certainly had no effect."""
        if not isinstance(error, DeviceHung) or not self._jobs:
            return []
        _, job = next(iter(self._jobs.values()))
        return [Completion(job.frame, Fate.FAILED, error=error)]


def _completion(seat: Seat, job: Job, end: Ended, busy: float) -> Completion:
    """Copy the results out, where there are any."""
    if end.fate is Fate.DONE:
        outputs = take(seat.model, job.place)
        return Completion(job.frame, Fate.DONE, outputs, busy=busy, transfer=job.transfer)
    return Completion(job.frame, end.fate, error=end.error, busy=busy)
