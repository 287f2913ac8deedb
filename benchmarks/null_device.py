"""What `infer` costs beyond the smallest actor there can be, side by side in one run.

The null device answers in the event loop's next step, so what is left is ours: checks, admission, the
backlog, two actors, the books. The yardstick is `Minimal` of minimal.py: a deque, a future a call, no bound,
no deadline, no cancel, no count of anything. Ratios are what counts; absolute times are this machine's.
"""

from __future__ import annotations

import argparse
import inspect
import statistics
import time
from collections.abc import Awaitable, Callable

import anyio
import numpy as np
from anyio import create_task_group
from minimal import Minimal

import repertory
from repertory import TensorSpec

FLOAT = np.dtype(np.float32)
SKETCH = repertory.sketch("null", [TensorSpec("x", (1, 4), FLOAT)], [TensorSpec("y", (1, 4), FLOAT)])


async def measure(call: Callable[[], Awaitable[object]], callers: int, calls: int) -> float:
    """Return microseconds a call, with that many callers in a closed loop."""

    async def caller() -> None:
        for _ in range(calls // callers):
            await call()

    began = time.perf_counter()
    async with create_task_group() as tasks:
        for _ in range(callers):
            tasks.start_soon(caller)
    return (time.perf_counter() - began) / (calls // callers * callers) * 1e6


async def compare(callers: int, calls: int, rounds: int, *, yardstick: bool) -> dict[str, list[float]]:
    """Measure all contenders in turn, `rounds` times."""
    array = np.zeros((1, 4), np.float32)
    found: dict[str, list[float]] = {}
    async with repertory.open_runtime(["null://"]) as rt, create_task_group() as tasks:
        model = await rt.load(SKETCH)
        contenders: dict[str, Callable[[], Awaitable[object]]] = {
            "infer": lambda: model.infer(array),
            "infer, timeout=10": lambda: model.infer(array, timeout=10),
        }
        if yardstick:
            minimal = Minimal()
            tasks.start_soon(minimal.serve)
            contenders["minimal"] = lambda: minimal.ask(array)
        for call in contenders.values():
            await measure(call, callers, calls // 10)
        for _ in range(rounds):
            for name, call in contenders.items():
                found.setdefault(name, []).append(await measure(call, callers, calls))
        tasks.cancel_scope.cancel()
    return found


def main() -> None:
    """Print the yardstick's source, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    source = inspect.getsource(Minimal)
    print(source)
    print(f"# {len(source.splitlines())} lines; medians of {options.rounds} rounds of {options.calls} calls")
    print("callers  contender           asyncio us   x minimal   trio us")
    for callers in (1, 64, 1000):
        table = {
            backend: anyio.run(run, callers, options, backend == "asyncio", backend=backend)
            for backend in ("asyncio", "trio")
        }
        for name, samples in table["asyncio"].items():
            ratio = statistics.median(
                a / b for a, b in zip(samples, table["asyncio"]["minimal"], strict=True)
            )
            trio = f"{statistics.median(table['trio'][name]):9.1f}" if name in table["trio"] else "        -"
            print(f"{callers:7}  {name:18}  {statistics.median(samples):10.2f}  {ratio:10.2f} {trio}")


async def run(callers: int, options: argparse.Namespace, yardstick: bool) -> dict[str, list[float]]:  # noqa: FBT001
    return await compare(callers, options.calls, options.rounds, yardstick=yardstick)


if __name__ == "__main__":
    main()
