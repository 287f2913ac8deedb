"""One scheduler over all families at once, by the real clock, against what virtual time foretold.

Eight models of mixed cameras on simulated devices of every family, each behind its own driver code: two MX3
groups, an NPU, a DSP and the processor's stand-in. Each family takes its own kind of file and is offered no
other. All but the last have more models than are resident at once, so they swap. Cameras send frames by a
clock with jitter, sensors at random moments; each request has a deadline.

The load runs twice with the same moments of arrival: in virtual time, which is the prediction, and in real
time, with driver threads. Goodput is the share of all requests that were answered by their deadline, those
refused included. Both runs must reconcile: what callers met is what the books of the runtime say, for each
model and outcome, and at every look in between each admitted request is accounted for once. Twins add a
number to what they get, so every answer is checked too (those of the processor's stand-in are hashes).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import anyio
import msgspec
import numpy as np
from onnx import TensorProto, helper, numpy_helper

import repertory
from repertory import Model, RepertoryError
from repertory.models.pack import pack_memx
from repertory.models.pack_c7x import pack_c7x
from repertory.models.pack_xm_npu import pack_xm_npu
from repertory.runtime.statistics import ModelStatistics, Statistics
from repertory.transports.real import RealWorld
from repertory.transports.virtual import VirtualWorld, virtual_options
from repertory.transports.world import World

EXTENT = 64
"""Floats of a request and of an answer: small, for no time is to go into copying and computing."""

MX3 = ("sim+memx://0?groups=2&swap_ms=30", "sim+memx://1?groups=2&swap_ms=30")
NPU = ("sim+xm-npu://?load_ms=60&residents=1",)
DSP = ("sim+c7x://?load_ms=60",)
HOST = ("sim+cpu://?service_ms=50&swap_ms=20",)
GROUPS = MX3 + NPU + DSP + HOST

PIPELINE = 1.2
"""How much longer an MX3's frame takes than the interval between two of them."""

LOOK = 1.0
"""Seconds between two looks at the books: one takes milliseconds of the event loop's time."""

JITTER = 0.001
"""Seconds of a camera's standard deviation from its clock."""


@dataclass(frozen=True)
class Load:
    """A model, and who asks it.

    Attributes:
        groups: that may serve it, all of one family.
        service_ms: device time of a frame.
        cameras: the frames a second of each.
        poisson: requests a second at random moments.
        deadline_ms: after its arrival.
    """

    groups: tuple[str, ...]
    service_ms: float
    cameras: tuple[float, ...] = ()
    poisson: float = 0.0
    deadline_ms: float = 100.0


LOADS = {
    "detect": Load(MX3, 30, (30, 5), deadline_ms=400),
    "track": Load(MX3[:1], 32, (10, 5), deadline_ms=400),
    "pose": Load(MX3[1:], 40, (5, 5), deadline_ms=500),
    "plates": Load(NPU, 40, (5, 5), deadline_ms=400),
    "letters": Load(NPU, 40, poisson=6, deadline_ms=600),
    "radar": Load(DSP, 40, (5, 5), deadline_ms=400),
    "keywords": Load(DSP, 30, poisson=6, deadline_ms=600),
    "scene": Load(HOST, 50, (5,), poisson=9, deadline_ms=400),
}


@cache
def graph(name: str) -> bytes:
    """Return a graph that adds to its input the model's place among all."""
    ports = [helper.make_tensor_value_info(port, TensorProto.FLOAT, [1, EXTENT]) for port in ("x", "y")]
    place = numpy_helper.from_array(np.full((1, EXTENT), [*LOADS].index(name), np.float32), "place")
    nodes = [helper.make_node("Add", ["x", "place"], ["y"])]
    made = helper.make_graph(nodes, name, ports[:1], ports[1:], [place])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return bytes(model.SerializeToString())


@cache
def packed(name: str) -> bytes:
    """Return the model's file, as its family takes it."""
    load, data = LOADS[name], graph(name)
    seconds = load.service_ms / 1000
    if load.groups is HOST:
        return data
    if load.groups is NPU:
        return pack_xm_npu(name, data, latency=seconds)
    if load.groups is DSP:
        return pack_c7x(name, data, latency=seconds)
    return pack_memx([(name, data)], latency=PIPELINE * seconds, interval=seconds)


