"""What a child process costs, and what it saves: one device in this process and one in a child, in one run.

Both are MX3 groups over a stub of libmemx, in C, that gives every frame back as it is, so what is measured is
the way there and back. They take turns, so that what else the machine does meets both. With `--faults` the
second part breaks the device of one group again and again, while another one is used, and compares the
latencies of the other one with those of a time without faults.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import numpy as np

from repertory import DeviceError, Limits, Model, open_runtime
from repertory.models.dfp import Dfp, Port, write

STUB = Path(__file__).parents[1] / "tests" / "isolation" / "stub.c"
LIMITS = Limits(queue_bytes=1 << 30)
CALLERS = (8, 64)
ROUNDS = 6

Infer = Callable[[], Awaitable[Any]]


def model(side: int) -> bytes:
    """Return a compiled model as far as a stub looks: one tensor of float32[1, side, side, 3] in and out."""
    given, found = (Port(0, layer_name=name, shape=(side, side, 1, 3), layout="NHWC") for name in ("x", "y"))
    return write(Dfp(("echo",), (given,), (found,), chips=4))


@contextmanager
def stubs(side: int) -> Generator[Callable[[str, str], str]]:
    """Compile the stub; yield what makes a group's address, each with a library of its own."""
    os.environ["STUB_IN"] = os.environ["STUB_OUT"] = f"{side} {side} 1 3"
    with tempfile.TemporaryDirectory() as home:
        library = Path(home) / "libmemx.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-pthread", str(STUB), "-o", str(library)]
        subprocess.run(command, check=True)  # noqa: S603  (the compiler of whoever runs this)

        def address(name: str, isolation: str) -> str:
            folder = Path(home) / name
            folder.mkdir()
            copy = folder / library.name
            copy.write_bytes(library.read_bytes())
            where = f"library={copy}&lock_dir={folder}&manager_dir={folder}&dev_dir={folder}"
            return f"memx://0?isolation={isolation}&{where}&stall=0.5&bind_bound=1"

        yield address


async def one_by_one(infer: Infer, count: int) -> list[float]:
    """Return the seconds of each of `count` requests of one caller."""
    times: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        await infer()
        times.append(time.perf_counter() - began)
    return times


async def together(infer: Infer, callers: int, count: int) -> float:
    """Return requests a second of so many callers."""

    async def call() -> None:
        for _ in range(count // callers):
            await infer()

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(callers):
            tasks.start_soon(call)
    return count // callers * callers / (time.perf_counter() - began)


@dataclass
class Place:
    """A device's samples: seconds of single requests, and requests a second by number of callers."""

    infer: Infer
    alone: list[float] = field(default_factory=list[float])
    rates: dict[int, list[float]] = field(default_factory=lambda: {count: [] for count in CALLERS})


async def compare(side: int, count: int) -> None:
    array = np.random.default_rng(1).random((1, side, side, 3), np.float32)
    with stubs(side) as address:
        groups = {"here": address("here", "none"), "child": address("child", "process")}
        async with open_runtime([*groups.values()]) as runtime:
            places: dict[str, Place] = {}
            for name, group in groups.items():
                loaded = await runtime.load(model(side), name=name, groups=[group], limits=LIMITS, warm=True)
                places[name] = Place(partial(loaded.infer, array))
            for _ in range(ROUNDS):
                for place in places.values():
                    place.alone += await one_by_one(place.infer, count)
                for callers in CALLERS:
                    for place in places.values():
                        place.rates[callers].append(
                            await together(place.infer, callers, max(4 * count, callers))
                        )
    report(side, places["here"], places["child"])


def report(side: int, here: Place, child: Place) -> None:
    lone = [1e6 * statistics.median(place.alone) for place in (here, child)]
    print(f"{side} x {side} x 3 float32, {side * side * 12} bytes each way")
    print(f"  one caller, p50: here {lone[0]:.0f} us, child {lone[1]:.0f} us, ratio {lone[1] / lone[0]:.2f}")
    for callers in CALLERS:
        rates = [statistics.median(place.rates[callers]) for place in (here, child)]
        ratio = rates[1] / rates[0]
        print(f"  {callers} callers: here {rates[0]:.0f}/s, child {rates[1]:.0f}/s, ratio {ratio:.2f}")


# -- faults


async def disturb(seconds: float, way: str) -> None:
    """Measure one group for a while without faults, then while the device of another one fails."""
    array = np.zeros((1, 24, 24, 3), np.float32)
    before: list[float] = []
    during: list[float] = []
    swaps = 0
    with stubs(24) as address:
        quiet, loud = address("quiet", "process"), address("loud", "process")
        fault = Path(loud.partition("library=")[2].partition("&")[0] + ".fault")
        async with open_runtime([quiet, loud]) as runtime:
            other = await runtime.load(model(24), name="other", groups=[quiet], warm=True)
            broken = await runtime.load(model(24), name="broken", groups=[loud], warm=True)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(use, broken, array)
                before += await for_a_while(partial(other.infer, array), seconds)
                tell(fault, f"writing {way}")
                during += await for_a_while(partial(other.infer, array), seconds)
                swaps = runtime.statistics().groups[loud].swaps
                tasks.cancel_scope.cancel()
    p99 = [1e3 * float(np.quantile(times, 0.99)) for times in (before, during)]
    print(
        f"a device that is made to {way}, and {swaps - 1} replacement(s): p99 of the other group"
        f" {p99[0]:.2f} ms before, {p99[1]:.2f} ms meanwhile, ratio {p99[1] / p99[0]:.2f}"
    )


def tell(fault: Path, order: str) -> None:
    fault.write_text(order)


async def use(model: Model, array: Any) -> None:
    """Ask again and again, at an easy pace."""
    while True:
        with suppress(DeviceError):
            await model.infer(array)
        await anyio.sleep(0.005)


async def for_a_while(infer: Infer, seconds: float) -> list[float]:
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        times += await one_by_one(infer, 10)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="asyncio", choices=["asyncio", "trio"])
    parser.add_argument("--faults", action="store_true", help="the second part too")
    parser.add_argument("--seconds", type=float, default=4.0, help="of the second part, each half")
    options = parser.parse_args()
    for side, count in ((24, 300), (640, 30)):
        anyio.run(compare, side, count, backend=options.backend)
    for way in ("hang", "crash", "kill") if options.faults else ():
        anyio.run(disturb, options.seconds, way, backend=options.backend)


if __name__ == "__main__":
    main()
