"""How busy a simulated NPU is while work waits: the vendor's page in a loop, and a runtime by either way.

The NPU is never out of work: 16 callers of each graph ask for the next answer as soon as they have one, and
the loop asks at once. What is missing to 100 % is the time in which the NPU waited for the host: to lay
inputs, to hand over the job, to see its end, to copy the result. The page does all of that between two jobs.
The runtime lays the next inputs meanwhile, where a graph has two places, and has jobs of other graphs queued.

Real time, answers are hashes. The simulated NPU lives in this process and shares its interpreter, which costs
every row alike; jobs take 5 ms, of the order of a small network on a sibling of this NPU (6 ms).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import anyio
import numpy as np
from onnx import TensorProto, helper

import repertory
from repertory.models.pack_xm_npu import pack_xm_npu

LATENCY_MS = 5.0
CALLERS = 16
EXTENT = 24 * 24 * 3


def packed(name: str) -> bytes:
    """Pack a graph that takes and gives `EXTENT` floats."""
    ports = [helper.make_tensor_value_info(port, TensorProto.FLOAT, [1, EXTENT]) for port in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], name, ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return pack_xm_npu(name, model.SerializeToString())


def page(address: str, seconds: float) -> float:
    """Return the part of the time in which the NPU was at a job, for the page's own loop."""
    frame = np.zeros(EXTENT, np.float32).tobytes()
    jobs = 0
    with repertory.ComputeLibrary(address) as cl:
        graph = cl.load_simply(packed("page"))
        source = cl.allocate("npu_input", graph.input_bytes())
        result = cl.allocate("npu_output", graph.output_bytes(), cached=False)
        assert source, "it has bytes"
        assert result, "so has it"
        graph.bind(source, result)
        began = time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            source.data[: len(frame)] = frame
            graph.process()
            bytes(result.data)
            jobs += 1
    return jobs * LATENCY_MS / 1000 / spent


def runtime(address: str, graphs: int, seconds: float) -> float:
    """Return the same for a runtime with so many graphs."""

    async def main() -> float:
        async with repertory.open_runtime([address]) as rt:
            models = [await rt.load(packed(f"net{at}"), warm=True) for at in range(graphs)]
            x = np.zeros((1, EXTENT), np.float32)
            began = time.perf_counter()
            before = rt.statistics().groups[address].completed

            async def caller(model: repertory.Model) -> None:
                while time.perf_counter() < began + seconds:
                    await model.infer(x)

            async with anyio.create_task_group() as tasks:
                for model in models:
                    for _ in range(CALLERS):
                        tasks.start_soon(caller, model)
            jobs = rt.statistics().groups[address].completed - before
            return jobs * LATENCY_MS / 1000 / (time.perf_counter() - began)

    return anyio.run(main)


def row(name: str, graphs: int, measure: Callable[[], float], rounds: int) -> None:
    """Measure, and print one line."""
    found = sorted(measure() for _ in range(rounds))
    shares = ", ".join(f"{one:.1%}" for one in found)
    print(f"{name:28} {graphs:6}  {statistics.median(found):.1%} ({shares})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default 5)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts (default 3)")
    options = parser.parse_args()
    seconds, rounds = options.seconds, options.rounds
    address = f"sim+xm-npu://?answers=hash&latency_ms={LATENCY_MS}"
    print(f"{'':28} {'graphs':>6}  busy while work waits: median (all rounds)")
    row("the page in a loop", 1, partial(page, address, seconds), rounds)
    ways = {"library, without events": "&events=false", "library": "", "nodes": "&via=ioctl"}
    for name, more in ways.items():
        for graphs in (1, 3):
            row(name, graphs, partial(runtime, address + more, graphs, seconds), rounds)


if __name__ == "__main__":
    main()
