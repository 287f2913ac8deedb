"""An MX3 device group behind the device contract, over the real libmemx or a simulated one alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar, final

from repertory.models.errors import ContractError, DeviceError, DeviceHung, DeviceLost
from repertory.models.program import Artifact, Program
from repertory.transports.device import Capabilities, Completed, Completion, Device, Fault, Health, Residency
from repertory.transports.flight import Flight
from repertory.transports.frame import Frame
from repertory.transports.pump import NativeTimeout, Worker
from repertory.transports.world import Driver, Outbox, World

from .control import Control
from .health import read_health
from .library import Libmemx
from .lock import GroupLock
from .program import loadable, prepare_dfp
from .streams import Streams

__all__ = ["BIND_BOUND", "OPEN_BOUND", "POLL", "PROBE_BOUND", "STALL", "MemxDevice"]

T = TypeVar("T")

OPEN_BOUND: Final = 10.0
"""Seconds for finding and locking a group; the kernel gives up an admin command after 3."""

BIND_BOUND: Final = 30.0
"""Seconds for a swap; full weights over the slowest link take below one."""

PROBE_BOUND: Final = 5.0
"""Seconds for one look at a group's health; an admin command that the kernel gives up takes 3."""

POLL: Final = 0.05
"""Seconds that a stream call waits at most before it looks whether the device is being closed."""

STALL: Final = 5.0
"""Seconds without a completion before the device counts as hung."""

_log = logging.getLogger("repertory.memx")


