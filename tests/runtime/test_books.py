"""The books are right at every step of a random run: of each request once, and of each moment."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, final

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from repertory.actors.limits import Limits, Overflow
from repertory.models.errors import RepertoryError
from repertory.runtime.model import Model
from repertory.runtime.runtime import Runtime
from repertory.runtime.statistics import ModelStatistics
from repertory.transports.frame import Fate

from .support import Memory, lost, open_virtual, reconciles, sketched, tensor
from .test_time_split import parts

pytestmark = pytest.mark.virtual

TOTAL = 7
WINDOW = 2
ENDS = ("answered", "failed", "expired", "cancelled", "superseded", "withdrawn")


@final
class Customer:
    """Keeps books of its own about what it asks of one model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.offered = 0
        self.ends: Counter[str] = Counter()
        self.scopes: list[anyio.CancelScope] = []

    async def ask(self, scope: anyio.CancelScope, value: Any, options: dict[str, Any]) -> None:
        with scope:
            self.offered += 1
            try:
                await self.model.infer(value, **options)
                self.ends["answered"] += 1
            except RepertoryError as error:
                self.ends[type(error).__name__] += 1
            except BaseException:
                self.ends["left"] += 1
                raise

    def check(self, books: ModelStatistics) -> None:
        """What the runtime has told is in its books, and what it has not told yet is no more than that."""
        assert books.offered == self.offered == books.admitted + books.queueing + sum(books.refused.values())
        assert reconciles(books)
        told, ends = self.ends, {name: getattr(books, name) for name in ENDS}
        assert told["answered"] <= ends["answered"]
        assert told["DeadlineExceeded"] <= ends["expired"]
        assert told["Superseded"] <= ends["superseded"]
        assert told["InvalidInput"] == books.refused.get("invalid", 0)
        assert told["QueueFull"] <= books.refused.get("full", 0)
        assert told["DeadlineUnreachable"] <= books.refused.get("deadline", 0) + books.withdrawn

    def check_the_end(self, books: ModelStatistics) -> None:
        """All is told; whose scope ended with the answer already there was told of neither."""
        assert self.ends.total() == self.offered
        assert books.queueing == books.waiting == books.in_flight == 0
        settled = sum(getattr(books, name) for name in ENDS)
        assert settled + sum(books.refused.values()) == self.offered
        assert self.ends["answered"] <= books.answered <= self.ends["answered"] + self.ends["left"]
        assert self.ends["Superseded"] + self.ends["left"] >= books.superseded


@final
class Day:
    """Customers, devices that fail, limits that change."""

    def __init__(self, rt: Runtime, memories: list[Memory], tasks: TaskGroup, seed: int) -> None:
        self.rt = rt
        self.memories = memories
        self.tasks = tasks
        self.random = random.Random(seed)
        self.customers: dict[str, Customer] = {}
        self.faults = 0

    async def begin(self) -> None:
        for name, overflow in zip("abc", Overflow, strict=True):
            model = await self.rt.load(sketched(name), limits=Limits(queue=4, overflow=overflow))
            self.customers[name] = Customer(model)

    async def act(self) -> None:
        draw, customer = self.random.random(), self.random.choice(list(self.customers.values()))
        memory = self.random.choice(self.memories)
        if draw < 0.5:
            scope = anyio.CancelScope()
            customer.scopes.append(scope)
            options = {"timeout": self.random.choice([None, None, None, 0.0, 0.02, 1.0])}
            value = None if self.random.random() < 0.05 else tensor(1)
            self.tasks.start_soon(customer.ask, scope, value, options)
        elif draw < 0.75:
            fate, error = self.random.choice([(Fate.DONE, None)] * 6 + [(Fate.FAILED, lost("bad frame"))])
            memory.device.release(self.random.randint(0, len(memory.device.held)), fate, error)
        elif draw < 0.85 and customer.scopes:
            customer.scopes.pop(self.random.randrange(len(customer.scopes))).cancel()
        elif draw < 0.9:
            await anyio.sleep(self.random.choice([0.001, 0.03, 0.3]))
        elif draw < 0.95:
            most = self.random.choice([None, 1, 2])
            await self.rt.retune(customer.model.name, max_in_flight=most)
        elif draw < 0.97:
            memory.undo()
        elif draw < 0.975 and self.faults < 3 and self.rt.statistics().groups[memory.__name__].in_service:
            self.faults += 1
            memory.device.fail(lost("smoke"))

    def check(self) -> None:
        statistics = self.rt.statistics()
        for name, customer in self.customers.items():
            customer.check(statistics.models[name])
        waiting = sum(model.waiting for model in statistics.models.values())
        assert waiting <= TOTAL + len(self.memories) * WINDOW, "the bound, and what came back undone"
        for group in statistics.groups.values():
            assert sum(parts(group)) == pytest.approx(group.seconds, abs=1e-6)
            assert min(parts(group)) >= 0

    async def end(self) -> None:
        for memory in self.memories:
            memory.holding = False
            memory.let_go()
        await anyio.sleep(60)
        self.check()
        for name, customer in self.customers.items():
            customer.check_the_end(self.rt.statistics().models[name])


async def test_whose_caller_is_cancelled_before_it_asks_is_counted_at_once() -> None:
    async with open_virtual("sim://") as rt, anyio.create_task_group() as tasks:
        customer = Customer(await rt.load(sketched("net")))
        scope = anyio.CancelScope()
        scope.cancel()
        tasks.start_soon(customer.ask, scope, tensor(1), {"timeout": None})
        for _ in range(5):
            customer.check(rt.statistics().models["net"])
            await checkpoint()
        books = rt.statistics().models["net"]
        assert (books.offered, books.admitted, books.refused) == (1, 0, {"cancelled": 1})
        customer.check_the_end(books)


@pytest.mark.parametrize("seed", range(2))
async def test_books_are_right_at_every_step(seed: int) -> None:
    memories = [Memory(name, window=WINDOW, holding=True) for name in ("first", "second")]
    async with open_virtual(*memories, queue=TOTAL) as rt, anyio.create_task_group() as tasks:
        day = Day(rt, memories, tasks, seed)
        await day.begin()
        for _ in range(200):
            await day.act()
            for _ in range(day.random.choice([0, 1, 1, 3])):
                await checkpoint()
            day.check()
        await day.end()