def arrivals(seconds: float, seed: int) -> list[tuple[float, str]]:
    """Return who asks when: seconds from the beginning, and the model."""
    found: list[tuple[float, str]] = []
    for name, load in LOADS.items():
        for number, rate in enumerate(load.cameras):
            camera = random.Random(f"{seed} {name} {number}")
            phase = camera.random()
            found += [
                (max(0.0, (frame + phase) / rate + camera.gauss(0, JITTER)), name)
                for frame in range(int(seconds * rate))
            ]
        sensor, moment = random.Random(f"{seed} {name}"), 0.0
        while load.poisson and (moment := moment + sensor.expovariate(load.poisson)) < seconds:
            found.append((moment, name))
    return sorted(found)


@dataclass
class Run:
    """What callers met, and what the runtime says of it.

    Attributes:
        ends: by model, how requests ended: `on time`, `late` (an answer, too late), or an error's name.
        ended: whether every caller has an end.
        looks: how often the books were looked at on the way.
        seconds: of real time that it took.
    """

    ends: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter[str]() for name in LOADS})
    statistics: Statistics = field(default_factory=lambda: Statistics({}, {}))
    ended: bool = False
    looks: int = 0
    seconds: float = 0.0

    def goodput(self, name: str | None = None) -> float:
        """The share of a model's requests, or of all, that were answered by their deadline."""
        ends = self.ends[name] if name else sum(self.ends.values(), Counter[str]())
        return ends["on time"] / max(1, ends.total())

    def summary(self) -> dict[str, Any]:
        """For people and for JSON."""
        groups = self.statistics.groups
        return {
            "goodput": self.goodput(),
            "worst_model": min(map(self.goodput, LOADS)),
            "per_model": {name: self.goodput(name) for name in LOADS},
            "requests": sum(ends.total() for ends in self.ends.values()),
            "ends": {name: dict(sorted(ends.items())) for name, ends in self.ends.items()},
            "swaps": {name: group.swaps for name, group in groups.items()},
            "busy_seconds": {name: group.busy_seconds for name, group in groups.items()},
            "looks": self.looks,
            "real_seconds": self.seconds,
        }


def accounted(books: ModelStatistics) -> bool:
    """Whether every admitted request has exactly one outcome, or is under way."""
    ended = (
        books.answered + books.failed + books.expired + books.cancelled + books.superseded + books.withdrawn
    )
    return books.admitted == ended + books.waiting + books.in_flight


def reconcile(run: Run) -> None:
    """Check that callers met what the books say, to the last request."""
    for name, ends in run.ends.items():
        books = run.statistics.models[name]
        assert accounted(books), (name, books)
        assert (books.waiting, books.in_flight, books.failed) == (0, 0, 0), (name, books)
        assert books.offered == ends.total(), (name, books, ends)
        assert books.answered == ends["on time"] + ends["late"], (name, books, ends)
        assert books.expired == ends["DeadlineExceeded"], (name, books, ends)
        assert books.superseded == ends["Superseded"], (name, books, ends)
        refused = ends["DeadlineUnreachable"] + ends["QueueFull"] - books.withdrawn
        assert sum(books.refused.values()) == refused, (name, books, ends)
        assert books.admitted + refused == ends.total(), (name, books, ends)
    answered = sum(books.answered for books in run.statistics.models.values())
    for name, group in run.statistics.groups.items():
        assert (group.in_flight, group.incarnations) == (0, 1), (name, group)
    assert sum(group.completed for group in run.statistics.groups.values()) >= answered


async def ask(run: Run, model: Model, number: int, moment: float) -> None:
    """Send the request of that moment, however late it is by now, and note its end."""
    load = LOADS[model.name]
    deadline = moment + load.deadline_ms / 1000
    x = np.full((1, EXTENT), number % 10_000, np.float32)
    try:
        answer = await model.infer(x, deadline=deadline)
    except RepertoryError as error:
        run.ends[model.name][type(error).__name__] += 1
        return
    run.ends[model.name]["on time" if anyio.current_time() <= deadline else "late"] += 1
    if load.groups is not HOST:
        assert np.array_equal(answer, x + [*LOADS].index(model.name)), (model, number)


