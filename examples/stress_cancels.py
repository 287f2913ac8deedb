"""Hundreds of callers on one device, a third of them cancelled at random: every answer is the right one.

At the end the books balance: each admitted request has exactly one outcome, and nothing is left in flight.
"""

from __future__ import annotations

import random

import anyio
import numpy as np

import repertory
from repertory import Model, TensorSpec

DEVICE = "sim://?service_ms=0.5&swap_ms=5&window=4"
CALLERS, INPUTS = 600, 8
TENSOR = TensorSpec("x", (8,), np.dtype(np.int32))


def tensor(number: int) -> np.ndarray:
    """Return one of a few inputs; a simulated device answers each with a hash of its own."""
    return np.full(8, number % INPUTS, np.int32)


async def call(model: Model, number: int, right: bytes, scope: anyio.CancelScope) -> None:
    """Infer, in a scope that another task may cancel."""
    with scope:
        answer = await model.infer(tensor(number))
        assert answer.tobytes() == right, "somebody else's answer came"


async def cancel_later(scope: anyio.CancelScope, seconds: float) -> None:
    """Cancel a caller, wherever its request is by then."""
    await anyio.sleep(seconds)
    scope.cancel()


async def main() -> None:
    """Call, cancel, and check the books."""
    rng = random.Random(3)
    async with repertory.open_runtime([DEVICE]) as rt:
        models = [await rt.load(repertory.sketch(name, [TENSOR], [TENSOR])) for name in "abc"]
        right = {(m, n): (await m.infer(tensor(n))).tobytes() for m in models for n in range(INPUTS)}
        async with anyio.create_task_group() as tasks:
            for number in range(CALLERS):
                model, scope = rng.choice(models), anyio.CancelScope()
                tasks.start_soon(call, model, number, right[model, number % INPUTS], scope)
                if number % 3 == 0:
                    tasks.start_soon(cancel_later, scope, rng.uniform(0, 0.3))
        for name, m in rt.statistics().models.items():
            assert m.admitted == m.answered + m.cancelled, "an outcome is missing"
            assert m.waiting == m.in_flight == m.failed == 0, "something was left behind"
            print(f"{name}: {m.admitted} admitted = {m.answered} answered + {m.cancelled} cancelled")


if __name__ == "__main__":
    anyio.run(main)
