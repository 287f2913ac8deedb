"""How busy a simulated C7x is while work waits, by protocol version and length of a job.

The DSP is never out of work: 64 callers ask for the next answer as soon as they have one. What is missing to
100 % is the time in which it waited for the host: to read an answer, to copy the result, to send the next
job. Version 2 leaves all of that between two jobs, version 3 does it while the next one runs.

Real time. The DSP is a process of its own that never sleeps, as a real one has no part in the host's
interpreter or scheduler; event loop and driver thread are this process. So this is what Python and the kernel
of the host cost. It wants two cores that nobody else uses.
"""

from __future__ import annotations

import argparse
import time

import anyio
import numpy as np
from dsp_process import device
from onnx import TensorProto, helper

import repertory
from repertory.models.pack_c7x import pack_c7x
from repertory.transports.device import Device
from repertory.transports.world import World

CALLERS = 64


def module(extent: int) -> bytes:
    """Pack a module that takes and gives `extent` floats."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, extent]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "same", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return pack_c7x("same", model.SerializeToString())


async def share(wire: int, latency_ms: float, extent: int, seconds: float) -> float:
    """Return the part of the time in which the DSP was at a job."""

    def dsp(world: World) -> Device:
        return device(world, wire, latency_ms)

    async with repertory.open_runtime([dsp]) as rt:
        model = await rt.load(module(extent), warm=True)
        x = np.zeros((1, extent), np.float32)
        stop = time.perf_counter() + seconds

        async def caller() -> None:
            while time.perf_counter() < stop:
                await model.infer(x)

        before, began = rt.statistics().groups["dsp"].busy_seconds, time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for _ in range(CALLERS):
                tasks.start_soon(caller)
        busy = rt.statistics().groups["dsp"].busy_seconds - before
        return busy / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default 5)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts (default 3)")
    options = parser.parse_args()
    print(f"{'wire':>4} {'job ms':>7} {'floats':>8}  busy while work waits: median (all rounds)")
    for extent in (16, 24 * 24 * 3, 48 * 48 * 3):
        for wire in (2, 3):
            for latency in (1.0, 5.0):
                rounds = [
                    anyio.run(share, wire, latency, extent, options.seconds) for _ in range(options.rounds)
                ]
                shares = ", ".join(f"{one:.1%}" for one in sorted(rounds))
                print(f"{wire:4} {latency:7g} {extent:8}  {sorted(rounds)[len(rounds) // 2]:.1%} ({shares})")


if __name__ == "__main__":
    main()
