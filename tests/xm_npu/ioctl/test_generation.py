"""Every number of the driver's calls, against the sources' own table."""

from __future__ import annotations

import pytest

from repertory.transports.xm_npu.ioctl.generation import (
    FLUSH_RANGE,
    GENERATIONS,
    MMZ_GK7206,
    MMZ_LAYOUTS,
    MMZ_V500,
    V500,
    Capability,
    JobState,
    MmzLayout,
    Register,
)

_CALLS = {
    "open": ("W", 0x1E, 32, 0x40206E1E),
    "create_queue": ("RW", 0x1F, 4, 0xC0046E1F),
    "destroy_queue": ("RW", 0x20, 4, 0xC0046E20),
    "submit": ("RW", 0x21, 32, 0xC0206E21),
    "wait": ("RW", 0x22, 24, 0xC0186E22),
    "query": ("RW", 0x23, 24, 0xC0186E23),
    "close": ("R", 0x24, 4, 0x80046E24),
    "clear_wfi": ("W", 0x25, 4, 0x40046E25),
    "reset": ("RW", 0x26, 4, 0xC0046E26),
    "set_profiling": ("RW", 0x27, 32, 0xC0206E27),
    "get_capability": ("RW", 0x28, 4, 0xC0046E28),
    "get_memsize": ("RW", 0x29, 4, 0xC0046E29),
    "set_memsize": ("RW", 0x2A, 4, 0xC0046E2A),
}
_MEMORY = {
    "alloc": ("RW", 10, 0xC0506D0A, 0xC04C6D0A),
    "attributes": ("R", 11, 0x80506D0B, 0x804C6D0B),
    "free": ("W", 12, 0x40506D0C, 0x404C6D0C),
    "remap": ("RW", 20, 0xC0506D14, 0xC04C6D14),
    "remap_cached": ("RW", 21, 0xC0506D15, 0xC04C6D15),
    "unmap": ("RW", 22, 0xC0506D16, 0xC04C6D16),
    "physical": ("RW", 23, 0xC0506D17, 0xC04C6D17),
}


def _coded(way: str, magic: str, number: int, size: int) -> int:
    directions = ("W" in way) | ("R" in way) << 1
    return directions << 30 | size << 16 | ord(magic) << 8 | number


@pytest.mark.parametrize("name", _CALLS)
def test_calls_of_the_npu(name: str) -> None:
    way, number, size, code = _CALLS[name]
    assert getattr(V500, name) == code == _coded(way, "n", number, size)


@pytest.mark.parametrize("name", _MEMORY)
def test_calls_of_the_memory(name: str) -> None:
    way, number, gk7206, v500 = _MEMORY[name]
    assert getattr(MMZ_GK7206, name) == gk7206 == _coded(way, "m", number, 80)
    assert getattr(MMZ_V500, name) == v500 == _coded(way, "m", number, 76)


def test_flushes_and_references() -> None:
    for layout in (MMZ_V500, MMZ_GK7206):
        assert (layout.add_reference, layout.drop_reference) == (0x721E, 0x721F)
        assert layout.flush == _coded("", "c", 40, 0) == 0x6328
        assert layout.flush_range == _coded("W", "d", 50, 12) == 0x400C6432
    assert FLUSH_RANGE.size == 12


def test_sizes_of_tables() -> None:
    assert (V500.open_params.size, V500.start_params.size, V500.profiling.size) == (32, 32, 32)
    assert (V500.job_status.size, V500.word.size) == (24, 4)
    assert V500.job_status.unpack(bytes(range(24)))[4] == int.from_bytes(bytes(range(16, 24)), "little")


@pytest.mark.parametrize("layout", [MMZ_V500, MMZ_GK7206], ids=lambda each: each.name)
def test_fields_of_a_block(layout: MmzLayout) -> None:
    packed = layout.info.pack(1, 2, 3, 4, 5, 6, b"block", b"zone", 7)
    words = {offset: packed[offset] for offset in (0, 4, 8, 12, 16, 20, 72)}
    assert words == {0: 1, 4: 2, 8: 3, 12: 4, 16: 5, 20: 6, 72: 7}
    assert (packed[24:40], packed[40:72]) == (b"block".ljust(16, b"\0"), b"zone".ljust(32, b"\0"))
    assert len(packed) == (76 if layout is MMZ_V500 else 80)


def test_names_for_numbers() -> None:
    assert [state.name for state in sorted(JobState)] == [
        "PEND",
        "PROCESS",
        "SUCCESS",
        "SYNC",
        "TEMP",
        "ABORT",
        "UNKNOWN",
    ]
    assert [each.name for each in sorted(Capability)] == ["PERF", "PIX", "PLATFORM", "SUBVERSION"]
    registers = "0 4 8 c 10 14 18 20 24 28 2c 34 38 3c 40 1a8 1ac 1c8 1cc"
    assert sorted(Register) == [int(each, 16) for each in registers.split()]
    assert GENERATIONS["v500"] is V500
    assert MMZ_LAYOUTS == {"v500": MMZ_V500, "gk7206": MMZ_GK7206}
