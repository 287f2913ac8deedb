"""Ten minutes of three cameras and three networks on one simulated device group, in virtual time.

Each camera sends 30 frames a second, with jitter, to a network of its own; the group swaps between them.
Answers are hashes of network and input: this measures the runtime, its drivers and its simulators, not the
networks. The device is the generic `sim://`, or an MX3, whose whole driver then runs over the simulated
libmemx. Every decision of the policy, every swap and every answer goes into a trace, with its time; one
hash over the trace shows whether a run with the same seed replays exactly. On each backend the load runs
twice with one seed, and for a while with another.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import blake2b
from importlib import import_module
from typing import Any

import anyio
import numpy as np

import repertory
from repertory import Model, RepertoryError
from repertory.actors.policy import Bind, Decision, Grant, GroupState, Policy
from repertory.models.dfp import PACKED_BY, Dfp, Port, write
from repertory.models.formats import PortFormat
from repertory.models.twin import VERSION, Twin, TwinNetwork
from repertory.runtime.policies.rotation import Rotation
from repertory.transports.virtual import VirtualWorld, virtual_options

MODELS = {"detect": (8.0, 7.0), "classify": (6.0, 6.0), "track": (9.0, 8.0)}
"""Which network each camera feeds; its latency and the interval between its frames in milliseconds."""

SHAPE = (1, 32, 32, 3)
"""Of a camera's frames, in bytes: small, for no time is to go into copying and hashing."""

RATE = 30.0
"""Frames a second of each camera."""

TIMEOUT = 0.25
"""Seconds that a frame's answer is worth waiting for."""

BUFFERS = 10
"""Frames of a camera that may be under way at once."""

ADDRESSES = {"sim": "sim://?swap_ms=15&window=8", "memx": "sim+memx://0?answers=hash&swap_ms=15"}


@dataclass
class Trace:
    """What happened, as one hash; the lines themselves where they are wanted."""

    keep: bool = False
    lines: list[str] = field(default_factory=list[str])
    ends: Counter[str] = field(default_factory=Counter[str])
    decisions: int = 0
    swaps: int = 0
    real: float = 0.0
    processor: float = 0.0
    busy: float = 0.0
    swapping: float = 0.0

    def __post_init__(self) -> None:
        self._hash = blake2b(digest_size=12)

    def note(self, line: str) -> None:
        self._hash.update(line.encode())
        if self.keep:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """The hash so far."""
        return self._hash.hexdigest()


class Watched(Policy):
    """The runtime's own policy, with its decisions noted."""

    def __init__(self, trace: Trace) -> None:
        self._policy = Rotation()
        self._trace = trace

    def decide(self, state: GroupState, now: float) -> Decision:
        decision = self._policy.decide(state, now)
        whom = decision.entry.context.name if isinstance(decision, Grant | Bind) else "-"
        frames = decision.frames if isinstance(decision, Grant) else 0
        self._trace.decisions += 1
        self._trace.note(f"{now!r} {type(decision).__name__} {whom} {frames} {decision.reason}")
        return decision


@cache
def packed(name: str) -> bytes:
    """Return a DFP with one network and no graph, for nothing computes it."""
    latency, interval = (milliseconds / 1e3 for milliseconds in MODELS[name])
    frame = Port(0, layer_name="frame", format=PortFormat.RGB888, shape=(32, 32, 1, 3), layout="NHWC")
    found = Port(0, layer_name="found", shape=(1, 1, 1, 64), layout="NC")
    twin = Twin(VERSION, [TwinNetwork(name, b"", ["frame"], ["found"], latency, interval)])
    return write(Dfp((name,), (frame,), (found,), chips=4, compiler_version=PACKED_BY, twin=twin))


@cache
def sketched(name: str) -> bytes:
    """Return a sketch of the same network."""
    uint8, float32 = np.dtype(np.uint8), np.dtype(np.float32)
    return repertory.sketch(
        name,
        [repertory.TensorSpec("frame", SHAPE, uint8)],
        [repertory.TensorSpec("found", (1, 64), float32)],
        service=MODELS[name][1] / 1e3,
    )


FILES = {"sim": sketched, "memx": packed}


