"""A thousand callers on one device in a child process, many of whom go away."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import anyio
import numpy as np

from repertory.runtime.model import Model
from repertory.runtime.opening import open_runtime
from tests.runtime.support import outstanding, reconciles

from .support import Stub, echo, left, tensor

CALLERS = 1000


async def test_every_answer_is_its_callers_own(anyio_backend: object, tmp_path: Path) -> None:
    stub = Stub(tmp_path / "stub")
    before = left()
    ends = Counter[str]()
    chance = random.Random(7)

    scopes = [anyio.CancelScope() for _ in range(CALLERS)]

    async def call(model: Model, number: int) -> None:
        """Ask, and let somebody else go away when the answer comes."""
        given = tensor(number)
        with scopes[number] as scope:
            found = await model.infer(given)
            ends["right" if np.array_equal(found, given) else "wrong"] += 1
            chance.choice(scopes).cancel()
        ends["cancelled"] += scope.cancelled_caught

    async with open_runtime([stub]) as runtime:
        models = [await runtime.load(echo(name), name=name) for name in ("one", "two")]
        async with anyio.create_task_group() as tasks:
            for number in range(CALLERS):
                tasks.start_soon(call, models[number % 2], number)
        statistics = runtime.statistics()
        assert all(reconciles(each) and outstanding(each) == 0 for each in statistics.models.values())
        await models[0].infer(tensor(0))  # what was abandoned has left the device before
        assert all(group.in_flight == 0 for group in runtime.statistics().groups.values())
    assert ends["wrong"] == 0
    assert ends["right"] + ends["cancelled"] == CALLERS
    assert ends["right"] >= CALLERS / 10
    assert ends["cancelled"] >= CALLERS / 10
    assert left() == before
