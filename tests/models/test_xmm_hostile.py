"""A hundred thousand `.xmm` files that nobody should trust: an `ArtifactError` each, in bounded time."""

from __future__ import annotations

import random
import struct
import sys
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from functools import cache
from itertools import chain, islice

import pytest

from repertory.models.errors import ArtifactError
from repertory.models.pack_xm_npu import Format, pack_xm_npu
from repertory.models.xmm import Xmm
from repertory.models.xmm_tensor import NpuType

from .graphs import model, node
from .graphs import tensor as port
from .limits import little_memory
from .mutate import mutations
from .xmm_files import Table, built, file, patched, root, sealed, shape, tensor, u32

FILES = 100_000
SECONDS = 2.0
"""Of processor time, for one file."""


@cache
def bases() -> tuple[bytes, bytes]:
    """A compiled file, and a twin with private data."""
    graph = model([node("Identity", ["x"], ["y"])], [port("x", [1, 4])], [port("y", [1, 4])])
    formats = {"x": Format(NpuType.UINT8, 0.5, 3)}
    image, weights, *_, boxes = root()[3]
    small = built(root(tensors=[image, weights, boxes], outputs=[7]))
    return file(small), pack_xm_npu("twin", graph, formats=formats, private_data=b"secret", work=64, reuse=3)


def body(data: bytes) -> int:
    return int(struct.unpack_from("<I", data, 8)[0])


def spoiled_tails(data: bytes, seed: int) -> Iterator[bytes]:
    """Change words of the tail, where no checksum tells, to what could be an offset or a length."""
    chance = random.Random(seed)
    start, size = body(data), len(data)
    while True:
        at = chance.randrange(start, size - 4) & ~3
        word = chance.choice((0, 1, 4, 0xFFFFFFFF, 0x7FFFFFFF, size, size - at, chance.randrange(2 * size)))
        yield patched(data, at, struct.pack("<I", word))


def resized(data: bytes, seed: int) -> Iterator[bytes]:
    """Spoil a file and write the header that belongs to its new size."""
    start = body(data)
    for bad in mutations(data, FILES, seed=seed):
        yield sealed(bad, min(start, len(bad))) if len(bad) > start else bad


def hostile() -> Iterator[bytes]:
    yield from (data[:end] for data in bases() for end in range(len(data)))
    endless: list[Iterator[bytes]] = []
    for seed, data in enumerate(bases()):
        endless += [mutations(data, FILES, seed=10 * seed + turn) for turn in range(8)]
        endless += [spoiled_tails(data, seed), resized(data, 10 * seed + 9)]
    yield from chain.from_iterable(zip(*endless, strict=True))


def is_read(data: bytes) -> bool:
    """Read a file within its bounds; return whether it is good."""
    began = time.thread_time()
    try:
        return len(Xmm.read(data).data) == len(data)
    except ArtifactError:
        return False
    finally:
        assert time.thread_time() - began < SECONDS


@pytest.mark.timeout(300)
def test_a_hundred_thousand_bad_files() -> None:
    assert all(map(is_read, bases()))
    assert all(len(data) < 2048 for data in bases())
    with little_memory():
        good = [is_read(data) for data in islice(hostile(), FILES)]
    assert len(good) == FILES
    # a changed name or offset is no error: some must have been read to their end
    assert 0 < sum(good) < FILES // 2


def pointing(data: bytes, at: int, to: int) -> bytes:
    """Let an offset in a file's tail lead to another place in it; both are places in the tail."""
    return patched(data, body(data) + at, struct.pack("<I", (to - at) & 0xFFFFFFFF))


def test_every_offset_may_lead_anywhere() -> None:
    """Offsets that lead to the root, to themselves, to the end and beyond it: no loop, no other error."""
    data = file()
    size = len(data) - body(data)
    for at in range(0, size - 4, 4):
        for to in (0, at, at + 4, size - 4, size - 1, size, size + 4, (1 << 32) - 4):
            is_read(pointing(data, at, to))
    with pytest.raises(ArtifactError, match="does not lie within the tail") as caught:
        Xmm.read(pointing(data, 0, size))
    assert caught.value.offset == len(data)


def shared(part: str, table: Table, count: int) -> bytes:
    """A vector of the root whose entries all lead to one and the same table."""
    tail = bytearray(built(root(**{part: [table, *[0] * (count - 1)]})))
    at = tail.index(struct.pack("<I", count)) + 4
    target = at + int(struct.unpack_from("<I", tail, at)[0])
    for place in range(at, at + 4 * count, 4):
        struct.pack_into("<I", tail, place, target - place)
    return file(bytes(tail))


SHARED = {
    "tables": shared("nodes", Table({}), 2000),
    "tensors": shared("tensors", tensor("x", shape([4], [1], 1), size=4), 2000),
    "numbers": shared("nodes", Table({4: [0x12345678] * 1000}), 2000),
    "names": shared("nodes", Table({0: "\N{CRAB}" * 3000}), 2000),
    "bad names": shared("nodes", Table({0: b"\xff" * 12_000}), 2000),
}


def steps(data: bytes) -> tuple[int, int]:
    """Read a bad file; return calls (and returns from them), and the most memory that it took."""
    count = 0

    def step(*_: object) -> None:
        nonlocal count
        count += 1

    tracemalloc.start()
    sys.setprofile(step)
    try:
        assert not is_read(data)
    finally:
        sys.setprofile(None)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return count, peak


@pytest.mark.parametrize("what", SHARED)
def test_the_same_bytes_are_not_read_again_and_again(what: str) -> None:
    """Neither time (which is counted, and not measured) nor memory is more than a multiple of the file."""
    data = SHARED[what]
    with pytest.raises(ArtifactError, match="refers to the same bytes too often"):
        Xmm.read(data)
    count, peak = steps(data)
    assert count < 16 * len(data) + 10_000
    assert peak < 16 * len(data) + 50_000


def test_the_same_constant_is_not_checked_again_and_again() -> None:
    body_bytes = bytes(1 << 20)
    image, weights, *others = root()[3]
    heavy = Table(weights | {6: u32(len(body_bytes)), 8: u32(zlib.crc32(body_bytes))})
    program = Table(root()[6][0] | {3: u32(zlib.crc32(bytes(32)))})

    def heavy_file(count: int) -> bytes:
        tail = built(root(tensors=[image, *[heavy] * count, *others[1:]], programs=[program]))
        return file(tail, body=bytes(32) + body_bytes)

    assert Xmm.read(heavy_file(2)).weightsize == len(body_bytes)
    with pytest.raises(ArtifactError, match="lie on the same bytes too often"):
        Xmm.read(heavy_file(100))
