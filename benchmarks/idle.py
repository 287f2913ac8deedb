"""What a runtime costs that has three models loaded and nothing to do.

The simulated MX3 runs in real time: its driver threads, the hand-over of the interpreter's lock and the
wheel of deadlines are the ones that serve a card. First each model answers a few requests, then nobody
asks for ten seconds, and the processor time of the whole process is read before and after.
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
from functools import partial

import anyio
import numpy as np

import repertory
from repertory.models.pack import pack_memx
from repertory.runtime.demo.photos import network

SHAPES = {
    "pnet": ("input_1", (1, 48, 64, 3)),
    "rnet": ("input_2", (1, 24, 24, 3)),
    "onet": ("input_3", (1, 48, 48, 3)),
}
LIMIT = 0.01
"""Share of a core that an idle runtime may take."""


def spent() -> tuple[float, int]:
    """Return processor seconds of this process, and how often it gave a processor up by itself."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nvcsw


async def measure(address: str, seconds: float) -> float:
    """Print one line, and return the share of a core."""
    files = {
        name: pack_memx([(name, network(name))], shapes={tensor: shape})
        for name, (tensor, shape) in SHAPES.items()
    }
    async with repertory.open_runtime([address]) as rt:
        models = [await rt.load(data, name=name) for name, data in files.items()]
        async with anyio.create_task_group() as tasks:
            for model in models * 10:
                frame = np.zeros(SHAPES[model.name][1], np.float32)
                tasks.start_soon(partial(model.infer, frame, timeout=1.0))
        await anyio.sleep(2.0)
        before, switches = spent()
        await anyio.sleep(seconds)
        after, later = spent()
        threads = threading.active_count()
    share = (after - before) / seconds
    print(
        f"  {share:.3%} of a core over {seconds:g} s, {later - switches} wake-ups, {threads} threads,"
        f" {len(models)} models on {address}"
    )
    return share


def main() -> int:
    """Measure on both backends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--address", default="sim+memx://0")
    options = parser.parse_args()
    shares: list[float] = []
    for backend in ("asyncio", "trio"):
        print(backend)
        shares.append(anyio.run(measure, options.address, options.seconds, backend=backend))
    return 0 if max(shares) < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