async def camera(model: Model, trace: Trace, *, seed: int, seconds: float) -> None:
    """Send frames by a jittered clock, whatever becomes of the ones before.

    Each of BUFFERS tasks sends every BUFFERS-th frame: by then the one before has its answer, or is late.
    """
    jitter = random.Random(f"{seed} {model.name}")
    begin = anyio.current_time() + jitter.random() / RATE
    moments = [begin + (number + jitter.uniform(-0.3, 0.3)) / RATE for number in range(int(seconds * RATE))]

    async def buffer(first: int) -> None:
        image = np.zeros(SHAPE, np.uint8)
        for number in range(first, len(moments), BUFFERS):
            await anyio.sleep_until(moments[number])
            image.reshape(-1).view(np.uint32)[0] = number
            try:
                answer = await model.infer(image, timeout=TIMEOUT)
                end, said = "answered", answer.tobytes()[:8].hex()
            except RepertoryError as error:
                end, said = type(error).__name__, ""
                image = np.zeros_like(image)  # the device may still read the old one
            trace.ends[end] += 1
            trace.note(f"{anyio.current_time()!r} {model.name} {number} {end} {said}")

    async with anyio.create_task_group() as buffers:
        for first in range(BUFFERS):
            buffers.start_soon(buffer, first)


async def swaps(rt: repertory.Runtime, trace: Trace) -> None:
    async for event in rt.events():
        if event.kind == "swapped":
            trace.swaps += 1
            trace.note(f"{event.time!r} swapped {event.model} {event.detail}")


async def load(trace: Trace, seed: int, seconds: float, device: str) -> None:
    """Run the load to its end."""
    async with (
        anyio.create_task_group() as watching,
        repertory.open_runtime([ADDRESSES[device]], world=VirtualWorld(), policy=Watched(trace)) as rt,
    ):
        watching.start_soon(swaps, rt, trace)
        models = [await rt.load(FILES[device](name), name=name) for name in MODELS]
        async with anyio.create_task_group() as cameras:
            for model in models:
                cameras.start_soon(partial(camera, model, trace, seed=seed, seconds=seconds))
        (group,) = rt.statistics().groups.values()
        trace.busy, trace.swapping = group.busy_seconds, group.swap_seconds


def simulate(backend: str, *, seed: int, seconds: float, keep: bool = False, device: str = "memx") -> Trace:
    """Run the load on a backend, in virtual time, and return what happened."""
    for name in MODELS:
        FILES[device](name)
    trace = Trace(keep)
    began, spent = time.perf_counter(), time.process_time()
    with _seeded(backend, seed):
        options = virtual_options(backend)
        anyio.run(load, trace, seed, seconds, device, backend=backend, backend_options=options)
    trace.real, trace.processor = time.perf_counter() - began, time.process_time() - spent
    return trace


@contextmanager
def _seeded(backend: str, seed: int) -> Generator[None, None, None]:
    """Let trio shuffle ready tasks by `seed`; asyncio keeps their order anyway.

    The switch is private to trio, made for pytest-trio; without it the hashes below differ.
    """
    scheduler: Any = import_module("trio._core._run") if backend == "trio" else None
    if scheduler is None or not hasattr(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING"):
        yield
        return
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r = True, random.Random(seed)
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING, scheduler._r = before


def report(backend: str, device: str, minutes: float, seed: int) -> bool:
    """Print the table of one backend and device; return whether it replayed."""
    seconds = minutes * 60
    runs = [simulate(backend, seed=seed, seconds=seconds, device=device) for _ in range(2)]
    other = simulate(backend, seed=seed + 1, seconds=seconds / 10, device=device)
    part = simulate(backend, seed=seed, seconds=seconds / 10, device=device)
    first = runs[0]
    requests = first.ends.total()
    answered = first.ends["answered"]
    print(f"{backend}, {ADDRESSES[device]}: {minutes:g} simulated minutes, seed {seed}")
    print(f"  requests            {requests} ({answered} answered, {requests - answered} late)")
    print(f"  decisions           {first.decisions}")
    print(f"  swaps               {first.swaps} ({first.swaps / seconds:.1f} a second)")
    print(f"  device time         {first.busy / seconds:.0%} frames, {first.swapping / seconds:.0%} swaps")
    print(f"  trace, both runs    {runs[0].digest} {runs[1].digest}")
    print(f"  a tenth, two seeds  {part.digest} {other.digest}")
    print(f"  real time           {runs[0].real:.1f} s and {runs[1].real:.1f} s")
    print(f"  simulated           {max(requests / run.real for run in runs):.0f} requests a second,")
    print(f"                      {max(requests / run.processor for run in runs):.0f} a processor second")
    return runs[0].digest == runs[1].digest and part.digest != other.digest


def main() -> int:
    """Run the load on both backends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", choices=("asyncio", "trio"), action="append")
    parser.add_argument("--device", choices=tuple(ADDRESSES), action="append")
    options = parser.parse_args()
    print(f"{len(MODELS)} cameras x {RATE:g}/s; answers are hashes")
    backends = options.backend or ["asyncio", "trio"]
    devices = options.device or list(ADDRESSES)
    replayed = [report(b, device, options.minutes, options.seed) for device in devices for b in backends]
    print("every run replayed" if all(replayed) else "A RUN DID NOT REPLAY")
    return 0 if all(replayed) else 1


if __name__ == "__main__":
    sys.exit(main())
