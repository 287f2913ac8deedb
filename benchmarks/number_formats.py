"""What the number formats of MX3 ports cost: a frame of floats, encoded and decoded, beside a copy of it.

The yardstick is `np.copyto` of the same array, measured in turn with the conversions, so that what else the
machine does meets both. Its data are in the caches, which makes it fast and the ratios large: right after a
conversion, the same copy takes longer. Each conversion goes through `Port`, as in the
driver.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from repertory.models.formats import PortFormat
from repertory.models.layout import extents
from repertory.models.port import Port

FORMATS = (PortFormat.FLOAT32, PortFormat.BF16, PortFormat.GBF80, PortFormat.GBF80_ROW)
LIMIT = 80.0
"""Copies that one conversion of 224 x 224 x 8 may take."""


def spent(call: Callable[[], object]) -> float:
    """Return processor time, in microseconds, of the second of two calls: its data are in the caches."""
    call()
    began = time.thread_time()
    call()
    return (time.thread_time() - began) * 1e6


def measure(port: Port, rounds: int) -> dict[str, float]:
    """Return the medians, in microseconds, of a copy, an encoding and a decoding."""
    array = np.random.default_rng(1).standard_normal(extents(port.axes, port.shape), np.float32)
    copy, frame = np.empty_like(array), np.empty(port.nbytes, np.uint8)
    calls: dict[str, Callable[[], object]] = {
        "copy": lambda: np.copyto(copy, array),
        "encode": lambda: port.encode(array, frame),
        "decode": lambda: port.decode(frame),
    }
    samples = [{name: spent(call) for name, call in calls.items()} for _ in range(rounds)]
    return {name: statistics.median(sample[name] for sample in samples) for name in calls}


def row(port: Port, rounds: int) -> float:
    """Print one line, and return the larger ratio."""
    found = measure(port, rounds)
    encode, decode = (found[way] / found["copy"] for way in ("encode", "decode"))
    print(
        f"{port.format.name:10} {port.axes}  {found['copy']:8.0f}  {found['encode']:9.0f}  {encode:8.1f}"
        f"  {found['decode']:9.0f}  {decode:8.1f}"
    )
    return max(encode, decode)


def main() -> int:
    """Print the table; fail where a conversion is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--shape", type=int, nargs=4, default=(224, 224, 1, 8), metavar=("H", "W", "Z", "C"))
    options = parser.parse_args()
    height, width, z, channels = options.shape
    print(f"# {height} x {width} x {z} x {channels} float32; medians of {options.rounds} rounds")
    print("format     axes  copy us  encode us  x copy    decode us  x copy")
    ratios = [
        row(Port(0, format=form, shape=(height, width, z, channels), layout=axes), options.rounds)
        for form in FORMATS
        for axes in ("NHWC", "NCHW")
    ]
    return 0 if max(ratios) < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
