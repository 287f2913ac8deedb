"""A device in memory whose every completion and fault a test decides."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import final

from repertory.models.errors import ArtifactError, ContractError, DeviceError, NoRoom
from repertory.models.program import Artifact, Program
from repertory.models.spec import Array

from .answers import hash_answer
from .device import Capabilities, Completed, Completion, Device, Fault, Health, Residency
from .flight import Flight
from .frame import Fate, Frame
from .sketched import check_sketched, prepare_sketch
from .world import Outbox, World

__all__ = ["InMemoryDevice"]


@final
class InMemoryDevice(Device):
    """Answers with hashes in the event loop's next step, or, while `holding`, when `release` says so.

    Attributes:
        holding: whether started frames wait in `held`.
        held: started frames that wait, oldest first.
        binds: the names of programs in the order of binding; None for a bind that only evicted.
        refuse: names of programs whose bind fails with ArtifactError.
        crowded: programs beside which a bind fails with NoRoom; None where there is room for all.
        abandoned: frames for which `abandon` was called.
        compute: what answers a frame.
    """

    def __init__(
        self,
        world: World,
        *,
        window: int = 4,
        residents: int = 1,
        bind_needs_idle: bool = True,
        probe_needs_idle: bool = False,
    ) -> None:
        self._world = world
        self._flight = Flight("memory")
        self._outbox: Outbox[Completion]
        self.capabilities = Capabilities(
            "memory",
            simulated=True,
            window=window * residents,
            residents=residents,
            bind_needs_idle=bind_needs_idle,
            probe_needs_idle=probe_needs_idle,
        )
        self._window = window
        self.holding = False
        self.held: deque[Frame] = deque()
        self.binds: list[str | None] = []
        self.refuse: set[str] = set()
        self.crowded: int | None = None
        self.abandoned: list[Frame] = []
        self.compute: Callable[[Frame], tuple[Array, ...]] = lambda f: hash_answer(f.network, f.inputs)

    async def open(self, completed: Completed, fault: Fault) -> None:
        self._flight.open(completed, fault)
        self._outbox = Outbox(self._world.loop.call_soon, self._flight.complete)

    def prepare(self, artifact: Artifact) -> Program:
        return prepare_sketch(artifact)

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        self._flight.check()
        if self.capabilities.bind_needs_idle and len(self._flight):
            raise ContractError(f"bind with {len(self._flight)} frames in flight")
        self._flight.evict(evict)
        self.binds.append(program and program.name)
        if program is None:
            return None
        if len(self._flight.residents) >= self.capabilities.residents:
            raise ContractError(f"{program.name} does not fit beside what is resident")
        check_sketched(program)
        if program.name in self.refuse:
            raise ArtifactError(f"{program.name} is refused")
        if self.crowded is not None and len(self._flight.residents) >= self.crowded:
            raise NoRoom(f"{program.name}: wanted 80 bytes, and 79 are free", wanted=80, free=79)
        return self._flight.settle_in(Residency(program, self._window))

    def start(self, frame: Frame) -> None:
        self._flight.start(frame)
        if self.holding:
            self.held.append(frame)
        else:
            self._outbox.put(self._done(frame))

    def abandon(self, frame: Frame) -> None:
        self.abandoned.append(frame)

    async def probe(self) -> Health:
        self._flight.check()
        return Health(well=True)

    async def close(self, *, bound: float) -> None:
        self.held.clear()
        self._flight.close()

    def release(self, count: int, fate: Fate = Fate.DONE, error: DeviceError | None = None) -> None:
        """Complete the oldest `count` held frames with that fate."""
        for _ in range(count):
            frame = self.held.popleft()
            done = self._done(frame) if fate is Fate.DONE else Completion(frame, fate, error=error)
            self._outbox.put(done)

    def fail(self, error: DeviceError, fate: Fate = Fate.FAILED) -> None:
        """Break down now, for good."""
        self._flight.lose(error, fate)

    def _done(self, frame: Frame) -> Completion:
        return Completion(frame, Fate.DONE, self.compute(frame), busy=0.001)
