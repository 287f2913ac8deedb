"""A serving loop: requests for several models come out of one queue, a few workers answer them.

The networks and the device are simulated. A swap costs as much as ten frames.
"""

from __future__ import annotations

import random
from collections import Counter

import anyio
import numpy as np
from anyio.abc import ObjectReceiveStream

import repertory
from repertory import Runtime, TensorSpec

Request = tuple[str, np.ndarray]
DEVICE = "sim://?service_ms=1&swap_ms=10"
MODELS, REQUESTS, WORKERS = ("detect", "embed", "read"), 300, 24


async def worker(rt: Runtime, requests: ObjectReceiveStream[Request]) -> None:
    """Answer requests until there are no more."""
    async with requests:
        async for name, tensor in requests:
            await rt.model(name).infer(tensor, timeout=5.0)


async def serve(rt: Runtime) -> None:
    """Put requests into the queue; where all workers are busy it fills up, and this waits."""
    rng = random.Random(7)
    send, receive = anyio.create_memory_object_stream[Request](WORKERS)
    async with anyio.create_task_group() as tasks, send:
        with receive:
            for _ in range(WORKERS):
                tasks.start_soon(worker, rt, receive.clone())
        for number in range(REQUESTS):
            await send.send((rng.choice(MODELS), np.full(16, number, np.float32)))


async def main() -> None:
    """Load, serve, and tell what happened."""
    tensor = TensorSpec("x", (16,), np.dtype(np.float32))
    async with repertory.open_runtime([DEVICE]) as rt:
        for name in MODELS:
            await rt.load(repertory.sketch(name, [tensor], [tensor]), warm=True)
        await serve(rt)
        found = rt.statistics()
        for name, model in found.models.items():
            print(f"{name}: {model.answered} answers, p50 {(model.p50 or 0) * 1000:.1f} ms")
        group = found.groups[DEVICE]
        print(f"{group.completed} frames, {group.swaps} swaps that took {group.swap_seconds:.2f} s in all")
        reasons = Counter(decision.reason for decision in rt.explain() if decision.decision == "bind")
        print(f"why it swapped: {', '.join(reasons)}")


if __name__ == "__main__":
    anyio.run(main)