async def look(rt: repertory.Runtime, run: Run) -> None:
    """Look at the books every `LOOK` seconds until everybody has an end and no device works any more."""
    while not run.ended or any(group.in_flight for group in rt.statistics().groups.values()):
        assert all(map(accounted, rt.statistics().models.values()))
        run.looks += 1
        await anyio.sleep(LOOK)


async def serve(run: Run, world: World, moments: Sequence[tuple[float, str]], policy: str | None) -> None:
    """Open everything, send every request at its moment, and wait for the last end."""
    async with repertory.open_runtime(list(GROUPS), world=world, policy=policy) as rt:
        models = {
            name: await rt.load(packed(name), name=name, groups=load.groups) for name, load in LOADS.items()
        }
        begin = anyio.current_time() + 0.1
        async with anyio.create_task_group() as looking:
            looking.start_soon(look, rt, run)
            async with anyio.create_task_group() as callers:
                for number, (moment, name) in enumerate(moments):
                    if begin + moment > anyio.current_time():
                        await anyio.sleep_until(begin + moment)
                    callers.start_soon(ask, run, models[name], number, begin + moment)
            run.ended = True
        run.statistics = rt.statistics()


def measure(
    make_world: Callable[[], World],
    moments: Sequence[tuple[float, str]],
    *,
    backend: str = "asyncio",
    policy: str | None = None,
) -> Run:
    """Run the load once, in that world."""
    virtual = make_world is VirtualWorld
    options = virtual_options(backend) if virtual else {}
    run, began = Run(), time.perf_counter()

    async def main() -> None:
        await serve(run, make_world(), moments, policy)

    anyio.run(main, backend=backend, backend_options=options)
    run.seconds = time.perf_counter() - began
    reconcile(run)
    return run


def report(virtual: Run, real: Run) -> None:
    """Print both, model by model."""
    print(f"{'model':10} {'requests':>8} {'predicted':>9} {'real':>7}  groups")
    for name, load in LOADS.items():
        print(
            f"{name:10} {virtual.ends[name].total():8} {virtual.goodput(name):9.1%} {real.goodput(name):7.1%}"
            f"  {', '.join(load.groups)}"
        )
    total = sum(ends.total() for ends in virtual.ends.values())
    print(f"{'all':10} {total:8} {virtual.goodput():9.1%} {real.goodput():7.1%}")
    print(f"difference {100 * (real.goodput() - virtual.goodput()):+.2f} points")
    for name, group in real.statistics.groups.items():
        before = virtual.statistics.groups[name]
        print(f"{name:40} swaps {before.swaps} / {group.swaps}, busy {group.busy_seconds:.1f} s")
    print(f"both reconcile, at the end and at {virtual.looks} and {real.looks} looks on the way")


def main() -> int:
    """Run the load in both worlds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--policy", help="by its name; the runtime's own without one")
    parser.add_argument("--predict", action="store_true", help="only in virtual time")
    parser.add_argument("--json", action="store_true", help="print one object")
    options = parser.parse_args()
    moments = arrivals(options.seconds, options.seed)
    for name in LOADS:
        packed(name)
    virtual = measure(VirtualWorld, moments, backend=options.backend, policy=options.policy)
    if options.predict:
        print(msgspec.json.format(msgspec.json.encode(virtual.summary())).decode())
        return 0
    real = measure(RealWorld, moments, backend=options.backend, policy=options.policy)
    points = 100 * (real.goodput() - virtual.goodput())
    if options.json:
        found = {"predicted": virtual.summary(), "real": real.summary(), "difference_points": points}
        print(msgspec.json.encode({**vars(options), **found}).decode())
    else:
        report(virtual, real)
    return 0 if abs(points) <= 3 else 1


if __name__ == "__main__":
    sys.exit(main())
