"""Many callers, and campaigns of random interleavings; each replays by its seed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, final

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from repertory.actors.context import Limits, Overflow
from repertory.models.errors import RepertoryError
from repertory.runtime.model import Model
from repertory.runtime.runtime import Runtime
from repertory.transports.frame import Fate

from ..determinism import seeded_trio  # noqa: TID252  (tests are no package on the path)
from .support import Memory, Pending, lost, open_virtual, outstanding, reconciles, sketched

pytestmark = pytest.mark.virtual

Backend = tuple[str, dict[str, Any]]


def _run(backend: Backend, seed: int, main: Callable[[], Awaitable[None]]) -> None:
    name, options = backend
    with seeded_trio(seed) if name == "trio" else nullcontext():
        anyio.run(main, backend=name, backend_options=options)


# -- a crowd ---------------------------------------------------------------------------------------


@final
class Crowd:
    """A thousand callers of three models, of whom a third leave at random moments."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.callers: list[Pending] = []
        self.networks: list[str] = []

    async def load(self, rt: Runtime) -> None:
        models = [await rt.load(sketched(name)) for name in "abc"]
        for number in range(1000):
            model = self.random.choice(models)
            self.networks.append(model.name)
            self.callers.append(Pending(model, number, priority=self.random.randint(-2, 2)))

    async def come(self, tasks: TaskGroup) -> None:
        for caller in self.callers:
            tasks.start_soon(caller)
            if self.random.random() < 0.1:
                await checkpoint()

    async def leave(self, over: float) -> None:
        for caller in self.random.sample(self.callers, len(self.callers) // 3):
            if over:
                await anyio.sleep(self.random.expovariate(333 / over))
            else:
                await checkpoint()
            caller.scope.cancel()

    def check(self, rt: Runtime) -> None:
        statistics = rt.statistics()
        for caller, network in zip(self.callers, self.networks, strict=True):
            assert caller.ended is not None
            assert caller.answered_by(network) or (caller.value is None and caller.scope.cancel_called)
        models = statistics.models.values()
        assert all(map(reconciles, models))
        assert not any(map(outstanding, models))
        assert sum(model.answered + model.cancelled for model in models) <= 1000
        assert sum(model.answered for model in models) >= 667
        assert all(group.incarnations == 1 for group in statistics.groups.values())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("address", ["sim://?service_ms=1&swap_ms=5", "sim://?residents=2&window=7"])
def test_thousand_callers_of_a_simulated_device(anyio_backend: Backend, seed: int, address: str) -> None:
    async def main() -> None:
        crowd = Crowd(seed)
        async with open_virtual(address) as rt:
            await crowd.load(rt)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(crowd.come, tasks)
                tasks.start_soon(crowd.leave, 1.0)
            await anyio.sleep(1)
            assert rt.statistics().groups[address].in_flight == 0
            crowd.check(rt)

    _run(anyio_backend, seed, main)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("residents", [1, 2])
def test_thousand_callers_of_a_device_in_memory(anyio_backend: Backend, seed: int, residents: int) -> None:
    async def main() -> None:
        crowd = Crowd(seed)
        memory = Memory(residents=residents, bind_needs_idle=residents == 1, holding=True)
        async with open_virtual(memory) as rt:
            await crowd.load(rt)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(crowd.come, tasks)
                tasks.start_soon(crowd.leave, 0.0)
                while not all(caller.ended is not None for caller in crowd.callers):
                    await checkpoint()
                    held = len(memory.device.held)
                    memory.device.release(crowd.random.randint(0, held))
            memory.let_go()
            await anyio.sleep(1)
            assert rt.statistics().groups["memory"].in_flight == 0
            crowd.check(rt)
        assert memory.wasted == []
        assert memory.balanced

    _run(anyio_backend, seed, main)


# -- campaigns -------------------------------------------------------------------------------------

QUEUE = 5
WINDOW = 3


@final
class Campaign:
    """Does random things to a runtime, and checks after each what must hold at any moment."""

    def __init__(self, seed: int, rt: Runtime, memory: Memory, tasks: TaskGroup) -> None:
        self.random = random.Random(seed)
        self.rt = rt
        self.memory = memory
        self.window = memory.device.capabilities.window
        self.tasks = tasks
        self.faults = 0
        self.sent = 0
        self.possible: dict[Pending, set[str]] = {}
        self.networks: dict[str, set[str]] = {}
        self.surprises: list[BaseException] = []
        self.versions = 0

    async def run(self, steps: int) -> None:
        acts = [
            (self.infer, 40),
            (self.complete, 25),
            (self.cancel, 12),
            (self.wait, 8),
            (self.undo, 3),
            (self.load, 3),
            (self.unload, 2),
            (self.replace, 3),
            (self.fault, 1),
        ]
        await self.load()
        for _ in range(steps):
            (act,) = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])
            await act()
            for _ in range(self.random.choice([0, 1, 1, 2, 5, 20])):
                await checkpoint()
            self.check()
        await self.finish()

    # -- acts ----------------------------------------------------------------------------------

    async def infer(self) -> None:
        if not self.networks:
            return
        name = self.random.choice(sorted(self.networks))
        try:
            model: Model = self.rt.model(name)
        except RepertoryError:
            return
        timeout = self.random.choice([None, None, None, 0.0, 0.01, 0.2, 5.0])
        self.sent += 1
        request = Pending(model, self.sent, timeout=timeout, priority=self.random.randint(-1, 1))
        self.possible[request] = self.networks[name]
        self.tasks.start_soon(request)

    async def cancel(self) -> None:
        if self.possible:
            self.random.choice(list(self.possible)).scope.cancel()

    async def complete(self) -> None:
        fate, error = self.random.choice([(Fate.DONE, None)] * 5 + [(Fate.FAILED, lost("bad frame"))])
        self.memory.device.release(self.random.randint(0, len(self.memory.device.held)), fate, error)

    async def undo(self) -> None:
        held = len(self.memory.device.held)
        self.memory.device.release(self.random.randint(0, held), Fate.UNDONE, lost("not run"))

    async def wait(self) -> None:
        await anyio.sleep(self.random.choice([0.005, 0.05, 0.5]))

    async def load(self) -> None:
        name = self.random.choice("abcd")
        networks = self.networks.setdefault(name, {name})
        limits = Limits(queue=QUEUE, overflow=self.random.choice(list(Overflow)))

        async def load() -> None:
            await self._expecting_refusals(self.rt.load(sketched(name), limits=limits))

        if networks == {name}:  # a replaced one stays what it is
            self.tasks.start_soon(load)

    async def unload(self) -> None:
        if self.networks:
            name = self.random.choice(sorted(self.networks))
            self.tasks.start_soon(self._expecting_refusals, self.rt.unload(name))

    async def replace(self) -> None:
        if self.networks:
            name = self.random.choice(sorted(self.networks))
            self.versions += 1
            version = f"{name} v{self.versions}"
            self.networks[name].add(version)
            self.tasks.start_soon(self._expecting_refusals, self.rt.replace(name, sketched(version)))

    async def fault(self) -> None:
        if not self.rt.statistics().groups["memory"].in_service:
            return
        self.faults += 1
        self.memory.device.fail(lost("smoke"), self.random.choice([Fate.FAILED, Fate.UNDONE]))
        await anyio.sleep(self.random.choice([0.0, 0.05]))
        if self.faults % 3 == 0:
            await self._recover()

    async def _recover(self) -> None:
        """Stay within the supervisor's budget; meanwhile nothing may look hung."""
        self.memory.holding = False
        self.memory.let_go()
        await anyio.sleep(70)
        self.memory.holding = self.memory.device.holding = True

    async def _expecting_refusals(self, order: Awaitable[object]) -> None:
        try:
            await order
        except RepertoryError:
            pass
        except Exception as error:  # noqa: BLE001  (what is no refusal is a defect)
            self.surprises.append(error)

    # -- what must hold ------------------------------------------------------------------------

    def check(self) -> None:
        statistics = self.rt.statistics()
        for model in statistics.models.values():
            assert reconciles(model), "every admitted request has exactly one outcome, or is under way"
            assert 0 <= model.waiting <= QUEUE + self.window, "the bound, and what came back undone"
            assert 0 <= model.in_flight <= self.window
        assert 0 <= statistics.groups["memory"].in_flight <= self.window
        self._check_outcomes()
        assert self.memory.wasted == [], "what nobody waits for costs no device time"
        assert len(self.memory.devices) <= 1 + self.faults, "only faults restart a device"
        opened = sum(device.opened for device in self.memory.devices)
        assert opened - sum(device.closed for device in self.memory.devices) in (0, 1)
        assert self.surprises == []

    def _check_outcomes(self) -> None:
        """Look at each request once, when it has ended."""
        ended = [request for request in self.possible if request.ended is not None]
        for request in ended:
            networks = self.possible.pop(request)
            if request.value is not None:
                assert any(map(request.answered_by, networks)), "an answer to this very input"
            else:
                assert isinstance(request.error, RepertoryError) or request.scope.cancel_called

    async def finish(self) -> None:
        await self._recover()
        self.memory.let_go()
        await anyio.sleep(30)
        self.check()
        assert self.possible == {}, "nobody waits for ever"
        statistics = self.rt.statistics()
        assert not any(map(outstanding, statistics.models.values()))
        assert statistics.groups["memory"].in_flight == 0
        assert statistics.groups["memory"].incarnations == 1 + self.faults


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("residents", [1, 2])
def test_campaign(anyio_backend: Backend, seed: int, residents: int) -> None:
    memory = Memory(window=WINDOW, residents=residents, bind_needs_idle=seed % 2 == 0, holding=True)

    async def main() -> None:
        async with open_virtual(memory) as rt, anyio.create_task_group() as tasks:
            await Campaign(seed, rt, memory, tasks).run(200)

    _run(anyio_backend, seed, main)
    assert memory.balanced
