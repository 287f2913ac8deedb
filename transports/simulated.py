"""The generic simulated device, `sim://`: service time, swap time, window, residents, and nothing else.

For plans and tests that ask what a scheduler does with such a device. Families have simulators of their
own, behind their real driver code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, final

import msgspec

from repertory.models.errors import ArtifactError, ContractError, DeviceLost
from repertory.models.program import Artifact, Network, Program

from .answers import hash_answer
from .device import Capabilities, Completed, Completion, Device, Fault, Health, Residency
from .flight import Flight
from .frame import Fate, Frame
from .pump import Worker
from .sketched import check_sketched, prepare_sketch
from .world import Channel, ChannelClosed, Driver, Outbox, World

__all__ = ["SimulatedDevice", "SimulatedOptions"]

Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=3_600_000)]


@final
class SimulatedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The address's parameters.

    Attributes:
        service_ms: device time of one frame, where the model's sketch does not say.
        swap_ms: time to make a program resident.
        window: frames of a program that may be started and not completed.
        residents: programs that may be resident at once.
        memory_mb: memory for them, in MB of 2**20 bytes; no bound without it.
    """

    service_ms: Milliseconds = 1.0
    swap_ms: Milliseconds = 10.0
    window: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 4
    residents: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    memory_mb: Annotated[float, msgspec.Meta(gt=0, le=1 << 20)] | None = None


@final
class SimulatedDevice(Device):
    """Runs one frame at a time, first in first out, and answers with hashes.

    Args:
        world: real time or virtual.
        options: what it costs.
        family: what it calls itself.
        read: how it reads a model file; sketches unless told otherwise.
        check: raises ArtifactError for a program that `read` did not make.
    """

    def __init__(
        self,
        world: World,
        options: SimulatedOptions,
        *,
        family: str = "sim",
        read: Callable[[Artifact], Program] = prepare_sketch,
        check: Callable[[Program], object] = check_sketched,
    ) -> None:
        self._world = world
        self._options = options
        self._read = read
        self._check = check
        self._flight = Flight(family, world.working)
        self._clockwork = world.condition()
        self._closing = False
        self._worker: Worker | None = None
        self._frames: Channel[Frame]
        self._driver: Driver
        self._outbox: Outbox[Completion]
        self.capabilities = Capabilities(
            family,
            simulated=True,
            window=options.window * options.residents,
            residents=options.residents,
            memory=None if options.memory_mb is None else int(options.memory_mb * 2**20),
            bind_needs_idle=options.residents == 1,
            probe_needs_idle=False,
        )

    async def open(self, completed: Completed, fault: Fault) -> None:
        self._flight.open(completed, fault)
        self._worker = Worker(self._world, family=self.capabilities.family, name="repertory: sim control")
        self._frames = self._world.channel()
        self._outbox = self._world.outbox(self._flight.complete)
        self._driver = self._world.spawn(self._serve, name="repertory: sim", on_exit=self._ended)

    def prepare(self, artifact: Artifact) -> Program:
        program, memory = self._read(artifact), self.capabilities.memory
        if memory is not None and program.footprint + program.scratch > memory:
            raise ArtifactError(
                f"{program.name} takes {program.footprint + program.scratch} bytes, and there are {memory}"
            )
        return program

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        self._flight.check()
        self._flight.evict(evict)
        if program is None:
            return None
        self._check_room(program)
        self._check(program)
        assert self._worker is not None, "checked: the device is open"
        swap = self._options.swap_ms / 1000
        await self._worker.call(lambda: self._pass(swap), bound=swap + 5.0, what="swap")
        self._flight.check()
        return self._flight.settle_in(Residency(program, self._options.window))

    def _check_room(self, program: Program) -> None:
        """Check what the owner of the device is to keep: how many are resident, and of what size."""
        residents = [program, *(each.program for each in self._flight.residents)]
        size = sum(each.footprint for each in residents) + max(each.scratch for each in residents)
        memory = self.capabilities.memory
        if len(residents) > self._options.residents or (memory is not None and size > memory):
            raise ContractError(f"{program.name} does not fit beside what is resident: {size} bytes in all")

    def start(self, frame: Frame) -> None:
        self._flight.start(frame)
        self._frames.put(frame)

    def abandon(self, frame: Frame) -> None:
        pass

    async def probe(self) -> Health:
        self._flight.check()
        return Health(well=True)

    async def close(self, *, bound: float) -> None:
        if self._worker is not None:
            with self._clockwork:
                self._closing = True
                self._clockwork.notify()
            self._frames.close()
            await self._driver.join(bound / 2)
            self._outbox.flush()
            await self._worker.close(bound=bound / 2)
            self._worker = None
        self._flight.close()

    async def _pass(self, seconds: float) -> None:
        await self._clockwork.wait(lambda: self._closing, timeout=seconds, next_event=lambda: math.inf)

    async def _serve(self) -> None:
        try:
            while True:
                await self._run(await self._frames.get())  # no name keeps the last frame, and its file
        except ChannelClosed:
            return

    async def _run(self, frame: Frame) -> None:
        if frame.outcome is not None:  # nobody waits: do not even begin
            lost = DeviceLost("the frame was not run", family=self.capabilities.family)
            self._outbox.put(Completion(frame, Fate.UNDONE, error=lost))
            return
        service = self._service(frame.program, frame.network)
        await self._pass(service)
        if not self._closing:
            answer = hash_answer(frame.network, frame.inputs)
            self._outbox.put(Completion(frame, Fate.DONE, answer, busy=service))

    def _ended(self, error: BaseException | None) -> None:
        if error is not None:
            self._outbox.flush()
            self._flight.lose(DeviceLost(f"the simulator failed: {error!r}", family=self.capabilities.family))

    def _service(self, program: Program | None, network: Network) -> float:
        own = program.image if program is not None else None
        return own if isinstance(own, float) else self._options.service_ms / 1000
