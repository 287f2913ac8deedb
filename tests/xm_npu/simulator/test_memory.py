"""MMZ: where blocks lie, who may do what to them, and what is left."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from repertory.transports.xm_npu.simulator.faults import Faults
from repertory.transports.xm_npu.simulator.memory import Mmz
from repertory.transports.xm_npu.simulator.parameters import Zone

from .host import refused

BASE, PAGE, MIB = 0x42000000, 4096, 1 << 20
US, THEM = 1, 2


def memory(size: int = MIB, *, notes: list[str] | None = None, faults: Faults | None = None) -> Mmz:
    zones = (Zone(size=size), Zone("camera", 0x4A000000, 8 * PAGE))
    return Mmz(zones, faults or Faults(), (notes if notes is not None else []).append)


def test_pages_are_given_from_the_first_gap_that_fits() -> None:
    mmz = memory()
    blocks = [mmz.alloc(b"", b"a", size, US) for size in (1, 4097, 4096)]
    assert [(block.phys - BASE, block.size) for block in blocks] == [
        (0, PAGE),
        (PAGE, 2 * PAGE),
        (3 * PAGE, PAGE),
    ]
    mmz.free(blocks[1].phys, US)
    assert mmz.alloc(b"anonymous", b"b", 3 * PAGE, US).phys == BASE + 4 * PAGE
    assert mmz.alloc(b"", b"c", PAGE, US).phys == BASE + PAGE
    assert mmz.alloc(b"camera", b"d", PAGE, US).phys == 0x4A000000
    assert mmz.used == 7 * PAGE


def test_names_are_cut_as_the_driver_cuts_them() -> None:
    block = memory().alloc(b"", b"a name of more than 15", 1, US)
    assert block.name == b"a name of more "


@pytest.mark.parametrize("zone", [b"", b"nowhere"])
def test_a_zone_that_is_full_or_is_none_has_no_memory(zone: bytes) -> None:
    mmz = memory(2 * PAGE)
    with refused(errno.ENOMEM):
        mmz.alloc(zone, b"", 2 * PAGE + 1, US)
    if not zone:
        mmz.alloc(zone, b"", 2 * PAGE, US)
        with refused(errno.ENOMEM):
            mmz.alloc(zone, b"", 1, US)


def test_memory_can_be_made_to_run_out() -> None:
    faults = Faults(full=True)
    mmz = memory(faults=faults)
    with refused(errno.ENOMEM):
        mmz.alloc(b"", b"", 1, US)
    faults.full = False
    assert mmz.alloc(b"", b"", 1, US).phys == BASE


def test_a_block_that_is_mapped_goes_with_its_last_mapping() -> None:
    mmz = memory()
    block = mmz.alloc(b"", b"", 1, US)
    mmz.map(block.phys, 1, cached=True)
    address = block.address
    assert mmz.map(block.phys, PAGE, cached=True).address == address
    for _ in range(2):
        with refused(errno.EBUSY):
            mmz.free(block.phys, US)
    mmz.unmap(block)
    assert mmz.blocks
    mmz.unmap(block)
    assert not mmz.blocks
    with refused(errno.EIO):
        mmz.unmap(block)
    assert mmz.alloc(b"", b"", 1, US).phys == block.phys


WRONG: list[tuple[int, Callable[[Mmz], Any]]] = [
    (errno.EPERM, lambda mmz: mmz.free(BASE + PAGE, US)),
    (errno.EPERM, lambda mmz: mmz.free(BASE, THEM)),
    (errno.EPERM, lambda mmz: mmz.map(BASE + PAGE, 1, cached=True)),
    (errno.EINVAL, lambda mmz: mmz.map(BASE, PAGE + 1, cached=True)),
    (errno.EINVAL, lambda mmz: mmz.map(BASE, PAGE, cached=False)),
    (errno.EFAULT, lambda mmz: mmz.flush(BASE + 64, 64, offset=0)),
    (errno.EFAULT, lambda mmz: mmz.flush(BASE + 64, PAGE, offset=64)),
    (errno.EFAULT, lambda mmz: mmz.flush(BASE + PAGE, 64, offset=0)),
    (errno.EINVAL, lambda mmz: mmz.alloc(b"", b"", 0, US)),
]


@pytest.mark.parametrize(("number", "wrong"), WRONG)
def test_what_is_wrong_has_the_errno_of_the_driver(number: int, wrong: Callable[[Mmz], Any]) -> None:
    mmz = memory()
    mmz.map(mmz.alloc(b"", b"", 1, US).phys, 1, cached=True)
    with refused(number):
        wrong(mmz)
    assert list(mmz.blocks) == [BASE]


def test_what_an_owner_leaves_behind_is_freed_and_told() -> None:
    mmz = memory()
    theirs = mmz.alloc(b"", b"theirs", 1, THEM)
    for name in (b"one", b"two"):
        mmz.map(mmz.alloc(b"", name, 1, US).phys, 1, cached=True)
    mmz.close(US)
    assert list(mmz.blocks.values()) == [theirs]
    assert len(mmz.leaked) == 2
    assert "MMB LEAK(pid=1)" in mmz.leaked[0]
    assert "one" in mmz.leaked[0]


def test_a_reference_keeps_a_block_too() -> None:
    mmz = memory()
    block = mmz.alloc(b"", b"", 1, US)
    mmz.refer(block.phys, 1)
    with refused(errno.EBUSY):
        mmz.free(block.phys, US)
    mmz.refer(block.phys, -1)
    assert not mmz.blocks
