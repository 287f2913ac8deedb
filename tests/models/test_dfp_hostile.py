"""A hundred thousand files that nobody should trust: an `ArtifactError` each, in bounded memory and time."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import pytest

from repertory.models import twin
from repertory.models.dfp import Dfp
from repertory.models.errors import ArtifactError

from .limits import MEMORY, little_memory
from .mutate import mutations
from .vendor import HEADER, file, port, small_twin

FILES = 100_000
SECONDS = 2.0
"""Of processor time, for one file."""

HPOC = {"enabled": True, "shape": [24, 24, 1, 5], "channels": [1, 3]}
RANGE = {"enabled": True, "shift": -127.5, "scale": 0.0078125}
RAW = {"0": 1, "1": 3, "2": 24, "3": 24}


def numbered(count: int, **changes: Any) -> list[dict[str, Any]]:
    return [port(port=n % 2, model_index=n, port_set=n // 2, **changes) for n in range(count)]


def bases() -> list[bytes]:
    """Good files that differ in what they have."""
    simulation = {"enabled": True, "data": twin.encode(small_twin())}
    shape = np.array([24, 24, 1, 3], np.uint16)
    return [
        file(),
        file(inport_info=[port(range_convert=RANGE, raw_shape=RAW)], sim_dfp=simulation),
        file(outport_info=[port(hpoc=HPOC, layout="NCHW")], hw_dfp=b""),
        file(
            models=["a", "b", "c"],
            inport_info=numbered(3),
            num_inports=3,
            outport_info=numbered(3),
            num_outports=3,
        ),
        file(inport_info=[port(mxa_shape=shape, packing_format={"as_int": 2}), {"port": 9, "active": False}]),
    ]


def claims(data: bytes) -> Iterator[bytes]:
    """Put a huge number at every place where a length could stand."""
    for at in range(len(data)):
        for claim in (b"\xff" * 8, b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80"):
            yield data[:at] + claim + data[at + len(claim) :]


def bombs() -> Iterator[bytes]:
    """Dictionaries, lists and arrays within each other."""
    key = b"inport_info".ljust(64, b"\0")
    for depth in (*range(1, 40), 5000):
        yield HEADER + (struct.pack("<I", 1) + key + b"\x01") * depth + struct.pack("<I", 0)
        for kind in (0x02, 0xA2):
            nested = struct.pack("<BI", kind, 1) * depth
            yield HEADER + struct.pack("<I", 1) + key + bytes([kind]) + nested + b"\x10" + bytes(4)


def noise() -> Iterator[bytes]:
    """Random bytes, bare, or behind the header, or behind that of any version."""
    chance = random.Random(1)
    while True:
        head = chance.choice((b"", HEADER, struct.pack("<QB", chance.randrange(10), 1)))
        yield head + chance.randbytes(chance.randrange(100))


def hostile() -> Iterator[bytes]:
    good = bases()
    for data in good:
        yield from (struct.pack("<Q", version) + data[8:] for version in range(10))
        yield from (data[:end] for end in range(len(data)))
        yield from claims(data)
    yield from bombs()
    yield from islice(noise(), 20_000)
    endless = (mutations(data, FILES, seed=seed) for seed, data in enumerate(good))
    yield from chain.from_iterable(zip(*endless, strict=True))


def is_read(data: bytes) -> bool:
    """Read a file within its bounds; return whether it is good."""
    began = time.thread_time()
    try:
        dfp = Dfp.read(data)
        return len([network.network for network in dfp.networks]) == len(dfp.models)
    except ArtifactError:
        return False
    finally:
        assert time.thread_time() - began < SECONDS


def test_the_good_files_are_good() -> None:
    assert all(is_read(data) for data in bases())


@pytest.mark.timeout(300)
def test_a_hundred_thousand_bad_files() -> None:
    with little_memory():
        with pytest.raises(MemoryError):
            bytearray(2 * MEMORY)
        good = [is_read(data) for data in islice(hostile(), FILES)]
    assert len(good) == FILES
    # a changed name or size is no error: some must have been read to their end
    assert 0 < sum(good) < FILES // 2


def test_no_truncated_file_is_good() -> None:
    for data in bases():
        assert not any(is_read(data[:end]) for end in range(len(data)))


LARGE: list[dict[str, Any]] = [
    {"models": [""] * 100_000},
    {"models": ["same"] * 257},
    {"inport_info": [{}] * 100_000},
    {"inport_info": [port()] * 1000},
    {"outport_info": [port(hpoc={"enabled": True, "shape": [1, 1, 1, 2], "channels": [1] * 100_000})]},
    {"inport_info": [port(mxa_shape=np.ones(1 << 20, np.uint8))]},
    {"inport_info": [port(mxa_shape=[1 << 30, 1 << 30, 1 << 30, 1 << 30])]},
    {"inport_info": [port(raw_shape={str(axis): 1 for axis in range(10_000)})]},
    {"something": [[]] * 50_000},
]


@pytest.mark.parametrize("changes", LARGE)
def test_large_files_cost_no_more_than_their_size(changes: dict[str, Any]) -> None:
    data = file(**changes)
    assert len(data) < 2 << 20
    with little_memory():
        is_read(data)
