"""Three cameras share one device: two look for people, one for number plates.

The same file is loaded twice, so that each camera has a queue of its own; no swap lies between those two.
A queue holds the two latest frames. The device is simulated, and too slow on purpose.
"""

from __future__ import annotations

import sys
from collections import Counter

import anyio
import numpy as np

import repertory
from repertory import DeadlineExceeded, DeadlineUnreachable, Limits, Overflow, Superseded, TensorSpec

DEVICE = "sim://?service_ms=8&swap_ms=30"
FRAMES, PERIOD = 40, 0.02
LATEST = Limits(queue=2, overflow=Overflow.DROP_OLDEST)
IMAGE = TensorSpec("image", (48, 64, 3), np.dtype(np.uint8))
BOXES = TensorSpec("boxes", (10, 4), np.dtype(np.float32))
CAMERAS = {"door": "people", "yard": "people", "gate": "plates"}


async def watch(model: repertory.Model, image: np.ndarray, seen: Counter[str]) -> None:
    """Look at one frame, unless a newer one comes first or it takes too long."""
    try:
        boxes = await model.infer(image, timeout=0.15)
        seen["answered"] += boxes.shape == (10, 4)
    except Superseded:
        seen["superseded"] += 1
    except (DeadlineExceeded, DeadlineUnreachable):  # at the deadline, or as soon as it is out of reach
        seen["late"] += 1


async def camera(model: repertory.Model) -> None:
    """Send frames at a fixed pace, and wait for none of them."""
    seen: Counter[str] = Counter()
    async with anyio.create_task_group() as tasks:
        for number in range(FRAMES):
            image = np.full((48, 64, 3), number, np.uint8)
            tasks.start_soon(watch, model, image, seen)
            await anyio.sleep(PERIOD)
    counts = ", ".join(f"{seen[word]} {word}" for word in ("answered", "superseded", "late"))
    print(f"{model.name}: {FRAMES} frames: {counts}")


async def main() -> None:
    """Run all cameras at once."""
    async with repertory.open_runtime([DEVICE]) as rt, anyio.create_task_group() as tasks:
        for name, network in CAMERAS.items():
            file = repertory.sketch(network, [IMAGE], [BOXES])
            tasks.start_soon(camera, await rt.load(file, name=name, limits=LATEST))


if __name__ == "__main__":
    anyio.run(main, backend=sys.argv[1] if sys.argv[1:] else "asyncio")