@final
class MemxDevice(Device):
    """One program at a time; a swap is disable(1), reconfigure where it exists, download, enable(0).

    Args:
        world: real time or virtual.
        load: gives the lowest interface when the device opens; called in a driver thread, and may block.
        group_id: which device group.
        simulated: whether no hardware stands behind it.
        window: frames in flight; the queues get one slot more, so that no write ever waits.
        lock: our own lock on the group, taken before libmemx's; None where no other process can see it.
        zero_copy: whether buffers that the library lends are used, where it exports the calls.
        bind_bound: seconds that a swap may take.
        stall: seconds without a completion after which the device counts as hung.
    """

    def __init__(
        self,
        world: World,
        load: Callable[[], Libmemx],
        group_id: int,
        *,
        simulated: bool,
        window: int,
        lock: GroupLock | None,
        zero_copy: bool = True,
        bind_bound: float = BIND_BOUND,
        stall: float = STALL,
    ) -> None:
        self._world = world
        self._load = load
        self._group = group_id
        self._window = window
        self._lock = lock
        self._zero_copy = zero_copy
        self._bind_bound = bind_bound
        self._flight = Flight("memx", world.working)
        self._chips = 0
        self._health = Health(well=True)
        self._calibrated = False
        self._worker: Worker | None = None
        self._library: Libmemx
        self._control: Control
        self._outbox: Outbox[Completion]
        self._streams: Streams
        self._drivers: list[Driver] = []
        self.capabilities = Capabilities(
            "memx",
            simulated=simulated,
            window=window,
            residents=1,
            probe_needs_idle=False,
            stall=stall,
        )

    async def open(self, completed: Completed, fault: Fault) -> None:
        world, name = self._world, f"repertory: memx {self._group}"
        if self._lock is not None:
            self._lock.acquire()
        worker = Worker(world, family="memx", name=f"{name} control")
        self._library = await self._loaded(worker)
        self._control = Control(self._library, self._group, queue=self._window + 1)
        self._worker = worker
        self._chips = await self._ask(worker, self._control.open, bound=OPEN_BOUND, what="memx_trylock")
        self._health = Health(well=True, readings={"chips": float(self._chips)})
        self._flight.open(completed, fault)
        self._outbox = world.outbox(self._flight.complete)
        self._streams = Streams(
            self._library, world, self._outbox, NativeTimeout(POLL), zero_copy=self._zero_copy
        )
        self._drivers = [
            world.spawn(self._streams.write, name=f"{name} writer", on_exit=self._ended),
            world.spawn(self._streams.read, name=f"{name} reader", on_exit=self._ended),
        ]

    def prepare(self, artifact: Artifact) -> Program:
        return prepare_dfp(artifact, simulated=self.capabilities.simulated, chips=self._chips)

    async def bind(self, program: Program | None, *, evict: Sequence[Program] = ()) -> Residency | None:
        self._flight.check()
        if len(self._flight):
            raise ContractError(f"bind with {len(self._flight)} frames in flight")
        self._flight.evict(evict)
        if program is None:
            gone = list(evict)
            await self._call(lambda: self._control.free(gone), "memx_close")
            return None
        if self._flight.residents:
            raise ContractError(f"{program.name} does not fit beside what is resident")
        self._streams.model_id = await self._call(lambda: self._control.swap(program), "memx_download_model")
        if not self._calibrated:
            port = next(iter(loadable(program).ports.values())).outputs[0]
            await self._call(lambda: self._streams.calibrate(port), "memx_stream_ofmap")
            self._calibrated = True
        return self._flight.settle_in(Residency(program, self._window))

    def start(self, frame: Frame) -> None:
        self._flight.start(frame)
        self._streams.to_write.put(frame)

    def abandon(self, frame: Frame) -> None:
        pass  # the writer skips it if it has not begun; else it is read out

    async def probe(self) -> Health:
        """Read the features; while another call is out, tell what was read last."""
        self._flight.check()
        if self._worker is not None and not self._worker.busy:
            self._health = await self._call(
                lambda: read_health(self._library, self._group, self._chips),
                "memx_get_feature",
                bound=PROBE_BOUND,
            )
        return self._health

    async def close(self, *, bound: float) -> None:
        try:
            await self._land(bound / 2)
            await self._give_back(bound / 2)
        finally:
            if self._lock is not None:
                self._lock.release()

    async def _loaded(self, worker: Worker) -> Libmemx:
        """Load the library; a load that hangs holds one thread, and may be tried again."""

        async def load() -> Libmemx:
            return self._load()

        try:
            return await worker.call(load, bound=OPEN_BOUND, what="loading libmemx")
        except Exception:
            await worker.close(bound=OPEN_BOUND)
            raise

    async def _land(self, bound: float) -> None:
        """Let what is written be read out, then end the streams."""
        if not self._drivers:
            return
        self._streams.closing = True
        self._streams.to_write.close()
        for driver in self._drivers:
            await driver.join(bound * 3 / 8)
        self._streams.give_up()
        for driver in self._drivers:
            await driver.join(bound / 8)
        self._outbox.flush()
        self._drivers = []

    async def _give_back(self, bound: float) -> None:
        """Close the contexts, unless a call hangs, and end the control thread."""
        self._flight.close()
        worker, self._worker = self._worker, None
        if worker is None:
            return
        try:
            await self._ask(worker, self._control.close, bound=bound * 3 / 4, what="memx_close")
        except DeviceError as error:
            _log.warning("memx group %d was not closed in order: %s", self._group, error)
        await worker.close(bound=bound / 4)

    async def _call(
        self, job: Callable[[], Coroutine[Any, Any, T]], what: str, *, bound: float | None = None
    ) -> T:
        if self._worker is None:
            raise DeviceLost("the device is being closed", family="memx")
        try:
            result = await self._ask(self._worker, job, bound=bound or self._bind_bound, what=what)
        except (DeviceHung, DeviceLost) as error:
            self._flight.lose(error)
            raise
        self._flight.check()  # it may have been closed meanwhile
        return result

    async def _ask(
        self, worker: Worker, job: Callable[[], Coroutine[Any, Any, T]], *, bound: float, what: str
    ) -> T:
        """Run a job in the control thread; one that hangs keeps this process off the group for good."""
        try:
            return await worker.call(job, bound=bound, what=what)
        except DeviceHung:
            self._control.hung()
            raise

    def _ended(self, error: BaseException | None) -> None:
        if error is None:
            return
        self._outbox.flush()
        lost = error if isinstance(error, DeviceError) else DeviceLost(f"driver: {error!r}", family="memx")
        self._flight.lose(lost)
