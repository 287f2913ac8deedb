"""How busy a simulated C7x is while work waits, by protocol version and length of a job.

The DSP is never out of work: 64 callers ask for the next answer as soon as they have one. What is missing to
100 % is the time in which it waited for the host: to read an answer, to copy the result, to send the next
job. Version 2 leaves all of that between two jobs, version 3 does it while the next one runs.

Real time. The DSP is a process of its own that never sleeps, as a real one has no part in the host's
interpreter or scheduler; event loop and driver thread are this process. So this is what Python and the kernel
of the host cost. It wants two cores that nobody else uses.

`bare` is what no host can beat on version 2: a loop in one thread that reads a reply and sends the same job
again, without matching, copying or answering anybody. What it leaves idle is the machine's own time to wake a
thread.
"""

from __future__ import annotations

import argparse
import statistics
import time

import anyio
import numpy as np
from dsp_process import ProcessDsp, device
from onnx import TensorProto, helper

import repertory
from repertory.models.pack_c7x import pack_c7x
from repertory.transports.device import Device
from repertory.transports.rpmsg.wire import requests
from repertory.transports.rpmsg.wire.messages import Descriptor, Job, Loaded
from repertory.transports.rpmsg.wire.v2 import V2
from repertory.transports.world import World, drive

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


def bare(latency_ms: float, seconds: float) -> float:
    """Return the same for the least that a host can do on version 2: read a reply, send the next job."""
    dsp, data = ProcessDsp(2, latency_ms), module(16)
    endpoint = drive(dsp.open_endpoint())
    endpoint.send(requests.ping(0))
    drive(endpoint.receive(10))  # it is up, and has cleared the memory
    code, inputs = dsp.allocate(len(data)), dsp.allocate(64)
    code.view[: len(data)] = data
    endpoint.send(requests.dyn_load(1, len(data)))
    loaded = V2().parse(drive(endpoint.receive(10)) or b"")
    assert isinstance(loaded, Loaded), "it has answered"
    assert loaded.handle, "it has loaded it"
    job = V2().infer(2, Job(loaded.handle, (Descriptor(inputs.address, 64, 2, 32, (1, 16)),)))
    jobs, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        endpoint.send(job)
        drive(endpoint.receive(10))
        jobs += 1
    spent = time.perf_counter() - began
    endpoint.close()
    dsp.close()
    return jobs * latency_ms / 1000 / spent


def row(name: str, latency: float, extent: int, rounds: list[float]) -> None:
    """Print one line."""
    shares = ", ".join(f"{one:.1%}" for one in sorted(rounds))
    print(f"{name:6} {latency:7g} {extent:8}  {statistics.median(rounds):.1%} ({shares})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default 5)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts (default 3)")
    options = parser.parse_args()
    print(f"{'wire':6} {'job ms':>7} {'floats':>8}  busy while work waits: median (all rounds)")
    rounds, seconds = range(options.rounds), options.seconds
    for latency in (1.0, 5.0):
        row("bare 2", latency, 16, [bare(latency, seconds) for _ in rounds])
        for extent in (16, 24 * 24 * 3, 48 * 48 * 3):
            for wire in (2, 3):
                found = [anyio.run(share, wire, latency, extent, seconds) for _ in rounds]
                row(str(wire), latency, extent, found)


if __name__ == "__main__":
    main()
