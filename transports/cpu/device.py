"""The host's processor behind the device contract: onnxruntime, one inference at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import final

from repertory.models.errors import ContractError, DeviceError, DeviceHung, DeviceLost
from repertory.models.onnx_model import OnnxExecutor, Stopped
from repertory.models.program import Artifact, Program
from repertory.transports.device import Capabilities, Completed, Completion, Device, Fault, Health, Residency
from repertory.transports.flight import Flight
from repertory.transports.frame import Fate, Frame
from repertory.transports.pump import Worker
from repertory.transports.world import Channel, ChannelClosed, Driver, Outbox, World

from .program import graph, prepare_onnx

__all__ = ["BIND_BOUND", "RESIDENTS", "STALL", "CpuDevice"]

RESIDENTS = 64
"""Sessions that are kept at once."""

BIND_BOUND = 120.0
"""Seconds that making a session may take: onnxruntime optimises the graph there."""

STALL = 60.0
"""Seconds without a completion before an inference counts as hung."""


@final
class CpuDevice(Device):
    """Sessions stay resident side by side; a bind only makes a session, and disturbs nobody.

    A frame that is abandoned while it runs is stopped for real; one that is abandoned before is skipped.
    """

    def __init__(self, world: World, *, threads: int, window: int) -> None:
        self._world = world
        self._threads = threads
        self._window = window
        self._flight = Flight("cpu", world.working)
        self._executors: dict[str, OnnxExecutor] = {}
        self._worker: Worker | None = None
        self._frames: Channel[Frame]
        self._driver: Driver
        self._outbox: Outbox[Completion]
        self._turnstile = threading.Lock()  # held while the running frame changes or is stopped
        self._running: Frame | None = None
        self._closing = False
        self.capabilities = Capabilities(
            "cpu",
            simulated=False,
            window=window * RESIDENTS,
            residents=RESIDENTS,
            bind_needs_idle=False,
            probe_needs_idle=False,
            stall=STALL,
        )

    async def open(self, completed: Completed, fault: Fault) -> None:
        self._flight.open(completed, fault)
        self._worker = Worker(self._world, family="cpu", name="repertory: cpu sessions")
        self._frames = self._world.channel()
        self._outbox = self._world.outbox(self._flight.complete)
        self._driver = self._world.spawn(self._serve, name="repertory: cpu", on_exit=self._ended)

    def prepare(self, artifact: Artifact) -> Program:
        return prepare_onnx(artifact)

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        self._flight.check()
        self._flight.evict(evict)
        for gone in evict:
            self._executors.pop(gone.key, None)
        if program is None:
            return None
        if len(self._flight.residents) >= RESIDENTS:
            raise ContractError(f"{program.name} does not fit beside what is resident")
        executor = await self._make(graph(program))
        self._flight.check()
        self._executors[program.key] = executor
        return self._flight.settle_in(Residency(program, self._window))

    def start(self, frame: Frame) -> None:
        self._flight.start(frame)
        self._frames.put(frame)

    def abandon(self, frame: Frame) -> None:
        with self._turnstile:
            if self._running is frame and frame.program is not None:
                self._executors[frame.program.key].terminate()

    async def probe(self) -> Health:
        self._flight.check()
        return Health(well=True)

    async def close(self, *, bound: float) -> None:
        if self._worker is not None:
            self._closing = True
            if (running := self._running) is not None:
                self.abandon(running)
            self._frames.close()
            await self._driver.join(bound / 2)
            await self._worker.close(bound=bound / 2)
            self._worker = None
        self._flight.close()
        self._executors.clear()

    async def _make(self, data: bytes) -> OnnxExecutor:
        assert self._worker is not None, "checked: the device is open"
        make = partial(self._session, data)
        try:
            return await self._worker.call(make, bound=BIND_BOUND, what="InferenceSession")
        except DeviceHung as error:
            self._flight.lose(error)
            raise

    async def _session(self, data: bytes) -> OnnxExecutor:
        return OnnxExecutor(data, threads=self._threads)

    async def _serve(self) -> None:
        try:
            while True:
                self._outbox.put(self._run(await self._frames.get()))  # no name keeps the last frame
        except ChannelClosed:
            return

    def _run(self, frame: Frame) -> Completion:
        program = frame.program
        assert program is not None, "checked when the frame was started"
        executor = self._executors[program.key]
        with self._turnstile:
            self._running = frame
        began = self._world.now()
        try:
            if frame.outcome is not None or self._closing:
                raise Stopped  # noqa: TRY301  (nobody waits: do not even begin)
            outputs = executor.run(frame.inputs)
        except Stopped:
            return Completion(frame, Fate.UNDONE, error=DeviceLost("the call was stopped", family="cpu"))
        except DeviceError as error:
            return Completion(frame, Fate.FAILED, error=error)
        finally:
            with self._turnstile:
                self._running = None
        return Completion(frame, Fate.DONE, outputs, busy=self._world.now() - began)

    def _ended(self, error: BaseException | None) -> None:
        if error is not None:
            self._flight.lose(DeviceLost(f"the cpu worker failed: {error!r}", family="cpu"))
