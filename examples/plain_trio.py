"""The three cameras under plain trio: `trio.run`, nurseries, and nothing of anyio in sight."""

from __future__ import annotations

from collections import Counter

import numpy as np
import trio

import repertory
from repertory import DeadlineExceeded, DeadlineUnreachable, Limits, Overflow, Superseded, TensorSpec

DEVICE = "sim://?service_ms=8&swap_ms=30"
FRAMES, PERIOD = 40, 0.02
LATEST = Limits(queue=2, overflow=Overflow.DROP_OLDEST)
IMAGE = TensorSpec("image", (48, 64, 3), np.dtype(np.uint8))
BOXES = TensorSpec("boxes", (10, 4), np.dtype(np.float32))
CAMERAS = {"door": "people", "yard": "people", "gate": "plates"}


async def watch(model: repertory.Model, image: np.ndarray, seen: Counter[str]) -> None:
    """Look at one frame; give up by trio's own cancel scope, which ends in its own way."""
    with trio.move_on_after(1.0) as patience:
        try:
            boxes = await model.infer(image, timeout=0.15)
            seen["answered"] += boxes.shape == (10, 4)
        except Superseded:
            seen["superseded"] += 1
        except (DeadlineExceeded, DeadlineUnreachable):  # at the deadline, or as soon as it is out of reach
            seen["late"] += 1
    seen["given up"] += patience.cancelled_caught


async def camera(model: repertory.Model) -> None:
    """Send frames at a fixed pace, and wait for none of them."""
    seen: Counter[str] = Counter()
    async with trio.open_nursery() as nursery:
        for number in range(FRAMES):
            image = np.full((48, 64, 3), number, np.uint8)
            nursery.start_soon(watch, model, image, seen)
            await trio.sleep(PERIOD)
    counts = ", ".join(f"{seen[word]} {word}" for word in ("answered", "superseded", "late", "given up"))
    print(f"{model.name}: {FRAMES} frames: {counts}")


async def main() -> None:
    """Run all cameras at once."""
    async with repertory.open_runtime([DEVICE]) as rt, trio.open_nursery() as nursery:
        for name, network in CAMERAS.items():
            file = repertory.sketch(network, [IMAGE], [BOXES])
            nursery.start_soon(camera, await rt.load(file, name=name, limits=LATEST))


if __name__ == "__main__":
    trio.run(main)
