"""An owner of one device that keeps no windows and no deadlines: the test does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, final

import anyio

from repertory.models.errors import DeviceError
from repertory.models.program import Artifact, Program
from repertory.transports.device import Completion
from repertory.transports.frame import Frame, Outcome
from repertory.transports.rpmsg.device import C7xDevice
from repertory.transports.rpmsg.session import Ledger
from repertory.transports.rpmsg.simulator.dsp import SimulatedDsp
from repertory.transports.rpmsg.simulator.parameters import SimulatedC7x
from repertory.transports.virtual import VirtualWorld
from repertory.transports.world import World
from tests.rpmsg.dsps import module, tensor

__all__ = ["Owner", "bench", "forget_modules", "owned", "recover", "restart_unseen", "shrink_heap"]


@final
class Owner:
    """One device, and what it told.

    Attributes:
        landed: completions by frame.
        faults: what it called itself unusable for.
    """

    def __init__(self, device: C7xDevice, world: World) -> None:
        self.device = device
        self.world = world
        self.landed: dict[Frame, Completion] = {}
        self.faults: list[DeviceError] = []
        self.program: Program
        self._news = anyio.Event()

    def settled(self, frame: Frame, /) -> None:
        pass

    def expire(self, frame: Frame, /) -> None:
        pass

    async def open(self) -> None:
        await self.device.open(self._completed, self.faults.append)

    async def bind(self, data: bytes | Program | None = None) -> None:
        old = [self.program] if hasattr(self, "program") else []
        data = module() if data is None else data
        new = data if isinstance(data, Program) else self.device.prepare(Artifact("lib0.out", data))
        await self.device.bind(new, evict=old)
        self.program = new

    def start(self, number: int, *, inputs: Sequence[Any] | None = None) -> Frame:
        (network,) = self.program.networks
        arrays = (tensor(number),) if inputs is None else tuple(inputs)
        frame = Frame(self, network, arrays, program=self.program)
        self.device.start(frame)
        return frame

    def cancel(self, frame: Frame) -> None:
        frame.settle(Outcome.CANCELLED)
        self.device.abandon(frame)

    async def end(self, frame: Frame, *, patience: float = 60) -> Completion:
        with anyio.fail_after(patience):
            while frame not in self.landed:
                await self._news.wait()
        return self.landed[frame]

    def _completed(self, completions: Sequence[Completion]) -> None:
        self.landed.update((completion.frame, completion) for completion in completions)
        self._news.set()
        self._news = anyio.Event()


def owned(world: World, dsp: SimulatedDsp, *, ledger: Ledger | None = None, run_bound: float = 1.0) -> Owner:
    """Own a device that is not open."""
    device = C7xDevice(world, lambda: dsp, name="dsp", simulated=True, ledger=ledger, run_bound=run_bound)
    return Owner(device, world)


@asynccontextmanager
async def bench(wire: Any, **options: Any) -> AsyncGenerator[tuple[Owner, SimulatedDsp]]:
    """Give a device with the module `double` on it; nothing of it may be left at the end."""
    usual: dict[str, Any] = {"answers": "hash", "latency_ms": 50.0, "load_ms": 1.0}
    params = SimulatedC7x(wire=wire, **{**usual, **options})
    async with VirtualWorld() as world:
        dsp, ledger = SimulatedDsp(params, world), Ledger()
        owner = owned(world, dsp, ledger=ledger)
        await owner.open()
        await owner.bind()
        yield owner, dsp
        await owner.device.close(bound=5)
        ledger.release()  # what is held for a job that may still run
        assert dsp.leaks == []
        assert dsp.firmware.faults == []


def forget_modules(dsp: SimulatedDsp) -> None:
    """Be somebody else who unloads everything."""
    slots = dsp._board.firmware._service.slots  # pyright: ignore[reportPrivateUsage]
    for handle in dsp.firmware.loaded:
        slots.unload(handle)


def restart_unseen(dsp: SimulatedDsp) -> None:
    """Let the uptime begin anew, with every endpoint alive."""
    dsp._board.firmware._boot = (anyio.current_time(), 0)  # pyright: ignore[reportPrivateUsage]


def recover(dsp: SimulatedDsp) -> None:
    """Let a request that hangs end without an answer."""
    dsp._board.firmware._work = None  # pyright: ignore[reportPrivateUsage]


def shrink_heap(dsp: SimulatedDsp, size: int) -> None:
    """Leave the DSP that many bytes of its own."""
    dsp._board.firmware._service.slots.heap = size  # pyright: ignore[reportPrivateUsage]
