"""What a child process costs: a frame through it beside the same device in this process, in one run.

The device is the MX3's driver over a stub of libmemx, in C, that gives every frame back as it is: what remains
is the way there and back. Both devices are open at once and are measured in turns, so that what else the
machine does meets both. The second part breaks the isolated device while others are served.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import numpy as np

from repertory import Model, RepertoryError, Runtime, open_runtime
from repertory.models.dfp import Dfp, Port, write

STUB = Path(__file__).parents[1] / "tests" / "isolation" / "stub.c"
ROUNDS = 8


def model(side: int) -> bytes:
    """Return a compiled model as far as a stub looks: one tensor of float32[1, side, side, 3] in and out."""
    ports = (Port(0, layer_name=name, shape=(side, side, 1, 3), layout="NHWC") for name in ("x", "y"))
    given, found = ports
    return write(Dfp(("echo",), (given,), (found,), chips=4))


def address(folder: Path, group: int, **options: object) -> str:
    options = {"library": folder / "libmemx.so", "lock_dir": folder, "manager_dir": folder, **options}
    return f"memx://{group}?" + "&".join(f"{name}={value}" for name, value in options.items())


async def latency(infer: Callable[[], object], count: int) -> list[float]:
    """Return the seconds of each of `count` requests, one after the other."""
    times: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        await infer()  # type: ignore[misc]
        times.append(time.perf_counter() - began)
    return times


async def throughput(infer: Callable[[], object], callers: int, count: int) -> float:
    """Return requests a second of so many callers."""

    async def call() -> None:
        for _ in range(count // callers):
            await infer()  # type: ignore[misc]

    began = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(callers):
            tasks.start_soon(call)
    return count // callers * callers / (time.perf_counter() - began)
